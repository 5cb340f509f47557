#!/usr/bin/env bash
# usage: scripts/record_trace.sh COPUS
# Records tests/golden/planner-trace afresh with the binary COPUS: a run in which the planner acts,
# its configuration with all defaults, and of its metrics what a replay reads.
set -euo pipefail
[[ $# -eq 1 ]] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
copus=$(realpath "$1")
golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../tests/golden")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$copus" prepare --tokenizer bytes --out data "$golden/llama-gqa/text.txt" >&2
cat >recipe.json <<'RECIPE'
{
  "model": {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 128, "vocab": 257, "seq_len": 32},
  "data": {"train": "data"},
  "batch": {"sequences": 8, "min": 4, "max": 64},
  "optimizer": {"lr": 3e-3},
  "train": {"tokens": 81920},
  "gns": {"every_steps": 1, "half_life_tokens": 8192},
  "adapt": {"mode": "act", "interval_steps": 20, "min_dwell_steps": 20},
  "run_dir": "run"
}
RECIPE
"$copus" train recipe.json --ranks 2 --threads 1 >&2
mkdir -p "$golden/planner-trace"
cp run/config.json "$golden/planner-trace/"
python3 - run/metrics.jsonl >"$golden/planner-trace/metrics.jsonl" <<'PYTHON'
import json, sys

STEP = ["step", "tokens", "batch", "seconds", "micro_batch_seconds"]
NOISE = ["state", "reason", "critical_batch", "low", "high"]
KEPT = ["planner", "decision", "reshard", "verify"]

for text in open(sys.argv[1]):
    line = json.loads(text)
    if "event" not in line:
        kept = {key: line[key] for key in STEP if key in line}
        if "gns" in line and line["step"] % 20 == 0:  # the others are not decided by
            kept["gns"] = {key: line["gns"][key] for key in NOISE if key in line["gns"]}
        print(json.dumps(kept))
    elif line["event"] in KEPT:
        print(json.dumps(line))
PYTHON
