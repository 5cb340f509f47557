# What a test of the whole program begins with; sourced, after its arguments are taken. From here on it is in a folder of
# its own. At the end that goes, with all processes in `started` and whatever leave() says.
# Ranks that wait give their core away, and mpirun runs as root too.
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
folder=$(mktemp -d) started=()
leave() { :; }
clean_up() {
  local pid
  for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  leave
  rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"

# usage: await PATTERN [TIMES]: until out.txt has lines like it so often, while process `job` lives and two minutes last.
await() {
  local looks=0 lines
  until lines=$(grep -c "$1" out.txt 2>/dev/null); ((${lines:-0} >= ${2:-1})); do
    kill -0 "$job" 2>/dev/null && ((++looks < 2400)) || { echo "never said: $1"; tail -20 out.txt; exit 1; }
    sleep 0.05
  done
}
