#!/usr/bin/env bash
# A rank that fails in mid-collective ends the whole job, with a non-zero exit and a line that names it.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
output=$(timeout 60 "$1" --oversubscribe -n 3 "$2" --fail 2>&1)
code=$?
if [[ $code -eq 0 || $code -eq 124 ]]; then
  echo "the job ended with $code"
  echo "$output"
  exit 1
fi
grep -q "rank 1 ends the job: asked to fail" <<<"$output" || { echo "$output"; exit 1; }
