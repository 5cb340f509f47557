#!/usr/bin/env bash
# Holds our C++ and CUDA sources to .clang-format; with --fix, formats them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One version decides: others lay out the same file differently.
version=14
tool=$(command -v clang-format-$version || command -v clang-format || true)
[[ -n $tool ]] || { echo "check_format: no clang-format here; scripts/setup.sh --dev installs it" >&2; exit 1; }
"$tool" --version | grep -q "version $version\." ||
  { echo "check_format: needs clang-format $version, found: $("$tool" --version)" >&2; exit 1; }

mapfile -t files < <(find include src tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
case "${1:-}" in
  --fix) "$tool" -i "${files[@]}" ;;
  "") "$tool" --dry-run -Werror "${files[@]}" ||
    { echo "check_format: 'scripts/check_format.sh --fix' puts it right" >&2; exit 1; } ;;
  *) echo "usage: scripts/check_format.sh [--fix]" >&2; exit 2 ;;
esac
echo "check_format: ${#files[@]} files"
