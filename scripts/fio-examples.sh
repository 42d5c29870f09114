#!/usr/bin/env bash
# fio-examples.sh: fetches the example job files of fio 3.41, which Debian has only in fio's source
# package. Prints their directory, target/fio-3.41/examples. What is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.41
dir=$PWD/target/fio-$version
if [ ! -d "$dir/examples" ]; then
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    echo "fio-examples: fetching fio's source package" >&2
    source=$new/source/fio_$version.orig.tar.gz
    # Suites move on: the version is in whichever has it now.
    for suite in trixie forky sid; do
        scripts/debian-source.sh fio "$suite" "$new/source" 2>>"$new/log" || true
        [ ! -e "$source" ] || break
    done
    [ -e "$source" ] || {
        cat "$new/log" >&2
        echo "fio-examples: no suite of the package mirror has fio $version (now: $(ls "$new/source"));" \
            "unpack its examples/*.fio to $dir/examples by hand" >&2
        exit 1
    }
    tar -x -C "$new" --strip-components 1 --wildcards -f "$source" "fio-$version/examples/*.fio"
    mkdir -p "$dir"
    mv "$new/examples" "$dir/"
fi
echo "$dir/examples"
