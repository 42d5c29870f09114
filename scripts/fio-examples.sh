#!/usr/bin/env bash
# fio-examples.sh: fetches the example job files of fio 3.33, which Debian has only in fio's source
# package. Prints their directory, target/fio-3.33/examples. What is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD/target/fio-3.33
if [ ! -d "$dir/examples" ]; then
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    echo "fio-examples: fetching fio's source package" >&2
    scripts/debian-source.sh fio=3.33-3 bookworm "$new/source"
    tar -x -C "$new" --strip-components 1 --wildcards -f "$new"/source/fio_3.33.orig.tar.gz 'fio-3.33/examples/*.fio'
    mkdir -p "$dir"
    mv "$new/examples" "$dir/"
fi
echo "$dir/examples"
