#!/usr/bin/env bash
# fio-examples.sh: fetches fio's example job files, which Debian has only in fio's source package.
# Prints their directory, target/fio-VERSION/examples. What is there is kept.
#
# The version is 3.41, which docs/fio.md lists. Suites move on: if none of the mirror's has it any
# more, it is 3.33, which bookworm keeps.
set -euo pipefail
cd "$(dirname "$0")/.."

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

# fetch VERSION SUITE...: the examples of that version, from the first suite that has it.
fetch() {
    local version=$1 source=$new/source/fio_$1.orig.tar.gz suite
    shift
    for suite in "$@"; do
        scripts/debian-source.sh fio "$suite" "$new/source" 2>>"$new/log" || true
        [ ! -e "$source" ] || break
    done
    [ -e "$source" ] || return 1
    tar -x -C "$new" --strip-components 1 --wildcards -f "$source" "fio-$version/examples/*.fio"
    mkdir -p "target/fio-$version"
    mv "$new/examples" "target/fio-$version/"
}

for version in 3.41 3.33; do
    [ ! -d "target/fio-$version/examples" ] || break
    echo "fio-examples: fetching fio $version's source package" >&2
    case $version in
        3.41) ! fetch $version trixie forky sid || break ;;
        3.33) ! fetch $version bookworm || break ;;
    esac
done
[ -d "target/fio-$version/examples" ] || {
    cat "$new/log" >&2
    echo "fio-examples: the package mirror has neither fio 3.41 nor 3.33;" \
        "unpack the examples/*.fio of either to target/fio-VERSION/examples by hand" >&2
    exit 1
}
echo "$PWD/target/fio-$version/examples"
