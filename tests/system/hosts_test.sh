#!/usr/bin/env bash
# usage: hosts_test.sh EMULATED_HOSTS MPIRUN COPUS TEST_MPI GOLDEN_MODEL
# Runs over two hosts (network namespaces; exits 77 and says so where none can be made).
# C10: layouts with gradient accumulation over three launchers (threads, mpirun on one host, mpirun over two) follow the
# run of one rank step by step. R11: a checkpoint that ranks wrote whose number on their host is not their number in the
# world is the same state for any rank that reads it. C16: a rank's number on its host is counted on that host.
set -euo pipefail
hosts=$1 mpirun=$2 copus=$3 test_mpi=$4 model=$5
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if ! "$hosts" --hosts 1 --slots 1 true 2>probe.txt; then
  echo "******** several hosts: not tested here ********"
  cat probe.txt
  exit 77
fi
fail() {
  echo "$1"
  tail -20 out.txt
  exit 1
}

"$hosts" "$test_mpi" --places | sort >out.txt
diff - out.txt <<'END' || fail "C16: other places on the hosts"
rank 0 of 4 is 0 of 2 on its host
rank 1 of 4 is 1 of 2 on its host
rank 2 of 4 is 0 of 2 on its host
rank 3 of 4 is 1 of 2 on its host
END
if [[ $(nproc) -ge 2 ]]; then
  # shellcheck disable=SC2016
  "$hosts" --divide sh -c 'echo "$(hostname) $(taskset -cp $$ | sed "s/.*: //")"' | sort -u >out.txt
  [[ $(wc -l <out.txt) -eq 2 && $(cut -d' ' -f2 out.txt | sort -u | wc -l) -eq 2 ]] || fail "--divide: these hosts have the same processors"
fi
"$hosts" "$test_mpi" >out.txt 2>&1 || fail "the communicators' suite over two hosts ended with $?"
grep -q 'conformance: ok on 4 ranks' out.txt || fail "the communicators' suite over two hosts said nothing"

cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 16, "micro": 2}, "optimizer": {"lr": 1e-3},
 "schedule": {"kind": "constant"}, "train": {"tokens": 4096}}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
# usage: train RUN LAUNCHER... -- FLAGS...: LAUNCHER stands before the binary.
train() {
  local run=$1 launcher=()
  shift
  while [[ $1 != -- ]]; do launcher+=("$1") && shift; done
  shift
  "${launcher[@]}" "$copus" train c.json --threads 1 --run-dir "$run" "$@" >out.txt 2>&1 || fail "$run ended with $?"
}
# usage: numbers RUN: step, loss and norm of every step.
numbers() {
  grep -v '"event"' "$1/metrics.jsonl" | sed -E 's/.*"grad_norm":([^,]+),.*"loss":([^,]+),.*"step":([0-9]+),.*/\3 \2 \1/'
}
# usage: same RUN STEPS: the first STEPS steps are within what the references ask of any layout.
same() {
  paste -d' ' <(numbers whole | head -n "$2") <(numbers "$1") | awk -v run="$1" -v steps="$2" '
    function gap(a, b) { return a > b ? (a - b) / a : (b - a) / a }
    $1 != $4 { printf "step %s beside step %s\n", $1, $4; bad = 1; exit }
    { if (gap($2, $5) > loss) loss = gap($2, $5); if (gap($3, $6) > norm) norm = gap($3, $6) }
    END {
      printf "%-28s %d steps, losses within %.1e, norms within %.1e\n", run, NR, loss, norm
      exit bad || NR != steps || loss > 2e-5 || norm > 2e-4
    }' || fail "$1 is not the run of one rank"
}
train whole --
for layout in "2 2 1" "2 1 2" "2 4 2"; do
  read -r dp tp pp <<<"$layout"
  ranks=$((dp * tp * pp)) flags="--set parallel.dp=$dp --set parallel.tp=$tp --set parallel.pp=$pp --set parallel.zero=1 --set train.tokens=2048"
  # shellcheck disable=SC2086
  {
    train "threads-$dp-$tp-$pp" -- --ranks $ranks $flags
    train "mpirun-$dp-$tp-$pp" "$mpirun" --oversubscribe --bind-to none -n $ranks -- $flags
    train "two-hosts-$dp-$tp-$pp" "$hosts" --slots $((ranks / 2)) -- $flags
  }
  for launcher in threads mpirun two-hosts; do same "$launcher-$dp-$tp-$pp" 4; done
done
grep -q '"hosts":\["host0","host1"\]' two-hosts-2-2-1/metrics.jsonl || fail "the run event does not name both hosts"

# R11: what two hosts wrote at step 4, one rank and two hosts in another layout go on with.
cp -r two-hosts-2-2-1 one-rank
cp -r two-hosts-2-2-1 other-layout
train one-rank -- --resume
train other-layout "$hosts" -- --resume --set parallel.tp=2 --set parallel.pp=2
same one-rank 8
same other-layout 8
hash_of() {
  grep '"event":"run"' "$1/metrics.jsonl" | tail -n 1 | sed -E 's/.*"weight_hash":"([0-9a-f]+)".*/\1/'
}
[[ $(hash_of one-rank) == "$(hash_of other-layout)" ]] || fail "R11: the hosts read other weights than one rank"
[[ $(hash_of one-rank) != "$(hash_of whole)" ]] || fail "R11: the checkpoint was not read"
