#!/usr/bin/env bash
# usage: scripts/compare_torch.sh COPUS PEER.py [ROUNDS] [PRECISION...]
# Copus and a PyTorch script in turn on the same cores: GPT-2 124M, T = 256, batches of 4 and 1.
# COPUS: the built binary. PEER.py: takes BATCH SEQ_LEN THREADS f32|bf16 STEPS and prints a line
# that ends in "N tokens/s". ROUNDS: 3 when not given; PRECISION: fp32 (when not given), bf16.
# Prints each round and the medians of both, with their ratio. Needs python3 with torch and the
# OpenMP variant of OpenBLAS (Debian: python3-torch, libopenblas0-openmp); installs nothing.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,8s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
copus=$1 peer=$2 rounds=${3:-3}
shift $(($# < 3 ? $# : 3))
precisions=("$@")
[[ ${#precisions[@]} -gt 0 ]] || precisions=(fp32)
seq_len=256 threads=$(nproc) steps=5

[[ -x $copus ]] || { echo "compare_torch: $copus is not a program" >&2; exit 2; }
[[ -r $peer ]] || { echo "compare_torch: $peer cannot be read" >&2; exit 2; }
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "compare_torch: ROUNDS '$rounds': a count from 1 up" >&2; exit 2; }
python3 -c 'import torch' 2>/dev/null ||
  { echo "compare_torch: python3 has no torch (Debian: apt-get install python3-torch)" >&2; exit 1; }
blas=$(find /usr/lib -path '*openblas-openmp*' -name 'libopenblas.so.0' 2>/dev/null | head -n 1)
[[ -n $blas ]] ||
  { echo "compare_torch: no OpenMP OpenBLAS (Debian: apt-get install libopenblas0-openmp)" >&2; exit 1; }

# Tokens/s of one run of Copus: the median of its steps.
run_copus() { # BATCH PRECISION
  local emulate=()
  [[ $2 == bf16 && ! $(grep -m1 '^flags' /proc/cpuinfo) == *avx512_bf16* ]] && emulate=(--emulate-bf16)
  "$copus" bench step --model gpt2-124m --batch "$1" --seq-len "$seq_len" --threads "$threads" \
    --precision "$2" "${emulate[@]}" --steps "$steps" --json |
    python3 -c 'import json, sys; print(round(json.load(sys.stdin)["tokens_per_second"]))'
}
# Of the peer: its best step, with the library, the allocator and the threads set up in its favour.
run_peer() { # BATCH PRECISION
  env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OMP_NUM_THREADS="$threads" LD_PRELOAD="$blas" \
    MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 \
    python3 "$peer" "$1" "$seq_len" "$threads" "${2/fp32/f32}" "$steps" |
    sed -n 's/.*[^0-9]\([0-9][0-9]*\) tokens\/s.*/\1/p'
}
median() { sort -n | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { print a / b }'; }

printf '%-10s%6s%7s%10s%10s%8s\n' precision batch round copus torch ratio
for precision in "${precisions[@]}"; do
  for batch in 4 1; do
    ours=() theirs=()
    for ((round = 1; round <= rounds; ++round)); do
      ours+=("$(run_copus "$batch" "$precision")")
      theirs+=("$(run_peer "$batch" "$precision")")
      printf '%-10s%6d%7d%10d%10d%8.2f\n' "$precision" "$batch" "$round" "${ours[-1]}" \
        "${theirs[-1]}" "$(ratio "${ours[-1]}" "${theirs[-1]}")"
    done
    a=$(printf '%s\n' "${ours[@]}" | median) b=$(printf '%s\n' "${theirs[@]}" | median)
    printf '%-10s%6d%7s%10.0f%10.0f%8.2f\n' "$precision" "$batch" median "$a" "$b" \
      "$(ratio "$a" "$b")"
  done
done
