#!/usr/bin/env bash
# component.sh NAME COMMAND...: runs COMMAND if the toolchain has component NAME (clippy, rustfmt).
# Without it this is an error in CI, and a loud line elsewhere: Debian's own compiler packages come
# without.
set -euo pipefail
name=$1
shift
tool=cargo-fmt
[ "$name" = clippy ] && tool=cargo-clippy
if ! command -v "$tool" >/dev/null; then
    if command -v rustup >/dev/null && rustup component add "$name" >/dev/null 2>&1; then
        echo "check: installed $name"
    elif [ "${CI:-}" = true ]; then
        echo "check: $name is not installed" >&2
        exit 1
    else
        echo "check: $name is not installed: SKIPPED '$*'" >&2
        exit 0
    fi
fi
exec "$@"
