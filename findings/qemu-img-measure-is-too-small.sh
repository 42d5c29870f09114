#!/usr/bin/env bash
# qemu-img measure for qcow2 with small clusters, and the size of the image then made.
#
# The manual page says of qemu-img measure that its result can be used to size logical volumes, and
# that "the values reported are guaranteed to be large enough to fit the image". Given a file, it
# acts as if converting it. Seen, with qemu-img 10.0.13 and a raw file of 10 MiB of random bytes,
# converted to qcow2 with the same options:
#
#   cluster_size=64k, the default   measured 10813440, the image has 10813440 bytes
#   cluster_size=4k                 measured 10526720, the image has 10526720 bytes
#   cluster_size=512                measured 10695680 as required and as fully allocated, the image
#                                   has 10725376 bytes: 29696 more
#   cluster_size=512,refcount_bits=64   measured 10825216, the image has 10859008 bytes
#
# and with 64 MiB also cluster_size=1k (67773440, and 67899392 bytes). With cluster_size=512, the
# conversion into a device of the required size, here one of NBD, fails: no space left. It succeeds
# in one of 10725376 bytes. In all that was tried, the sizes fit where one cluster suffices for the
# image's table of reference counts: up to about 8 MiB with cluster_size=512.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/trixie.sh"

trixie qemu-utils=1:10.0.13+ds-0+deb13u1 nbdkit=1.42.3-1

for mib in 10 64; do head -c ${mib}M /dev/urandom >"$root/tmp/$mib.raw"; done
while read -r mib options measured made; do
    inside qemu-img measure -f raw -O qcow2 -o "$options" "$mib.raw" >"$dir/measure"
    seen=$(sed -n 's/^required size: //p' "$dir/measure")
    compare "$mib MiB, $options: measured as required" "enough for the image" "$measured" "$seen"
    compare "$mib MiB, $options: as fully allocated" "enough for the image" "$measured" \
        "$(sed -n 's/^fully allocated size: //p' "$dir/measure")"
    inside qemu-img convert -f raw -O qcow2 -o "$options" "$mib.raw" image.qcow2
    compare "$mib MiB, $options: bytes of the image" "$seen or less" "$made" \
        "$(stat -c %s "$root/tmp/image.qcow2")"
done <<'CASES'
10 cluster_size=64k 10813440 10813440
10 cluster_size=4k 10526720 10526720
10 cluster_size=512 10695680 10725376
10 cluster_size=512,refcount_bits=64 10825216 10859008
64 cluster_size=1k 67773440 67899392
CASES

# $1: bytes of a device to convert into.
convert() {
    # shellcheck disable=SC2016 # nbdkit's shell expands it.
    inside nbdkit -U - memory "$1" --run '
        qemu-img create -q -f qcow2 -o cluster_size=512 "$uri" 10M
        qemu-img convert -n -f raw -O qcow2 10.raw "$uri" && echo succeeds' 2>"$dir/errors" ||
        { grep -q "No space left" "$dir/errors" && echo "no space left"; }
}
compare "conversion into a device of 10695680 bytes" succeeds "no space left" "$(convert 10695680)"
compare "conversion into a device of 10725376 bytes" succeeds succeeds "$(convert 10725376)"
exit "$failed"
