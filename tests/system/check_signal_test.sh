#!/usr/bin/env bash
# usage: check_signal_test.sh MPIRUN COPUS GOLDEN_MODEL
# SIGUSR2 to mpirun reaches every rank, and is one branched check; the run goes on after it, and ends as it is asked to.
set -euo pipefail
mpirun=$1 copus=$2 model=$3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data", "val": "data"}, "batch": {"sequences": 8, "micro": 2, "max": 32}, "optimizer": {"lr": 1e-3},
 "train": {"tokens": "1T", "eval_tokens": 4096}, "gns": {"every_steps": 1, "half_life_tokens": 8192},
 "adapt": {"mode": "log", "check_tokens": 8192}, "parallel": {"dp": 2}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --val-fraction 0.1 --out data "$model/text.txt" >/dev/null
"$mpirun" --oversubscribe --bind-to none -n 2 "$copus" train c.json --threads 1 >out.txt 2>&1 &
job=$!
started+=("$job")
await 'noise scale: [0-9]'
kill -USR2 "$job"
await 'branched check: .* which train nothing'
checked=$(grep '"event":"check"' run/metrics.jsonl | grep -o '"step":[0-9]*' | head -1 | cut -d: -f2)
await "step *$((checked + 20)) "
kill -USR1 "$job"
code=0
wait "$job" || code=$?
started=()
[[ $code -eq 3 ]] || { echo "the run ended with $code"; tail -20 out.txt; exit 1; }
checks=$(grep -c '"event":"check"' run/metrics.jsonl)
[[ $checks -eq 1 ]] || { echo "one request, $checks checks"; exit 1; }
