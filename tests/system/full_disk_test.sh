#!/usr/bin/env bash
# usage: full_disk_test.sh COPUS GOLDEN_MODEL
# A run on a small disk of its own, which fills up in mid-run and has room again: training goes on, no save and no line of
# the record is lost for good, the checkpoints that were complete stay so. Skipped, and said to be, where nothing can be mounted.
set -euo pipefail
if [[ ${1-} != mounted ]]; then
  for how in -m -rm; do
    if unshare "$how" mount -t tmpfs -o size=64k tmpfs /mnt 2>/dev/null; then exec unshare "$how" "$0" mounted "$@"; fi
  done
  echo "full_disk: no file system can be mounted here: skipped"
  exit 77
fi
copus=$2 model=$3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
leave() { umount "$folder/disk" 2>/dev/null || true; }
fail() { echo "full_disk: $1"; tail -15 out.txt; exit 1; }
# The steps of the record are 1 to N, once each; every checkpoint is complete; nothing is left over.
check_run() {
  grep -v '"event"' disk/run/metrics.jsonl | sed -E 's/.*"step":([0-9]+).*/\1/' >steps.txt
  cmp -s steps.txt <(seq "$(wc -l <steps.txt)") || fail "the record's steps are not 1 to their number, in order"
  if "$copus" inspect disk/run | grep -E 'NOT COMPLETE|problem'; then fail "a damaged checkpoint"; fi
  if compgen -G 'disk/run/checkpoints/*.tmp' >/dev/null; then fail "a temporary folder was left"; fi
}
# A checkpoint has 1.3 MB.
cat >c.json <<'JSON'
{"model": {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 257, "seq_len": 32},
 "data": {"train": "data"}, "batch": {"sequences": 32, "micro": 8}, "optimizer": {"lr": 1e-4}, "train": {"tokens": "1T"},
 "checkpoint": {"every_tokens": "8K", "keep": 1, "async": true}, "log": {"every_steps": 8}, "run_dir": "disk/run"}
JSON
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
mkdir disk

# 1. Something else fills the disk, for as long as it takes to be noticed, and goes.
mount -t tmpfs -o size=16m tmpfs disk
"$copus" train c.json --threads 1 >out.txt 2>&1 &
job=$!
started+=("$job")
await '^checkpoint '
until grep -q 'metrics.jsonl: cannot write: .*wait in memory' out.txt && grep -q 'warning: no checkpoint ' out.txt; do
  kill -0 "$job" || fail "the run ended on a full disk"
  # An abandoned save gives its room back.
  cat /dev/zero >>disk/ballast 2>/dev/null || true
  sleep 0.05
done
saved=$(grep -c '^checkpoint ' out.txt)
rm disk/ballast
await 'the lines that waited are written'
await '^checkpoint ' $((saved + 2))
kill -TERM "$job"
code=0
wait "$job" || code=$?
started=()
((code == 3)) || fail "the run ended with $code"
check_run
echo "full_disk: $(wc -l <steps.txt) steps; $(grep -c 'warning: no checkpoint ' out.txt) saves were abandoned"
umount disk

# 2. The second checkpoint has no room beside the first, whether training waits for it or not.
for async in true false; do
  mount -t tmpfs -o size=2m tmpfs disk
  code=0
  "$copus" train c.json --threads 1 --set checkpoint.async=$async --set train.tokens=40K >out.txt 2>&1 || code=$?
  ((code == 1)) || fail "the run ended with $code"
  grep -q 'the last state could not be saved' out.txt || fail "no word of the last save"
  (($(grep -c 'warning: no checkpoint ' out.txt) >= 4)) || fail "it did not try again"
  check_run
  (($(wc -l <steps.txt) == 40)) || fail "$(wc -l <steps.txt) steps of 40"
  # With room it goes on from the one that it could keep.
  mount -o remount,size=8m disk
  "$copus" train c.json --threads 1 --resume --set train.tokens=40K >out.txt 2>&1 || fail "no resume"
  grep -q 'resumed from disk/run/checkpoints/step-00000008' out.txt || fail "resumed from elsewhere"
  check_run
  (($(wc -l <steps.txt) == 40)) || fail "$(wc -l <steps.txt) steps of 40 after the resume"
  umount disk
done
