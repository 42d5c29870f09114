#!/usr/bin/env bash
# wheel.sh: builds the Python package (crates/python) at target/wheels/meantime-*.whl, for CPython
# 3.11 and later. maturin comes from PATH, or into a virtual environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)

maturin=$(command -v maturin || true)
if [ -z "$maturin" ]; then
    tools=$target/maturin
    maturin=$tools/bin/maturin
    if [ ! -x "$maturin" ]; then
        echo "wheel: installing maturin into $tools"
        python3 -m venv "$tools" || {
            echo "wheel: python3 with venv is needed (Debian: apt-get install python3-venv)" >&2
            exit 1
        }
        "$tools/bin/pip" --quiet --disable-pip-version-check install 'maturin>=1.9.4,<2'
    fi
fi
rm -f "$target"/wheels/meantime-*.whl
# Which glibc it needs is in its name: manylinux_2_X is glibc 2.X or later.
(cd crates/python &&
    "$maturin" build --release --locked --quiet --target-dir "$target" --out "$target/wheels")
wheels=("$target"/wheels/meantime-*.whl)
echo "wheel: $(du -h "${wheels[0]}" | sed 's/\t/ /')"
