#!/usr/bin/env bash
# A GPT whose entries have 256 bytes: which tools see its partitions.
#
# UEFI 2.10, section 5.3.2, permits entries of 128 × 2^n bytes, and says how large they are in the
# header. The table that is made here has both headers and both arrays, with correct checksums, and
# two partitions. A reader might expect that tools of one package agree. Seen, with Debian 12's
# packages (the versions are below):
#
#   sfdisk --dump, fdisk -l   (libfdisk)      both partitions
#   parted print              (libparted)     both partitions
#   blkid -p                  (libblkid)      PTTYPE="PMBR": the protective MBR, and no GPT
#   partx --show              (libblkid)      nothing, exit status 0
#   sgdisk --print            (gdisk)         warns that it supports 128 bytes only, then shows an
#                                             empty table "in memory", exit status 0
#
# sfdisk, blkid and partx come from one source package, util-linux.
#
# Needs apt-get (Debian 12), dpkg-deb and python3. Installs nothing; exits with 1 if anything
# differs from the above.
set -euo pipefail

packages=(
    fdisk=2.38.1-5+deb12u3 libfdisk1=2.38.1-5+deb12u3 util-linux=2.38.1-5+deb12u3
    libblkid1=2.38.1-5+deb12u3 libsmartcols1=2.38.1-5+deb12u3 libmount1=2.38.1-5+deb12u3
    parted=3.5-3+deb12u1 libparted2=3.5-3+deb12u1 gdisk=1.0.9-2.1 libpopt0=1.19+dfsg-1
)

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir packages root
(cd packages && apt-get -qq download "${packages[@]}" 2>&1 | grep -v unsandboxed || true)
for package in packages/*.deb; do dpkg-deb -x "$package" root; done
lib=root/usr/lib/x86_64-linux-gnu:root/lib/x86_64-linux-gnu
tool() {
    local name=$1
    shift
    LD_LIBRARY_PATH=$lib "$(find root/sbin root/bin root/usr/sbin root/usr/bin -name "$name" \
        -type f 2>/dev/null | head -n 1)" "$@" 2>&1
}

# $1: bytes of an entry, $2: the image to make.
image() {
    python3 - "$@" <<'PYTHON'
import struct, sys, uuid, zlib

entry_bytes, path = int(sys.argv[1]), sys.argv[2]
block, blocks, count = 512, 65536, 128
linux = uuid.UUID("0FC63DAF-8483-4772-8E79-3D69D8477DE4").bytes_le
array = bytearray(entry_bytes * count)
for at, (first, last, name) in enumerate([(2048, 10239, "first"), (10240, 20479, "second")]):
    entry = linux + uuid.UUID(int=at + 1).bytes_le + struct.pack("<QQQ", first, last, 0)
    entry += name.encode("utf-16le").ljust(72, b"\0")
    array[at * entry_bytes:at * entry_bytes + len(entry)] = entry
array_blocks = len(array) // block


def header(mine, other, array_at):
    fields = struct.pack(
        "<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, mine, other, 2 + array_blocks,
        blocks - 2 - array_blocks, uuid.UUID(int=99).bytes_le, array_at, count, entry_bytes,
        zlib.crc32(array))
    return fields[:16] + struct.pack("<I", zlib.crc32(fields)) + fields[20:]


disk = bytearray(block * blocks)
disk[446:462] = struct.pack("<4B4BII", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, blocks - 1)
disk[510:512] = b"\x55\xaa"
last = blocks - 1
for at, data in [
    (1, header(1, last, 2)), (2, array),
    (last - array_blocks, array), (last, header(last, 1, last - array_blocks)),
]:
    disk[at * block:at * block + len(data)] = data
open(path, "wb").write(disk)
PYTHON
}

failed=0
# $1: what is expected to be in the output of the rest; "!" before it: not to be in it.
expect() {
    local wanted=$1 output found=no
    shift
    output=$("$@") || { echo "exit status $? of: $*"; failed=1; }
    grep -qF -- "${wanted#!}" <<<"$output" && found=yes
    if [[ $wanted == !* ]]; then [[ $found == no ]]; else [[ $found == yes ]]; fi || {
        echo "$*: expected $wanted, saw:"
        echo "$output"
        failed=1
    }
}

image 128 usual.img
image 256 wide.img
for tool in "sfdisk --dump" "partx --show" "sgdisk --print" "parted --script"; do
    read -ra words <<<"$tool"
    after=()
    [[ $tool == parted* ]] && after=(print)
    expect second tool "${words[@]}" usual.img "${after[@]}"
done
expect 'PTTYPE="gpt"' tool blkid -p usual.img

expect second tool sfdisk --dump wide.img
expect wide.img2 tool fdisk -l wide.img
expect second tool parted --script wide.img print
expect 'PTTYPE="PMBR"' tool blkid -p wide.img
expect '!second' tool partx --show wide.img
expect 'supports only 128-byte entries' tool sgdisk --print wide.img
expect '!second' tool sgdisk --print wide.img
((failed == 0)) && echo "as described: two partitions for libfdisk and libparted, none for libblkid and gdisk"
exit "$failed"
