#!/usr/bin/env bash
# usage: scripts/gpu_deps.sh [DIR]
# Collects the libraries that a build needs, from this Debian machine's packages, into DIR (.gpu-deps):
# for -DCOPUS_DEPS on a machine that has a compiler and CUDA but none of them, such as one with a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=${1:-.gpu-deps}
include=/usr/include
library=/usr/lib/$(gcc -print-multiarch)/libz.a

missing=()
for part in nlohmann CLI spdlog fmt catch2 xxhash.h zlib.h zconf.h; do
  [[ -e $include/$part || -e $include/$(gcc -print-multiarch)/$part ]] || missing+=("$part")
done
[[ -f $library ]] || missing+=("$library")
if ((${#missing[@]})); then
  echo "gpu_deps: missing ${missing[*]}; scripts/setup.sh installs them" >&2
  exit 1
fi

mkdir -p "$dir"
fresh=$(mktemp -d "$dir/.new-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
mkdir -p "$fresh/include" "$fresh/lib"
for part in nlohmann CLI spdlog fmt catch2 xxhash.h xxh3.h zlib.h zconf.h; do
  for from in "$include" "$include/$(gcc -print-multiarch)"; do
    if [[ -e $from/$part ]]; then cp -rL "$from/$part" "$fresh/include/"; fi
  done
done
cp -L "$library" "$fresh/lib/"
rm -rf "${dir:?}/include" "${dir:?}/lib"
mv "$fresh/include" "$fresh/lib" "$dir/"
echo "gpu_deps: $dir, $(du -sh "$dir" | cut -f1)"
