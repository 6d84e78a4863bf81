#!/usr/bin/env bash
# The benchmarks on a machine with an NVIDIA GPU, within 8 minutes: answers first, then one table.
# `device.sh --quick` runs small sizes, on any machine. Results go to $OUT, or to benchmarks/results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
out=${OUT:-benchmarks/results}
export PYTHONSAFEPATH=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder" .
export PYTHONPATH="$folder"

"$python" -c 'import jax; print("device:", jax.devices()[0].device_kind, "x", jax.local_device_count())'
timeout 475 "$python" benchmarks/bench.py --budget 360 --runs 3 --seconds 1 --most 200000 \
    --check-width 12 --proofs 8 --widest 20 --out "$out" "$@"
