#!/usr/bin/env bash
# From a bare Debian 12 to a trained small model: sets up, builds, takes a real text from a Debian
# package, makes token shards, trains on the CPU and evaluates. Can be run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

stage="starting"
start=$SECONDS
failed() {
  local code=$?
  [[ $code -eq 0 ]] && return
  echo >&2
  if [[ $code -eq 3 || $code -eq 130 ]]; then
    echo "quickstart: stopped while $stage." >&2
  else
    echo "quickstart: failed while $stage (exit code $code). The reason is above; run the script again" >&2
    echo "after putting it right: finished parts are not repeated." >&2
  fi
}
trap failed EXIT
step() {
  stage=$1
  printf '\n== %s  (%d s since the start)\n' "$stage" $((SECONDS - start))
}

step "installing what is missing"
scripts/setup.sh

step "building"
scripts/build.sh build cpu copus

# One file, so one document, for each of the 66 books; a verse a line: "1:3 And God said, ...".
# (-f switches the pretty printing off: it is on by default.)
step "taking the text"
text=data/kjv-text
if [[ ! -d $text ]]; then
  rm -rf "$text.partial"
  mkdir -p "$text.partial"
  bible -f -p /usr/lib 'gen1:1-rev22:21' </dev/null |
    awk -v folder="$text.partial" '
      match($0, /^[1-3]?[A-Za-z]+/) {
        name = substr($0, 1, RLENGTH)
        if (name != book) {
          if (book != "") close(file)
          book = name
          file = sprintf("%s/%02d-%s.txt", folder, ++books, name)
        }
        print substr($0, RLENGTH + 1) > file
        ++verses
      }
      END {
        if (books != 66 || verses != 31102) {
          printf "expected 31102 verses in 66 books, got %d in %d\n", verses, books > "/dev/stderr"
          exit 1
        }
      }'
  mv "$text.partial" "$text"
fi
echo "$(find "$text" -name '*.txt' | wc -l) books, $(du -sh "$text" | cut -f1) in $text"

step "making token shards"
data=data/kjv
if [[ -d $data ]]; then
  echo "$data is there from an earlier start and is used again ('rm -r $data' makes it anew)"
else
  rm -rf "$data.partial"
  build/copus prepare --tokenizer bytes --val-fraction 0.05 --out "$data.partial" "$text"/*.txt
  mv "$data.partial" "$data"
fi

step "training"
run=runs/quickstart
if [[ -e $run ]]; then
  n=1
  while [[ -e $run-$n ]]; do ((++n)); done
  mv "$run" "$run-$n"
  echo "the run of an earlier start is now $run-$n"
fi
# Four ranks as processes: two halves of the batch, each on two halves of every matrix. One process trains the same losses:
#   build/copus train configs/quickstart.json
# The variables let Open MPI run as root, and use plain copies in shared memory, which were the faster ones here.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun --oversubscribe --bind-to none -n 4 build/copus train configs/quickstart.json --run-dir "$run" \
  --set parallel.dp=2 --set parallel.tp=2 --threads 1 --set train.tokens=900K

step "going on from its checkpoint in another layout: two pipeline stages as threads of one process"
build/copus train configs/quickstart.json --run-dir "$run" --resume --ranks 2 --set parallel.pp=2

step "evaluating the newest checkpoint on the held-out text"
newest=$(find "$run/checkpoints" -maxdepth 1 -type d -name 'step-*' | sort | tail -n 1)
[[ -n $newest ]] || { echo "no checkpoint in $run/checkpoints" >&2; exit 1; }
build/copus eval "$newest" --data "$data/val-*"

stage="finishing"
cat <<END

Done in $((SECONDS - start)) s. The run is in $run (metrics.jsonl has every step, $newest the model).
Try next, in $root:
  build/copus train configs/quickstart.json --run-dir runs/wider --set model.hidden=384 --set model.ffn=1024
  build/copus train configs/quickstart.json --run-dir $run --resume --set train.tokens=2M  # goes on, now as one rank
  build/copus train configs/quickstart.json --run-dir runs/moving --ranks 4 --set parallel.dp=4 --set adapt.script='[{"step": 50, "dp": 2, "tp": 2}]'
  build/copus train configs/quickstart.json --run-dir runs/adaptive --ranks 2 --set adapt.mode=act --set batch.micro=auto --set batch.min=8 --set batch.max=64 --set adapt.interval_steps=25
  build/copus inspect $run
  build/copus prepare --tokenizer bytes --val-fraction 0.05 --out data/mine MY_FILE.txt    # your own text
  build/copus bench step --model gpt2-124m --batch 4 --seq-len 256                         # how fast is this machine?
  build/copus --help
END
