#!/usr/bin/env bash
# usage: scripts/build.sh DIR PRESET [-DNAME=VALUE...] [TARGET...]
# Configures DIR with cmake/presets/PRESET.cmake and builds the targets (everything when none is
# named). DIR is relative to the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -ge 2 ]] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
dir=$1 preset=$2
shift 2
options=() targets=()
for word in "$@"; do
  if [[ $word == -D* ]]; then options+=("$word"); else targets+=(--target "$word"); fi
done
# A folder configured before keeps its generator.
[[ -f $dir/CMakeCache.txt ]] || options+=(-G Ninja)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake -C "cmake/presets/$preset.cmake" "${options[@]}" -S . -B "$dir" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build: cmake could not configure $dir (its output is above; 'rm -r $dir' starts afresh)" >&2
  exit 1
fi
grep -- '-- COPUS_' "$log" || true
cmake --build "$dir" --parallel "$(nproc)" "${targets[@]}"
