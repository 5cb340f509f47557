#!/usr/bin/env bash
# usage: check_layers_test.sh REPOSITORY
# Plants one violation at a time in a copy of the sources: check_layers.sh must pass the clean copy
# and point at each planted line.
set -euo pipefail
repository=$1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$repository"/{include,src,CMakeLists.txt} "$copy"
failures=0

check() { "$repository/scripts/check_layers.sh" "$copy" 2>&1; }

output=$(check) || { echo "the clean copy does not pass:"; echo "$output"; exit 1; }

# plant FILE TEXT: the check fails and names FILE at the line of TEXT
plant() {
  local file=$1 text=$2 output code=0 line
  mkdir -p "$copy/$(dirname "$file")"
  printf '// planted\n%s\n' "$text" >"$copy/$file"
  line=$(grep -nF -- "${text##*$'\n'}" "$copy/$file" | tail -n 1 | cut -d: -f1)
  output=$(check) || code=$?
  rm "$copy/$file"
  if [[ $code -ne 1 ]] || ! grep -qF "$file:$line:" <<<"$output"; then
    echo "not caught (exit $code): $file: $text"
    echo "$output"
    failures=1
  fi
}
# allow FILE TEXT: the check passes
allow() {
  local file=$1 text=$2 output
  mkdir -p "$copy/$(dirname "$file")"
  printf '// planted\n%s\n' "$text" >"$copy/$file"
  output=$(check) || { echo "wrongly refused: $file: $text"; echo "$output"; failures=1; }
  rm "$copy/$file"
}

# every arrow that the design leaves out, one of each layer
plant src/core/planted.cpp '#include "copus/parallel/layout.h"'
plant include/copus/parallel/planted.h '#include "copus/backend/backend.h"'
plant src/plan/planted.cpp '#include "copus/backend/backend.h"'
plant src/plan/planted.cpp '#include "copus/comm/mesh.h"'
plant src/plan/planted.cpp '#include <fstream>'
plant src/parallel/planted.cpp '#include <chrono>'
plant src/backend/cpu/planted.cpp '#include "copus/parallel/layout.h"'
plant src/comm/planted.cpp '#include "copus/model/stage.h"'
plant src/data/planted.cpp '#include "copus/backend/buffer.h"'
plant src/model/planted.cpp '#include "copus/state/train_state.h"'
plant src/model/planted.cpp '  #  include "copus/plan/goodput.h"'
plant src/state/planted.cpp '#include "copus/model/stage.h"'
plant src/train/planted.cpp '#include "cli/arguments.h"'
plant src/train/planted.cpp '#include "../model/block.h"'
plant src/train/planted.cpp '#include "copus/utilities/misc.h"'
plant src/utilities/planted.cpp '#include "copus/utilities/misc.h"'
# the environment, the end of the process
plant src/train/planted.cpp 'auto x = std::getenv("HOME");'
plant src/train/planted.cpp 'void f() { exit(1); }'
plant src/core/planted.cpp 'if (bad) ::abort();'
plant src/core/planted.cpp '/* a
comment */ std::terminate();'
# switches and vendors
plant src/train/planted.cpp '#ifdef COPUS_FAST'
plant src/train/planted.cpp '#if defined(X)'
plant src/train/planted.cpp '# elif X'
plant src/model/planted.cpp '#include <cuda_runtime_api.h>'
plant src/train/planted.cpp '#include <mpi.h>'
plant src/model/planted.cpp '#include <oneapi/dnnl/dnnl.hpp>'

allow src/train/planted.cpp '#include "copus/plan/goodput.h"'
allow src/cli/planted.cpp 'auto x = std::getenv("HOME");'
allow src/comm/planted.cpp 'communicator->abort(); communicator.abort(); void Thread::abort() {} int exit_code(3);'
allow src/train/planted.cpp '// #if exit(1)'
allow src/train/planted.cpp 'auto s = "call exit(1)"; /* getenv("X") */ char c = '"'\"'"';'
allow src/comm/mpi_planted.cpp '#include <mpi.h>'
allow src/backend/cuda/planted.cu '#include <cuda_runtime_api.h>'

touch "$copy/notes.txt"
output=$(check) && { echo "a stray file in the root was not caught"; failures=1; }
grep -q '^notes.txt: ' <<<"$output" || { echo "the stray file was not named"; failures=1; }
exit $failures
