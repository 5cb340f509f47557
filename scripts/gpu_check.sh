#!/usr/bin/env bash
# usage: scripts/gpu_check.sh [-DNAME=VALUE...]
# Everything that can be said about the CUDA backend on one machine with a GPU, within eight minutes: builds,
# runs the operations and the reference models on it, then times it. Needs nvcc, CMake, ninja and a C++ compiler;
# other libraries come from .gpu-deps (scripts/gpu_deps.sh) where it is there. Without a GPU it compiles
# everything and says what it skipped.
# $OUT (gpu-check) gets report.json, report.txt and a log of each stage; $BUILD (build-gpu-check) is built in, by $JOBS at a time.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
out=${OUT:-gpu-check}
build=${BUILD:-build-gpu-check}
[[ $build == /* ]] || build=$PWD/$build
limit=470  # seconds for everything
mkdir -p "$out"
: >"$out/stages.txt"
failed=0
skipped=()

left() { echo $((limit - SECONDS)); }

# stage NAME SECONDS COMMAND...: runs it under a time limit, its output in NAME.log, one line here and in the report.
stage() {
  local name=$1 seconds=$2 start=$SECONDS code=0 state=ok
  shift 2
  local most=$(($(left) < seconds ? $(left) : seconds))
  if ((most < 2)); then
    state="not run, no time left"
  else
    timeout "$most" "$@" >"$out/$name.log" 2>&1 || code=$?
    if ((code == 124)); then state="out of time after $most s"; elif ((code)); then state="FAILED ($code)"; fi
  fi
  if [[ $state != ok && $name != sanitizer && $name != torch-* ]]; then failed=1; fi
  printf '%-24s %4d s  %s\n' "$name" $((SECONDS - start)) "$state" | tee -a "$out/stages.txt"
  if ((code)); then
    { grep -nE 'error|FAILED|Error' "$out/$name.log" | head -12; echo ...; tail -25 "$out/$name.log"; } | cut -c1-300
  fi
  [[ $state == ok ]]
}

skip() {
  printf '%-24s         SKIPPED: %s\n' "$1" "$2" | tee -a "$out/stages.txt"
  skipped+=("$1")
}

# find_library HEADER LIBRARY: the folder above an include/HEADER that has the library too: the toolkit's, or that of a
# Python package.
find_library() {
  local header root
  while read -r header; do
    root=${header%/include/"$1"}
    if compgen -G "$root/lib*/$2.so*" >/dev/null; then
      echo "$root"
      return
    fi
  done < <(ls -d /usr/local/cuda*/include/"$1" /usr/local/cuda*/targets/*/include/"$1" 2>/dev/null
    timeout 20 find /usr /opt -path "*/include/$1" 2>/dev/null)
}

build_options() {
  # Where there is no GPU to build for, for both kinds that CI compiles.
  printf '%s\n' -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCOPUS_CUDA=ON -DCOPUS_ONEDNN=OFF -DCOPUS_MPI=OFF \
    -DCOPUS_WERROR=OFF "-DCOPUS_CUDA_ARCHITECTURES=$([[ -n $gpu ]] && echo 90 || echo '80;90')"
  if [[ -d .gpu-deps ]]; then printf '%s\n' "-DCOPUS_DEPS=$PWD/.gpu-deps"; fi
  local root name
  root=$(find_library cublasLt.h libcublasLt)
  if [[ -n $root ]]; then printf '%s\n' "-DCOPUS_CUBLAS_ROOT=$root"; fi
  for name in NCCL CUDNN; do
    root=$(find_library "${name,,}.h" "lib${name,,}")
    if [[ -n $root ]]; then printf '%s\n' "-D${name}_ROOT=$root"; fi
  done
}

machine() {
  date -u +%FT%TZ
  uname -srm
  nproc
  g++ --version | head -1
  cmake --version | head -1
  PATH=$PATH:/usr/local/cuda/bin nvcc --version | tail -2
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
}

write_report() {
  {
    echo "{"
    printf '  "date": "%s",\n  "commit": "%s",\n' "$(date -u +%FT%TZ)" "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
    printf '  "gpu": "%s",\n  "seconds": %d,\n  "failed": %d,\n  "stages": [\n' "$gpu" "$SECONDS" "$failed"
    sed -E 's/"/\x27/g; s/ +$//; s/^([^ ]+) +(([0-9]+) s )? *(.*)$/    {"name": "\1", "seconds": \3, "state": "\4"},/; s/"seconds": ,/"seconds": 0,/; $ s/,$//' "$out/stages.txt"
    echo "  ],"
    echo '  "benchmarks": ['
    local separator="" file
    for file in "$out"/bench-*.json; do
      [[ -s $file ]] || continue
      printf '%s' "$separator"
      cat "$file"
      separator=","
    done
    echo "  ]"
    echo "}"
  } >"$out/report.json"
}

# bench NAME ARGUMENTS...: a benchmark as JSON, and as the table that people read.
bench() {
  local name=$1
  shift
  # shellcheck disable=SC2016  # for the inner shell
  stage "bench-$name" 90 bash -c 'out=$1; shift; "$@" --json >"$out.json.part" && mv "$out.json.part" "$out.json"' \
    _ "$out/bench-$name" "$build/copus" bench "$@"
}

machine >"$out/machine.txt" 2>&1
cat "$out/machine.txt"
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
# A dry run has no GPU to give back, and perhaps few processors.
build_limit=240
if [[ -z $gpu ]]; then limit=7200 build_limit=7000; fi
mapfile -t options < <(build_options)
if stage configure 90 cmake -G Ninja -S . -B "$build" "${options[@]}" "$@"; then
  grep -- '-- COPUS_' "$out/configure.log"
  # copus first: with it alone there are still numbers to be had.
  stage build "$build_limit" cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target copus gpu_tests
fi
with_nccl() { [[ -x $build/tests/test_nccl ]]; }
with_torch() { python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; }

# torch MODEL BATCH SEQ_LEN MICRO STEPS: the same steps in PyTorch.
torch() {
  # shellcheck disable=SC2016  # for the inner shell
  stage "torch-$1" 75 bash -c 'out=$1; shift; "$@" >"$out.json.part" && mv "$out.json.part" "$out.json"' \
    _ "$out/bench-torch-$1" python3 scripts/torch_gpu_step.py "$@"
}

# two_processes: ranks that know each other by a file alone, over NCCL.
two_processes() {
  local folder rank pids=() code=0
  folder=$(mktemp -d)
  for rank in 0 1; do
    (cd "$folder" && RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank COPUS_JOB=check exec "$build/copus" bench comm \
      --device cuda --transport nccl --repeats 1) &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[rank]}" || code=1; done
  if [[ -n $(ls -A "$folder") ]]; then echo "left behind: $(ls -A "$folder")"; code=1; fi
  rm -rf "$folder"
  return "$code"
}
export -f two_processes
export build

# cuDNN's own word on our graphs, for GPUs that need not be here.
cudnn_graphs() {
  if [[ -x $build/tests/test_cudnn ]]; then
    stage cudnn-graphs 60 env "LD_LIBRARY_PATH=$build/tests/stub:${LD_LIBRARY_PATH:-}" "$build/tests/test_cudnn"
  else
    skip cudnn-graphs "no cuDNN here"
  fi
}

if [[ ! -x $build/copus ]]; then
  skip all "nothing was built"
elif [[ -z $gpu ]]; then
  gpu=none
  # The tests say for themselves what they skip and why.
  stage gpu-tests 60 "$build/tests/test_gpu"
  if with_nccl; then stage nccl-tests 30 "$build/tests/test_nccl"; else skip nccl-tests "no NCCL here"; fi
  cudnn_graphs
  grep -h SKIPPED "$out"/*-tests.log | sort | uniq -c
  for name in op-parity references ranks bf16-ranks ring noise-scale nccl nccl-processes sanitizer bench-step torch \
    bench-ops bench-comm bench-switch; do
    skip "$name" "no GPU"
  done
else
  stage adamw-bits 30 "$build/tests/test_cuda"
  cudnn_graphs
  stage op-parity 100 "$build/tests/test_gpu" "[gpu]~[reference]~[ranks]" -d yes
  stage references 60 "$build/tests/test_gpu" "[reference]" -d yes
  # Ranks as threads, their tensors staged through the host.
  stage ranks 60 "$build/tests/test_gpu" "4 and 8 ranks*" -d yes
  stage bf16-ranks 60 "$build/tests/test_gpu" "bf16 on one GPU*" -d yes
  stage ring 40 "$build/tests/test_gpu" "a ring of switches*" -d yes
  stage noise-scale 20 "$build/tests/test_gpu" "the noise scale*" -d yes
  if with_nccl; then stage nccl 40 "$build/tests/test_nccl"; else skip nccl "no NCCL here"; fi
  if with_nccl && ((gpus > 1)); then
    stage nccl-processes 60 bash -c two_processes
  else
    skip nccl-processes "needs NCCL and two GPUs"
  fi
  bench gpt2-124m step --device cuda --precision bf16 --model gpt2-124m --batch 32 --seq-len 1024 --micro 16 --steps 10
  bench gpt2-124m-fp32 step --device cuda --model gpt2-124m --batch 8 --seq-len 1024 --steps 5
  bench llama-1.2b step --device cuda --precision bf16 --model llama-3.2-1b --batch 4 --seq-len 2048 --micro 2 --steps 5
  bench qwen2.5-1.5b step --device cuda --precision bf16 --model qwen2.5-1.5b --batch 8 --seq-len 1024 --micro 4 --steps 5
  if with_torch; then
    torch llama-3.2-1b 4 2048 2 5
    torch gpt2-124m 32 1024 16 10
    torch qwen2.5-1.5b 8 1024 4 5
  else
    skip torch "no PyTorch with CUDA here"
  fi
  bench ops ops --device cuda
  bench comm-staged comm --device cuda --ranks 2 --repeats 3
  bench switch-staged switch --device cuda --ranks 4 --model gpt2-124m --batch 8 --repeats 1
  if command -v compute-sanitizer >/dev/null; then
    # Memory errors of every operation; it may well run out of time, which is no failure.
    stage sanitizer 90 compute-sanitizer --error-exitcode 9 "$build/tests/test_gpu" \
      "no operation on CUDA writes outside its outputs"
  else
    skip sanitizer "no compute-sanitizer here"
  fi
fi

write_report
{
  cat "$out/machine.txt" "$out/stages.txt"
  for file in "$out"/bench-*.json; do
    [[ -s $file ]] || continue
    echo "$file"
    if [[ $file == */bench-torch-* ]]; then
      cat "$file"
      continue
    fi
    # One line a part: name, milliseconds, rate and limit.
    grep -E '"(tokens_per_second|step_seconds|issue_seconds|mfu|name|seconds|rate|limit|share)"' "$file" | tr -d ' \n' |
      sed 's/"limit"/\n  "limit"/g'
    echo
  done
} >"$out/report.txt"
echo "report: $out/report.json, $out/report.txt; $SECONDS s"
exit "$failed"
