#!/usr/bin/env bash
# usage: scripts/kernel_resources.sh BUILD [WORD...]
# What ptxas gives each CUDA kernel of the sources whose names hold a WORD (all: minutes): registers, shared memory and
# spills, by architecture, as compiled in the build folder BUILD. Exits 1 where one spills.
set -euo pipefail
[[ $# -ge 1 && -f $1/compile_commands.json ]] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
build=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The commands by which the sources were compiled, writing elsewhere.
commands() {
  grep -o '"command": ".*[.]cu\.o.*"' "$build/compile_commands.json" | sed -E 's/^"command": "//; s/"$//; s/\\\\"/"/g' |
    sed -E "s| -o [^ ]+| -o $scratch/kernel.o|"
}

spilled=0
printf '%-10s %9s %8s %7s  %s\n' target registers "shared B" "spill B" kernel
while read -r command; do
  source=$(grep -oE '[^ ]+[.]cu( |$)' <<<"$command" | head -1)
  wanted=$([[ $# -eq 0 ]] && echo yes || true)
  for word in "$@"; do if [[ ${source##*/} == *$word* ]]; then wanted=yes; fi; done
  [[ -n $wanted ]] || continue
  # A spill is told here, by the table.
  command=${command//-Xptxas=-warn-spills,-Werror/}
  (cd "$build" && bash -c "$command -Xptxas=-v") >"$scratch/report" 2>&1 || { cat "$scratch/report" >&2; exit 1; }
  c++filt <"$scratch/report" | awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; target = part[4] }
    /spill stores/ { for (i = 2; i <= NF; ++i) if ($i == "spill") { spill = $(i - 2); break } }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
      gsub(/\(anonymous namespace\)::|copus::cuda::|copus::|void /, "", kernel); sub(/\(.*/, "", kernel)
      printf "%-10s %9d %8d %7d  %s\n", target, registers, shared, spill, kernel
      if (spill > 0) bad = 1
    }
    END { exit bad }' || spilled=1
done < <(commands)
exit "$spilled"
