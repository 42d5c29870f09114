#!/usr/bin/env bash
# initramfs.sh SUITE MEANTIME FILE [PROGRAM…]: packs a guest's whole user space into FILE: busybox,
# the kernel's modules, the tests of this directory, MEANTIME (a `meantime`) and other programs and
# libraries, each with the libraries it loads. Prints nothing.
#
# Not compressed: what the guest need not unpack under emulation is faster, and QEMU hands it over
# by memory copy.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 3 ] || { echo "usage: initramfs.sh SUITE MEANTIME FILE [PROGRAM…]" >&2; exit 2; }
suite=$1 meantime=$2 file=$3
shift 3
die() { echo "guest: $*" >&2; exit 1; }

kernel=$PWD/target/guest/kernel/$suite
[ -e "$kernel/vmlinux" ] || die "no kernel of $suite: run scripts/guest/kernel.sh $suite"
version=$(basename "$kernel"/lib/modules/*)
busybox=$(command -v busybox) || die "busybox is not installed (package busybox-static)"
! readelf -l "$busybox" | grep INTERP >/dev/null || die "busybox must be statically linked"
export PATH=$PATH:/usr/sbin:/sbin

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# The guest's root directory is for every user.
chmod 755 "$root"
mkdir -p "$root"/{bin,dev,proc,sys,tmp,tests,etc,run,"lib/modules/$version"}
ln -s bin "$root/sbin"

install -m 755 "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
    [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
done
# Their figures are for people with the source beside them; and 20 MB less.
for program in "$meantime" "$@"; do
    into=$root/bin/$(basename "$program")
    rm -f "$into"
    install -m 755 "$program" "$into"
    strip "$into"
    if readelf -d "$program" | grep NEEDED >/dev/null; then
        ldd "$program" | sed -nE 's/^[^/]*(\/[^ ]+) .*/\1/p' | while read -r library; do
            install -D -m 755 "$(realpath "$library")" "$root$library"
        done
    fi
done
install -m 755 scripts/guest/init "$root/init"
install -m 644 scripts/guest/lib.sh "$root/lib.sh"
install -m 644 scripts/guest/{tests,bench,peers}/*.sh "$root/tests"
printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"

# A module that this kernel has not, or has built in, is none to copy.
for module in nvme vfio-pci vfio_iommu_type1 nvme-tcp nvmet-tcp null_blk ext4 fuse; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module" | sed -nE 's/^insmod ([^ ]+).*/\1/p'
done | sort -u | while read -r path; do
    install -D -m 644 "$path" "$root/lib/modules/${path#"$kernel/lib/modules/"}"
done
find "$root/lib" -name '*.ko' -exec strip --strip-debug {} +
cp "$kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version"
depmod -b "$root" "$version"

mkdir -p "$(dirname "$file")"
(cd "$root" && find . -print0 | sort -z | cpio --null --quiet -o -H newc -R 0:0) >"$file.new"
mv "$file.new" "$file"
