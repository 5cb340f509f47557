#!/usr/bin/env bash
# usage: scripts/fuzz.sh TARGET SECONDS [LIBFUZZER_OPTION...]
# Builds one coverage-guided fuzzer (clang's libFuzzer; address and undefined-behaviour sanitizers)
# and runs it for so long. TARGET: safetensors, shard, config, hf_config, hf_index, state, or all
# (each for SECONDS). Exits 1 when an input crashes, hangs or asks for more memory than any file of
# its size should; the input stands in build-fuzz/crashes. Put it into tests/fuzz/corpus/TARGET, where
# the test suite runs it from then on, and mend what it shows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
targets=(safetensors shard config hf_config hf_index state)
usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[[ $# -ge 2 && $2 =~ ^[0-9]+$ ]] || usage
target=$1 seconds=$2
shift 2
if [[ $target != all ]]; then
  [[ " ${targets[*]} " == *" $target "* ]] || usage
  targets=("$target")
fi
command -v clang++ >/dev/null || { echo "fuzz: no clang++ here; on Debian: apt-get install clang" >&2; exit 2; }

build=build-fuzz
scripts/build.sh $build fuzz "${targets[@]/#/fuzz_}"
mkdir -p $build/crashes

# Words that a mutation would not find by itself: the keys that the parsers look for.
words_of() {
  case $1 in
    config) grep -oE '^\| `[a-z_.]+`' docs/configuration.md | tr -d '|` ' | tr . '\n' ;;
    hf_config) grep -ohE '"[a-zA-Z0-9_]+"' src/state/hf_config.cpp | tr -d '"' ;;
    state) grep -ohE '"[a-z0-9_]+"' src/state/checkpoint_state.cpp src/state/checkpoint_files.cpp | tr -d '"' ;;
    hf_index) printf '%s\n' weight_map a b model.norm.weight lm_head.weight model.embed_tokens.weight ;;
    safetensors) printf '%s\n' __metadata__ dtype shape data_offsets F32 F16 BF16 U8 I64 ;;
    shard) printf '%s\n' COPUSTOK bytes ;;
  esac | sort -u | sed 's/.*/"&"/'
}
# Real files beside the seeds of tests/fuzz/corpus.
more_seeds() {
  case $1 in
    config) for f in configs/*.json; do { printf p; cat "$f"; } >"$2/${f##*/}"; done ;;
    hf_config) for m in tests/golden/*/; do cp "$m/config.json" "$2/$(basename "$m").json"; done ;;
  esac
}

failed=0
# Not on a disk: each input becomes a file.
TMPDIR=$([[ -w /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")
export TMPDIR
# Freed memory is kept from reuse for a while, not for hundreds of megabytes: touching new pages is slow.
export ASAN_OPTIONS=quarantine_size_mb=16
for name in "${targets[@]}"; do
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  cp tests/fuzz/corpus/"$name"/* "$corpus"
  more_seeds "$name" "$corpus"
  words_of "$name" >"$build/$name.dict"
  echo "== $name, $seconds s"
  # An input has at most 64 KiB: nothing it says justifies an allocation of 64 MiB.
  "$build/tests/fuzz/libfuzzer/fuzz_$name" "$corpus" -max_total_time="$seconds" -timeout=10 \
    -max_len=65536 -rss_limit_mb=2048 -malloc_limit_mb=64 -dict="$build/$name.dict" -print_final_stats=1 \
    -artifact_prefix="$build/crashes/$name-" -verbosity=1 "$@" >"$build/$name.log" 2>&1 || failed=1
  grep -E 'SUMMARY|Test unit written' "$build/$name.log" || true
  grep DONE "$build/$name.log" || true
done
[[ $failed -eq 0 ]] || { echo "fuzz: an input failed; the logs are $build/*.log" >&2; exit 1; }
