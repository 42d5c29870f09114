#!/usr/bin/env bash
# Fetches the broken file systems of e2fsprogs' own tests (Debian's source package) and unpacks them into target/e2fsprogs-images/, which the test ext4_broken
# reads. Nothing is done if they are there. Needs no root: apt is asked with lists and sources of this script's own.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=trixie # 1.47.2
images=${CARGO_TARGET_DIR:-target}/e2fsprogs-images
[ -e "$images/complete" ] && exit

give_up() {
    echo "setup: no images of e2fsprogs' tests ($1): the test ext4_broken is skipped" >&2
    exit 1
}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || give_up "no $keyring; install debian-archive-keyring"
for tool in apt-get tar gzip bzip2; do
    command -v "$tool" >/dev/null || give_up "no $tool here"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,cache}/partial
echo "deb-src [signed-by=$keyring] http://deb.debian.org/debian $suite main" >"$work/sources.list"
apt_get() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root "$@"
}
echo "setup: fetching the images of e2fsprogs' tests"
apt_get update >"$work/log" 2>&1 || give_up "$(tail -n 1 "$work/log")"
# apt checks what it fetches against signed sums; where there is no detached signature any more, the rest will do.
(cd "$work" && apt_get source --download-only e2fsprogs) >"$work/log" 2>&1 || true
source=$(find "$work" -maxdepth 1 -name 'e2fsprogs_*.orig.tar.*' ! -name '*.asc')
[ -n "$source" ] || give_up "$(tail -n 1 "$work/log")"
tar -xf "$source" -C "$work" --wildcards '*/tests/*/image.gz' '*/tests/*/image.bz2'

rm -rf "$images"
mkdir -p "$images"
for packed in "$work"/*/tests/*/image.*; do
    test=$(basename "$(dirname "$packed")")
    case $packed in *.gz) unpack=gzip ;; *) unpack=bzip2 ;; esac
    "$unpack" -dc "$packed" >"$work/image"
    # Most of it is zeroes.
    cp --sparse=always "$work/image" "$images/$test.img"
done
touch "$images/complete"
echo "setup: $(find "$images" -name '*.img' | wc -l) images in $images"
