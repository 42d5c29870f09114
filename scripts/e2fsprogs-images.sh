#!/usr/bin/env bash
# Fetches the broken file systems of e2fsprogs' own tests (Debian's source package) and unpacks them
# into target/e2fsprogs-images/, which the test ext4_broken reads. What is there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=trixie # 1.47.2
images=${CARGO_TARGET_DIR:-target}/e2fsprogs-images
[ -e "$images/complete" ] && exit

give_up() {
    echo "setup: no images of e2fsprogs' tests ($1): the test ext4_broken is skipped" >&2
    exit 1
}
for tool in tar gzip bzip2; do
    command -v "$tool" >/dev/null || give_up "no $tool here"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "setup: fetching the images of e2fsprogs' tests"
scripts/debian-source.sh e2fsprogs "$suite" "$work" || give_up "see above"
source=$(find "$work" -maxdepth 1 -name 'e2fsprogs_*.orig.tar.*' ! -name '*.asc')
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
