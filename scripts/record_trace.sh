#!/usr/bin/env bash
# usage: scripts/record_trace.sh COPUS [planner-trace|check-trace]...
# Records tests/golden's traces (both when none is named) afresh with the binary COPUS: runs in which
# the planner acts, each with its configuration, all defaults filled in, and of its metrics what a
# replay reads.
set -euo pipefail
[[ $# -ge 1 ]] || { sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
copus=$(realpath "$1")
shift
[[ $# -gt 0 ]] || set -- planner-trace check-trace
golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../tests/golden")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$copus" prepare --tokenizer bytes --val-fraction 0.1 --out data "$golden/llama-gqa/text.txt" >&2
cat >recipe.json <<'RECIPE'
{
  "model": {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 128, "vocab": 257, "seq_len": 32},
  "data": {"train": "data"},
  "batch": {"sequences": 8, "min": 4, "max": 64},
  "optimizer": {"lr": 3e-3},
  "train": {"tokens": 163840},
  "gns": {"every_steps": 1, "half_life_tokens": 8192},
  "adapt": {"mode": "act", "interval_steps": 20, "min_dwell_steps": 20}
}
RECIPE
for name; do
  options=()
  case "$name" in
    planner-trace) ;;
    check-trace)
      options=(--set data.val=data --set train.eval_tokens=8192 --set adapt.check_every_tokens=16384
        --set adapt.check_tokens=8192 --set train.tokens=49152) ;;
    *) echo "record_trace: no trace is called $name" >&2; exit 2 ;;
  esac
  "$copus" train recipe.json --ranks 2 --threads 1 --run-dir "$name" "${options[@]}" >&2
  mkdir -p "$golden/$name"
  cp "$name/config.json" "$golden/$name/"
  python3 - "$name/metrics.jsonl" >"$golden/$name/metrics.jsonl" <<'PYTHON'
import json, sys

STEP = ["step", "tokens", "batch", "seconds", "micro_batch_seconds"]
NOISE = ["state", "reason", "critical_batch", "low", "high"]
KEPT = ["planner", "decision", "reshard", "verify", "check"]

lines = [json.loads(text) for text in open(sys.argv[1])]
# The noise scale of other steps is not decided by.
read = {line["step"] for line in lines if line.get("event") in ("decision", "check")}
for line in lines:
    if "event" not in line:
        kept = {key: line[key] for key in STEP if key in line}
        if "gns" in line and line["step"] in read:
            kept["gns"] = {key: line["gns"][key] for key in NOISE if key in line["gns"]}
        print(json.dumps(kept))
    elif line["event"] in KEPT:
        print(json.dumps(line))
PYTHON
done
