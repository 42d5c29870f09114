#!/usr/bin/env bash
# fio-examples.sh: fetches the example job files of fio 3.33, which Debian has in fio's source package only.
#
# Prints the directory, target/fio-3.33/examples. What is there is kept. Nothing is installed, root is not needed. The package
# mirror is the one this machine is configured for, else Debian's own; the package is verified by apt as ever.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
dir=$PWD/target/fio-3.33
if [ -d "$dir/examples" ]; then
    echo "$dir/examples"
    exit 0
fi
die() { echo "fio-examples: $*" >&2; exit 1; }
command -v apt-get >/dev/null || die "no apt-get here: put fio 3.33's examples into $dir/examples"

rm -rf "$dir.new"
mkdir -p "$dir.new/lists/partial" "$dir.new/source"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
options=check-valid-until=no
[ ! -e $keyring ] || options="$options signed-by=$keyring"
apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | grep -E '^[^ ]*/debian/? [a-z]+$' |
    while read -r uri _; do echo "deb-src [$options] $uri $suite main"; done | sort -u >"$dir.new/sources.list" || true
[ -s "$dir.new/sources.list" ] || echo "deb-src [$options] http://deb.debian.org/debian $suite main" >"$dir.new/sources.list"

aptopts=(
    -qq -o Dir::Etc::sourcelist="$dir.new/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$dir.new/lists"
    -o Dir::Cache="$dir.new" -o APT::Sandbox::User=root -o Acquire::Languages=none
)
log=$dir.new/log
echo "fio-examples: fetching fio's source package ($suite)" >&2
if ! { apt-get "${aptopts[@]}" update && cd "$dir.new/source" && apt-get "${aptopts[@]}" source --download-only fio=3.33-3; } \
    >"$log" 2>&1; then
    cat "$log" >&2
    die "cannot fetch fio's source package from the package mirror of this machine"
fi
tar -x -C "$dir.new" --strip-components 1 --wildcards -f "$dir.new"/source/fio_3.33.orig.tar.gz 'fio-3.33/examples/*.fio'
rm -rf "$dir.new/lists" "$dir.new/source"
mv "$dir.new" "$dir"
echo "$dir/examples"
