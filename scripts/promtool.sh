#!/usr/bin/env bash
# Fetches Debian's promtool into target/tools/bin, for the tests of metrics: the program alone, of a
# package of 100 MB. Nothing is installed, and root is not needed.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${CARGO_TARGET_DIR:-target}/tools/bin
if command -v promtool >/dev/null || [ -x "$bin/promtool" ]; then exit 0; fi
command -v apt-get >/dev/null || { echo "promtool: no apt-get here: its check is left out" >&2; exit 0; }
mkdir -p "$bin"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "promtool: fetching the package prometheus"
if (cd "$scratch" && apt-get -qq -o APT::Sandbox::User=root download prometheus); then
    dpkg-deb --fsys-tarfile "$scratch"/prometheus_*.deb | tar -x -C "$scratch" ./usr/bin/promtool
    mv "$scratch/usr/bin/promtool" "$bin/promtool"
else
    echo "promtool: it cannot be fetched: its check is left out" >&2
fi
