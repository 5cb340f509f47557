#!/usr/bin/env bash
# usage: no_mpi_test.sh COPUS GOLDEN_MODEL
# C19: a binary that was built without MPI trains on several ranks of one machine, and refuses a launcher.
set -euo pipefail
copus=$1 model=$2
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 8, "micro": 2}, "train": {"tokens": 1024},
 "parallel": {"dp": 2, "tp": 2}, "run_dir": "run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
code=0
OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 "$copus" train c.json >out.txt 2>&1 || code=$?
[[ $code -eq 2 ]] || { echo "under a launcher it ended with $code"; cat out.txt; exit 1; }
grep -q 'this binary was built without MPI; build with -DCOPUS_MPI=ON, or' out.txt || { cat out.txt; exit 1; }
[[ ! -e run ]] || { echo "under a launcher it began a run"; exit 1; }
# Another launcher's processes: only NCCL could connect them.
code=0
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 COPUS_JOB=one "$copus" train c.json >out.txt 2>&1 || code=$?
[[ $code -eq 2 && ! -e run ]] || { echo "with RANK and WORLD_SIZE it ended with $code"; cat out.txt; exit 1; }
grep -q 'this binary was built without MPI; build with -DCOPUS_MPI=ON, or .* NCCL, which can connect them too, cannot:' out.txt || { cat out.txt; exit 1; }
code=0
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$copus" train c.json >out.txt 2>&1 || code=$?
[[ $code -eq 2 ]] && grep -q 'set COPUS_JOB' out.txt || { echo "a job without a name: $code"; cat out.txt; exit 1; }
"$copus" train c.json --ranks 4 --threads 1 >out.txt 2>&1 || { cat out.txt; exit 1; }
grep -q '"transport":"thread"' run/metrics.jsonl
