#!/usr/bin/env bash
# usage: eval_ranks_test.sh MPIRUN COPUS GOLDEN_MODEL
# `copus eval` on several ranks, as threads and as processes, prints one document with the loss and the count of one rank;
# a mistake is told once. What is one process's work is refused in several.
set -euo pipefail
mpirun=$1 copus=$2 model=$3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
fail() {
  echo "$1"
  cat out.txt err.txt
  exit 1
}
"$copus" prepare --tokenizer bytes --out data "$model/text.txt" >/dev/null
eval_on() {
  "$@" eval "$model" --data data --seq-len 32 --threads 1 --json >out.txt 2>err.txt || fail "$* eval ended with $?"
  [[ $(wc -l <out.txt) -eq 1 ]] || fail "$* eval printed $(wc -l <out.txt) documents"
}
value() {
  sed -E "s/.*\"$1\":([0-9.e+-]+).*/\1/" out.txt
}
many=("$mpirun" --oversubscribe --bind-to none -n 3 "$copus")
eval_on "$copus"
loss=$(value loss) tokens=$(value tokens)
eval_on "${many[@]}"
# Sums of the same fp32 losses, each in double: only micro-batches' rows meet in another order.
awk -v a="$loss" -v b="$(value loss)" 'BEGIN { gap = a - b; exit !(gap < 1e-6 * a && -gap < 1e-6 * a) }' || fail "3 processes: the loss is not $loss"
[[ $(value tokens) == "$tokens" ]] || fail "3 processes: not $tokens tokens"
"$copus" eval "$model" --data data --seq-len 32 --threads 1 --ranks 3 --json >threads.txt 2>err.txt || fail "eval --ranks 3 ended with $?"
cmp threads.txt out.txt || fail "threads print something else than processes"

# More ranks than windows: some have nothing to do.
head -c 40 "$model/text.txt" >short.txt
"$copus" prepare --tokenizer bytes --out short short.txt >/dev/null
for ranks in 1 3; do
  "$copus" eval "$model" --data short --seq-len 32 --threads 1 --ranks $ranks --json >"short-$ranks.txt" 2>err.txt || fail "eval of a short text ended with $?"
done
cmp short-1.txt short-3.txt || fail "a short text has another loss on three ranks"

code=0
"${many[@]}" eval "$model" --data absent >out.txt 2>err.txt || code=$?
[[ $code -eq 2 ]] || fail "a missing data set ends with $code"
[[ $(grep -c '^error: ' err.txt) -eq 1 ]] || fail "a missing data set is told $(grep -c '^error: ' err.txt) times"

code=0
"${many[@]}" prepare --tokenizer bytes --out twice short.txt >out.txt 2>err.txt || code=$?
[[ $code -eq 2 ]] || fail "prepare in three processes ends with $code"
grep -q "copus prepare is one process's work, and a launcher started 3" err.txt || fail "prepare in three processes says something else"
[[ ! -e twice ]] || fail "prepare in three processes wrote shards"
