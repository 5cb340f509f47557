#!/usr/bin/env bash
# usage: scripts/check_layers.sh [ROOT]
# Holds the tree to its laws (docs/architecture.md), prints each offending line, and exits 1 if there
# is one: who may include whom; the environment and the process's end belong to src/cli; feature
# switches belong to core/hd.h; vendor headers stay behind their seam; what the root may hold.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

# layer: the layers whose headers it may include, besides its own
law='
core:
parallel: core
plan:     core parallel
backend:  core
comm:     core parallel backend
data:     core
model:    core parallel backend comm
state:    core parallel plan backend comm
train:    core parallel plan backend comm data model state
cli:      core parallel plan backend comm data model state train
'
# Layers that are pure: no file, clock, thread, device or random device.
pure='parallel plan'
impure_headers='^(fstream|filesystem|iostream|cstdio|chrono|ctime|thread|mutex|atomic|random|fcntl[.]h|unistd[.]h|sys/.*|omp[.]h)$'
# Headers of vendors, and the only folders that may include them.
vendors='
^(cuda|cublas|cudnn|curand|nvtx)|^cub/|^thrust/ src/backend/cuda/|src/comm/nccl
^nccl[.]h$                                      src/comm/nccl
^mpi[.]h$                                       src/comm/mpi
^(dnnl|oneapi/)                                 src/backend/cpu/
'
# Files that may hold a preprocessor condition, and why.
#   include/copus/core/hd.h   the one feature switch: __host__ __device__ under nvcc
conditions_allowed='include/copus/core/hd.h'
root_allowed='CMakeLists.txt cmake src include configs scripts tests docs LICENSE README.md .ci .clang-format .clang-tidy .gitignore'

offences=0
offend() { printf '%s\n' "$1"; offences=1; }

# ---- the root ----
# In a clone, what git knows or would add; elsewhere (an unpacked archive), what lies there.
if top=$(git rev-parse --show-toplevel 2>/dev/null) && [[ $top == "$(pwd -P)" ]]; then
  entries=$(git ls-files --cached --others --exclude-standard | cut -d/ -f1 | sort -u)
else
  entries=$(find . -mindepth 1 -maxdepth 1 ! -name .git ! -name 'build*' ! -name runs ! -name data -printf '%f\n' | sort)
fi
for entry in $entries; do
  [[ " $root_allowed " == *" $entry "* ]] || offend "$entry: the root holds only $root_allowed"
done

# ---- the sources ----
mapfile -t files < <(find include src -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
[[ ${#files[@]} -gt 0 ]] || { echo "check_layers: no sources in $PWD" >&2; exit 2; }

awk -v law="$law" -v pure="$pure" -v impure_headers="$impure_headers" -v vendors="$vendors" \
  -v conditions_allowed="$conditions_allowed" '
  function offend(why) { printf "%s:%d: %s\n    %s\n", FILENAME, FNR, why, $0; offences = 1 }

  # The line without string literals and comments; block comments are followed over lines.
  function code_of(line,    at, end) {
    if (in_comment) {
      end = index(line, "*/")
      if (!end) return ""
      line = substr(line, end + 2)
      in_comment = 0
    }
    gsub(/\\./, "", line)
    gsub(/\047"\047/, "0", line)
    gsub(/"[^"]*"/, "\"\"", line)
    sub(/\/\/.*/, "", line)
    while (at = index(line, "/*")) {
      end = index(substr(line, at + 2), "*/")
      if (!end) { in_comment = 1; return substr(line, 1, at - 1) }
      line = substr(line, 1, at - 1) " " substr(line, at + end + 3)
    }
    return line
  }

  function check_include(line,    header, target, i) {
    header = line
    sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", header)
    sub(/[>"].*/, "", header)
    if (header ~ /(^|\/)\.\.\//) offend("includes name a path from include/ or src/, without ..")
    if (layer in is_pure && header ~ impure_headers) offend(layer " is pure: no file, clock, thread or random device")
    for (i = 1; i <= vendor_count; ++i)
      if (header ~ vendor_header[i] && FILENAME !~ vendor_folder[i])
        offend("this header may be included in " vendor_folder[i] " alone")
    target = header
    sub(/^copus\//, "", target)
    sub(/\/.*/, "", target)
    if (target in is_layer && index(header, "/") && target != layer && !((layer, target) in may))
      offend(layer " may not include " target "; it sees:" sees[layer])
    if (header ~ /^copus\// && !(target in is_layer)) offend(target " is no layer")
  }

  BEGIN {
    rows = split(law, row, "\n")
    for (i = 1; i <= rows; ++i) {
      words = split(row[i], word, /[: ]+/)
      if (word[1] == "") continue
      is_layer[word[1]]
      for (j = 2; j <= words; ++j) if (word[j] != "") { may[word[1], word[j]]; sees[word[1]] = sees[word[1]] " " word[j] }
    }
    words = split(pure, word, " ")
    for (i = 1; i <= words; ++i) is_pure[word[i]]
    rows = split(vendors, row, "\n")
    for (i = 1; i <= rows; ++i)
      if (split(row[i], word, / +/) == 2) { vendor_header[++vendor_count] = word[1]; vendor_folder[vendor_count] = "^(" word[2] ")" }
    words = split(conditions_allowed, word, " ")
    for (i = 1; i <= words; ++i) may_switch[word[i]]
    ends = "(getenv|secure_getenv|setenv|unsetenv|putenv|exit|_exit|_Exit|quick_exit|abort|terminate)[ ]*\\("
  }
  FNR == 1 {
    in_comment = 0
    split(FILENAME, part, "/")
    layer = part[1] == "include" ? part[3] : part[2]
    if (!(layer in is_layer)) offend(layer " is no layer")
  }
  {
    code = code_of($0)
    if (code ~ /^[ \t]*#[ \t]*include/) check_include($0)
    else if (code ~ /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)([^a-z]|$)/ && !(FILENAME in may_switch))
      offend("preprocessor conditions live in include/copus/core/hd.h alone; let CMake choose a file")
    # Calls, with or without std::; not a method (x.abort), nor the declaration or definition of one.
    if (layer != "cli" && code !~ "(void|auto)[ ]+[A-Za-z_:]*" ends &&
        (code ~ "(^|[^A-Za-z0-9_.>:])(std::|::)?" ends || code ~ /(^|[^A-Za-z0-9_:])environ([^A-Za-z0-9_]|$)/))
      offend("only src/cli reads the environment or ends the process; throw, or hand the value in")
  }
  END { exit offences }
' "${files[@]}" || offences=1

[[ $offences -eq 0 ]] || { echo "check_layers: the lines above break the law of docs/architecture.md" >&2; exit 1; }
echo "check_layers: ${#files[@]} files hold to it"
