#!/usr/bin/env bash
# usage: unread_stderr_test.sh COPUS GOLDEN_MODEL
# Whoever reads a run's stderr stops reading, or leaves: the run goes on, log.txt has its lines, and a signal still has it
# save its state and end with 3.
set -euo pipefail
copus=$1 model=$2
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fail() { echo "unread_stderr: $1"; tail -5 run/log.txt; exit 1; }
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 1, "hidden": 16, "heads": 2, "kv_heads": 2, "ffn": 32, "vocab": 257, "seq_len": 8},
 "data": {"train": "data"}, "batch": {"sequences": 1}, "optimizer": {"lr": 1e-4}, "train": {"tokens": "1T"},
 "log": {"every_steps": 1}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
mkfifo words
for how in stops leaves; do
  rm -rf run
  sleep 1000 <words &  # opens it, and reads nothing
  reader=$!
  started+=("$reader")
  "$copus" train c.json --threads 1 2>words &
  job=$!
  started+=("$job")
  if [[ $how == leaves ]]; then
    until [[ -s run/metrics.jsonl ]]; do sleep 0.05; done
    kill "$reader"
    wait "$reader" 2>/dev/null || true
    reader=""
  fi
  # A pipe holds 64 KiB of lines.
  looks=0
  until (($(cat run/metrics.jsonl 2>/dev/null | wc -l) > 2000)); do
    kill -0 "$job" 2>/dev/null && ((++looks < 2400)) || fail "the reader $how: no more steps"
    sleep 0.05
  done
  kill -TERM "$job"
  looks=0
  while kill -0 "$job" 2>/dev/null; do ((++looks < 1200)) || fail "the reader $how: it does not end"; sleep 0.05; done
  code=0
  wait "$job" || code=$?
  ((code == 3)) || fail "the reader $how: it ended with $code"
  [[ -e run/checkpoints/latest/state.json ]] || fail "the reader $how: no checkpoint"
  grep -q 'stopped at step .*SIGTERM' run/log.txt || fail "the reader $how: log.txt lacks its end"
  [[ -z $reader ]] || { kill "$reader"; wait "$reader" 2>/dev/null || true; reader=""; }
  started=()
done
