#!/usr/bin/env bash
# How fast a checkpoint is saved and loaded, beside what dd does with as many bytes on the same disk.
# GPT-2 124M with its moments: 1.5 GB. In turn, so that the rounds can be compared.
#   scripts/bench_checkpoint.sh [ROUNDS] [FOLDER] [RANKS]
set -euo pipefail
rounds=${1:-3} folder=${2:-runs} ranks=${3:-1}
copus=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/copus
mkdir -p "$folder"
work=$(mktemp -d "$folder/bench-checkpoint-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
seq 1 2000 >text.txt
"$copus" prepare --tokenizer bytes --out data text.txt >/dev/null
cat >c.json <<'JSON'
{"model": {"preset": "gpt2-124m", "seq_len": 8}, "data": {"train": "data"}, "batch": {"sequences": 4},
 "parallel": {"zero": 1}, "run_dir": "run"}
JSON
train() { "$copus" train c.json --ranks "$ranks" "$@" >out.txt 2>&1 || { cat out.txt >&2; exit 1; }; }
# A file's pages leave the cache, so that reading it reads the disk.
forget() { sync; for file in "$@"; do dd if="$file" iflag=nocache count=0 status=none; done; }
field() { grep "\"event\":\"$1\"" run/metrics.jsonl | tail -1 | grep -o "\"$2\":[0-9.e-]*" | head -1 | cut -d: -f2; }
rate() { awk -v bytes="$1" -v seconds="$2" 'BEGIN { printf "%8.2f s %7.0f MB/s", seconds, bytes / seconds / 1e6 }'; }
seconds_of() { local start=$EPOCHREALTIME; "$@" 2>/dev/null; awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }

printf '%s ranks, %s\n' "$ranks" "$(df --output=source,fstype . | tail -1)"
for ((round = 1; round <= rounds; ++round)); do
  rm -rf run
  train --set train.tokens=32
  bytes=$(field checkpoint bytes)
  wrote=$(field checkpoint seconds)
  files=(run/checkpoints/latest/*.safetensors)
  cat "${files[@]}" >source.bin
  dd_write=$(seconds_of dd if=source.bin of=copy.bin bs=4M count="$bytes" iflag=count_bytes conv=fsync)
  forget "${files[@]}" copy.bin source.bin
  train --resume --set train.tokens=64
  check=$(field run check_seconds)
  read=$(field run read_seconds)
  dd_cold=$(seconds_of dd if=copy.bin of=/dev/null bs=4M)
  dd_warm=$(seconds_of dd if=copy.bin of=/dev/null bs=4M)
  printf 'round %d: %s bytes\n' "$round" "$bytes"
  printf '  save, fsync and publish   %s\n  dd conv=fsync             %s\n' "$(rate "$bytes" "$wrote")" "$(rate "$bytes" "$dd_write")"
  printf '  check, cold               %s\n  dd, cold                  %s\n' "$(rate "$bytes" "$check")" "$(rate "$bytes" "$dd_cold")"
  printf '  read, warm                %s\n  dd to /dev/null, warm     %s\n' "$(rate "$bytes" "$read")" "$(rate "$bytes" "$dd_warm")"
done
