#!/usr/bin/env bash
# C20: a rank that fails in mid-collective ends the whole job, with a non-zero exit and a line that names it and its host.
# C19: an MPI that gives less than MPI_THREAD_MULTIPLE is refused at the start, with both levels.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
output=$(timeout 60 "$1" --oversubscribe -n 3 "$2" --fail 2>&1)
code=$?
if [[ $code -eq 0 || $code -eq 124 ]]; then
  echo "the job ended with $code"
  echo "$output"
  exit 1
fi
grep -q "rank 1 of 3 on $(hostname) ends the job: asked to fail" <<<"$output" || { echo "$output"; exit 1; }

output=$(timeout 60 "$1" --oversubscribe -n 2 "$2" --serialized 2>&1) && { echo "serialized MPI was taken"; exit 1; }
grep -q "this MPI gives thread level [0-9], Copus needs MPI_THREAD_MULTIPLE" <<<"$output" || { echo "$output"; exit 1; }
