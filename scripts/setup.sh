#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the quick start use. Run again it does
# nothing, silently and without a network. --dev adds what the format check and the linter use.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache
  libdnnl-dev       # oneDNN: matrix products on the CPU
  libopenmpi-dev openmpi-bin  # ranks as processes
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libxxhash-dev
  catch2            # tests
  bible-kjv         # 4.4 MB of public-domain text for the quick start
  bible-kjv-text
)
for option in "$@"; do
  case "$option" in
    --dev) packages+=(clang-format clang-tidy python3) ;;
    -h | --help) echo "usage: scripts/setup.sh [--dev]   (--dev: also clang-format and clang-tidy)"; exit 0 ;;
    *) echo "setup: unknown option '$option'; --dev is the only one" >&2; exit 2 ;;
  esac
done

fail() { echo "setup: $*" >&2; exit 1; }

command -v dpkg-query >/dev/null ||
  fail "this script installs Debian packages, and here is no dpkg. By your own means install: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || fail "not root, and no sudo here. As root run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Quiet while it works; the whole of apt's output when it does not. The lock may be another apt's.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
    >>"$log" 2>&1 </dev/null || { cat "$log" >&2; fail "apt-get $1 failed (its output is above)"; }
}
echo "setup: installing ${missing[*]}"
apt update
apt install -y --no-install-recommends "${missing[@]}"
