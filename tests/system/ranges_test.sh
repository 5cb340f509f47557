#!/usr/bin/env bash
# usage: ranges_test.sh COPUS NVTX_TRACE_LIBRARY GOLDEN_MODEL
# A profiler sees a step's parts under their names, each closed, also where the ranks compute on the CPU.
set -euo pipefail
copus=$1 library=$2 model=$3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 8, "micro": 2}, "train": {"tokens": 768}, "device": "cpu",
 "parallel": {"dp": 2}, "adapt": {"script": [{"step": 1, "dp": 1, "tp": 2}]}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
NVTX_INJECTION64_PATH=$library NVTX_TRACE=$folder/trace "$copus" train c.json --ranks 2 --threads 1 >out.txt 2>&1 ||
  { cat out.txt; exit 1; }

for range in "step 1" "step 3" data embedding "forward of layer 0" "forward of layer 1" "loss and its backward" \
  "backward of layer 1" "backward of layer 0" "backward of embedding" "gradient sync" "dp all_reduce" "tp all_reduce" \
  optimizer "the world all_reduce of scalars" "switch exchange" "switch swap"; do
  grep -qE "^\+ [0-9]+ $range$" trace || { echo "no range \"$range\":"; sort trace | uniq -c; exit 1; }
done
[[ $(grep -c '^+' trace) -eq $(grep -c '^-' trace) ]] || { echo "ranges are left open"; exit 1; }
grep -q '^+ 1 forward of layer 0$' trace || { echo "a layer lies in its step"; exit 1; }
# A window that nothing would record is refused, before anything is written.
code=0
"$copus" train c.json --run-dir other --set log.profile_steps=2-3 >out.txt 2>&1 || code=$?
[[ $code -eq 2 && ! -e other ]] || { echo "a profiler window on the CPU: ended with $code"; cat out.txt; exit 1; }
grep -q 'log.profile_steps: "2-3" opens a window for nsys and ncu, and the ranks compute on the CPU' out.txt
echo "ranges: $(grep -c '^+' trace) seen"
