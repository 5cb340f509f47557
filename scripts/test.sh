#!/usr/bin/env bash
# Sets up, builds everything and runs every test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh build cpu -DCOPUS_TESTS=ON
# Two tests at a time share the cores: a waiting thread must give its core away.
export OMP_WAIT_POLICY=passive
ctest --test-dir build --output-on-failure --no-tests=error -j2
