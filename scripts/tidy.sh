#!/usr/bin/env bash
# usage: scripts/tidy.sh [--all | FILE.cpp...]
# Runs clang-tidy over the .cpp files that differ from the main branch (or all, or the named ones).
# It needs a configured build/ and prints findings; the exit code is 1 when there are any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v clang-tidy >/dev/null || { echo "tidy: no clang-tidy here; scripts/setup.sh --dev installs it" >&2; exit 1; }
[[ -f build/compile_commands.json ]] ||
  cmake -G Ninja -C cmake/presets/cpu.cmake -S . -B build >/dev/null

if [[ ${1:-} == --all ]]; then
  mapfile -t files < <(find src -name '*.cpp' ! -path 'src/backend/cuda/*' | sort)
elif [[ $# -gt 0 ]]; then
  files=("$@")
else
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp'
    git ls-files --others --exclude-standard -- 'src/*.cpp'; } | grep -v '^src/backend/cuda/' | sort -u)
fi
[[ ${#files[@]} -gt 0 ]] || { echo "tidy: no changed .cpp file"; exit 0; }
# Flags of the other compiler in compile_commands.json are none of its business.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build \
  --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
  --extra-arg=-Wno-ignored-optimization-argument 2> >(grep -v 'warnings generated\|^Suppressed\|^Use -header' >&2 || true)
echo "tidy: ${#files[@]} files, nothing found"
