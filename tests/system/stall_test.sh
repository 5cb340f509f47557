#!/usr/bin/env bash
# usage: stall_test.sh MPIRUN COPUS GOLDEN_MODEL
# C22: of two processes one stands still in mid-run. The other, asked to stop, says in which call of which group it waits
# and for how long; when its peer moves again the run ends as it was asked to, with a checkpoint.
set -euo pipefail
mpirun=$1 copus=$2 model=$3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
still=""
leave() { [[ -z $still ]] || kill -CONT "$still" 2>/dev/null || true; }
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 8, "micro": 2}, "optimizer": {"lr": 1e-4}, "train": {"tokens": "1T"},
 "parallel": {"dp": 2}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
"$mpirun" --oversubscribe --bind-to none -n 2 "$copus" train c.json --threads 1 >out.txt 2>&1 &
job=$!
started+=("$job")
rank() {
  local pid
  for pid in $(pgrep -P "$job"); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -x "OMPI_COMM_WORLD_RANK=$1" >/dev/null; then echo "$pid"; fi
  done
}
await '^step '
still=$(rank 1) waits=$(rank 0)
[[ -n $still && -n $waits ]] || { echo "no ranks among mpirun's children"; exit 1; }
kill -STOP "$still"
kill -USR1 "$waits"
await 'rank 0: asked to stop, in [a-z_ ]* over [a-z ]* (call [0-9]*) for .*: a peer has not come, or has ended'
kill -CONT "$still"
code=0
wait "$job" || code=$?
started=()
[[ $code -eq 3 ]] || { echo "the run ended with $code"; tail -20 out.txt; exit 1; }
grep -q 'stopped at step .*SIGUSR1' out.txt || { tail -20 out.txt; exit 1; }
[[ -e run/checkpoints/latest ]] || { echo "no checkpoint"; exit 1; }
