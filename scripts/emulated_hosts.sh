#!/usr/bin/env bash
# usage: scripts/emulated_hosts.sh [--hosts N] [--slots N] [--rate RATE] [--divide] COMMAND...
# Runs COMMAND under mpirun as if on several machines: N hosts (2) that are network namespaces of this one on a bridge of
# their own, SLOTS ranks (2) on each, for example
#   scripts/emulated_hosts.sh --rate 1gbit build/copus train configs/quickstart.json --threads 1 --set parallel.tp=2
# Ranks of one host talk through shared memory, ranks of two over TCP; RATE (as tc writes it) is what each host's link
# carries in each direction. --divide: each host has an equal share of the processors for itself, as a machine would;
# without it they share all of them. The hosts are called host0, host1, ..., share this machine's files, see no
# other network, and are gone at the end. Wants root. Exit code: that of mpirun; 2: a mistake in the flags; 77: this
# machine gives no such hosts (the reason is on stderr).
set -euo pipefail

usage() {
  sed -n '2,10s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
mistake() {
  echo "emulated_hosts: $1" >&2
  exit 2
}
impossible() {
  echo "emulated_hosts: $1" >&2
  exit 77
}

hosts=2 slots=2 rate="" divide=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --hosts) hosts=${2-} && shift ;;
    --slots) slots=${2-} && shift ;;
    --rate) rate=${2-} && shift ;;
    --divide) divide=yes ;;
    --help) usage ;;
    --) shift && break ;;
    -*) mistake "$1: no such flag; there are --hosts, --slots, --rate and --divide" ;;
    *) break ;;
  esac
  shift || usage
done
[[ $# -gt 0 ]] || usage
[[ $hosts =~ ^[1-9][0-9]?$ ]] || mistake "--hosts $hosts: a number from 1 to 99"
[[ $slots =~ ^[1-9][0-9]*$ ]] || mistake "--slots $slots: a number from 1"
# tc alone knows every way to write a rate; what it would take for a rate of nothing is caught here.
[[ -z $rate || $rate =~ ^[0-9.]*[1-9][0-9.]*[a-zA-Z]+$ ]] || mistake "--rate $rate: a number and a unit of tc's, such as 1gbit or 200mbit"

[[ $(id -u) -eq 0 ]] || impossible "network namespaces want root"
for tool in ip tc unshare taskset mpirun; do
  [[ -n $(command -v $tool) ]] || impossible "$tool is not here (Debian: iproute2, util-linux, openmpi-bin)"
done

# The processors that this process may use, one a line.
processors() {
  local part
  for part in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
    seq "${part%-*}" "${part#*-}"
  done
}
mapfile -t cpus < <(processors)
[[ -z $divide || ${#cpus[@]} -ge $hosts ]] ||
  impossible "--divide: ${#cpus[@]} processors are not enough for $hosts hosts"
# usage: processors_of HOST-NUMBER: as taskset takes them
processors_of() {
  local share=("${cpus[@]}")
  [[ -z $divide ]] || share=("${cpus[@]:$(($1 * ${#cpus[@]} / hosts)):$((${#cpus[@]} / hosts))}")
  local IFS=,
  echo "${share[*]}"
}

# Several of these may run at once: a name holds this process's number.
name=copus-$$ made=() agent="" job=""
clean_up() {
  # mpirun ends its ranks; only then may their networks go.
  [[ -z $job ]] || { kill -TERM "$job" && wait "$job"; } 2>/dev/null || true
  local space
  for space in "${made[@]}"; do
    ip netns del "$space" || true
    rm -rf "/etc/netns/$space"
  done
  [[ -z $agent ]] || rm -f "$agent"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make_space() {
  local problem
  problem=$(ip netns add "$1" 2>&1) || impossible "no network namespace can be made here: $problem"
  made+=("$1")
}
# usage: limit NAMESPACE DEVICE: the link's rate for what leaves through the device. A burst is what a timer tick of
# 4 ms sends at 500 Mbit/s; faster links are smoothed by it.
limit() {
  local problem
  [[ -n $rate ]] || return 0
  problem=$(tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst 256kb limit 2mb 2>&1) && return
  [[ $problem != *"illegal value"* ]] || mistake "--rate $rate: tc does not know it; it takes rates such as 1gbit or 200mbit"
  impossible "--rate $rate: tc can limit no link here: $problem"
}

make_space "$name-bridge"
ip -n "$name-bridge" link add bridge0 type bridge || impossible "no bridge can be made here"
ip -n "$name-bridge" link set bridge0 up
table="127.0.0.1 localhost" list=""
for ((i = 0; i < hosts; ++i)); do
  table+=$'\n'"10.77.0.$((i + 1)) host$i"
  list+="${list:+,}host$i:$slots"
done
for ((i = 0; i < hosts; ++i)); do
  space=$name-host$i
  make_space "$space"
  mkdir -p "/etc/netns/$space"
  echo "$table" >"/etc/netns/$space/hosts" # `ip netns exec` shows it as /etc/hosts
  ip -n "$name-bridge" link add "port$i" type veth peer name eth0 netns "$space"
  ip -n "$name-bridge" link set "port$i" master bridge0 up
  ip -n "$space" addr add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" link set lo up
  limit "$space" eth0
  limit "$name-bridge" "port$i"
done

# What mpirun calls instead of ssh: HOST COMMAND..., the command for a shell to read.
agent=$(mktemp)
cat >"$agent" <<END
#!/bin/sh
host=\$1
shift
case \$host in
$(for ((i = 0; i < hosts; ++i)); do echo "  host$i) cpus=$(processors_of "$i") ;;"; done)
esac
exec taskset -c "\$cpus" ip netns exec "$name-\$host" unshare --uts sh -c "hostname \$host; \$*"
END
chmod +x "$agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
# All hosts' ranks share this machine's processors, which mpirun cannot know: who waits yields.
# shellcheck disable=SC2016
taskset -c "$(processors_of 0)" ip netns exec "$name-host0" unshare --uts sh -c 'hostname host0; exec "$@"' sh \
  mpirun --host "$list" -n $((hosts * slots)) --bind-to none --mca plm_rsh_agent "$agent" \
  --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 "$@" &
job=$!
code=0
wait "$job" || code=$?
job=""
exit "$code"
