#!/usr/bin/env bash
# usage: no_driver_test.sh COPUS GOLDEN_MODEL
# A binary with CUDA in it starts on a machine without a driver, trains on the CPU, and says why it refuses CUDA.
set -euo pipefail
copus=$1 model=$2
if [[ -e /dev/nvidiactl || -e /proc/driver/nvidia/version ]]; then
  echo "SKIPPED: this machine has an NVIDIA driver"
  exit 77
fi
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 8, "micro": 2}, "train": {"tokens": 1024}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null

refused() {
  local code=0
  "$copus" "$@" >out.txt 2>&1 || code=$?
  [[ $code -eq 2 ]] || { echo "copus $*: ended with $code"; cat out.txt; exit 1; }
  grep -q 'cuda: this machine has no NVIDIA driver; accepted here: cpu, auto' out.txt || { echo "copus $*:"; cat out.txt; exit 1; }
  [[ ! -e run ]] || { echo "copus $*: began a run"; exit 1; }
}
refused train c.json --set device=cuda
refused train c.json --set device=cuda --ranks 2
refused eval "$model" --data data --device cuda
refused bench comm --device cuda

"$copus" train c.json --set device=auto --ranks 2 --threads 1 --set parallel.dp=2 >out.txt 2>&1 || { cat out.txt; exit 1; }
grep -q '"backend":"cpu"' run/metrics.jsonl
grep -q 'train.tokens reached' run/metrics.jsonl
echo "no driver: trains on the CPU, refuses CUDA"
