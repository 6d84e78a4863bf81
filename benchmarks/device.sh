#!/usr/bin/env bash
# The benchmarks on a machine with an NVIDIA GPU, within 8 minutes: answers first, then one table.
# `device.sh --quick` runs small sizes, on any machine. Results go to $OUT, or to benchmarks/results; $PYTHON is the
# Python to use. Where fcjax is not installed in it, a copy is, for this run only (its requirements must be there).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
export PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
if ! "$python" -c 'import fcjax.kernels' 2>/dev/null; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    "$python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder" .
    export PYTHONPATH="$folder"
fi

sizes=(--budget 340 --runs 3 --seconds 1 --most 200000 --check-width 12 --proofs 8 --widest 20)
if [[ " $* " == *" --quick "* ]]; then
    sizes=()
fi
timeout 475 "$python" benchmarks/bench.py "${sizes[@]}" --out "${OUT:-benchmarks/results}" "$@"
