#!/usr/bin/env bash
# test-python.sh [pytest's arguments]: installs the wheel, and what its tests need, into a virtual
# environment, and runs them. MEANTIME_COMMAND names the command if it is not in target/release.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/test-python
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check install "$@"; }
pip pytest numpy fsspec pandas pandas-stubs pyarrow duckdb mypy
pip --force-reinstall --no-deps "$target"/wheels/meantime-*.whl
MEANTIME_COMMAND=$(realpath "${MEANTIME_COMMAND:-$target/release/meantime}")
export MEANTIME_COMMAND
exec "$venv/bin/python" -m pytest crates/python -q "$@"
