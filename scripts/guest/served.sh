#!/usr/bin/env bash
# served.sh: Linux's NVMe driver, in a guest, on a software SSD that `meantime ssd` serves outside;
# QEMU's vfio-user-pci stands between.
#
# QEMU 10.1 or later is needed: QEMU=COMMAND names another than qemu-system-x86_64. It must see this
# directory under the same path (for one in a chroot, mount target/guest there).
set -euo pipefail
cd "$(dirname "$0")/../.."

read -ra qemu <<<"${QEMU:-qemu-system-x86_64}"
die() { echo "guest: $*" >&2; exit 1; }
"${qemu[@]}" -device help 2>/dev/null | grep vfio-user-pci >/dev/null || die "${qemu[*]} has no vfio-user-pci: QEMU 10.1 or later is needed (QEMU=COMMAND)"

cargo build --locked --quiet -p meantime-cli
meantime=${CARGO_TARGET_DIR:-target}/debug/meantime
kernel=$(scripts/guest/kernel.sh bookworm)
dir=$PWD/target/guest/served
rm -rf "$dir"
mkdir -p "$dir"
scripts/guest/initramfs.sh bookworm "$meantime" "$dir/initramfs"
cp "$kernel/vmlinux" "$dir/vmlinux"

"$meantime" ssd --socket "$dir/ssd.sock" --serial SERVED mem:256M >"$dir/ssd.out" 2>"$dir/ssd.err" &
ssd=$!
trap 'kill $ssd 2>/dev/null || true' EXIT
for _ in $(seq 100); do [ ! -S "$dir/ssd.sock" ] || break; sleep 0.1; done

status=0
# The guest's memory is a file that the SSD maps as well.
timeout --foreground --kill-after=5 300 "${qemu[@]}" -accel tcg,thread=multi -machine q35,memory-backend=memory -cpu qemu64 -smp 1 -m 512 \
    -object memory-backend-memfd,id=memory,size=512M,share=on -nodefaults -no-user-config -display none -no-reboot \
    -device "{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"$dir/ssd.sock\"}}" \
    -device isa-debug-exit,iobase=0xf4,iosize=4 -serial "file:$dir/console" -serial "file:$dir/results" \
    -kernel "$dir/vmlinux" -initrd "$dir/initramfs" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable nvme.poll_queues=1 test=served" >"$dir/qemu" 2>&1 || status=$?
kill -TERM $ssd
wait $ssd || { cat "$dir/ssd.err" >&2; die "the SSD did not end well"; }
trap - EXIT
if [ $status = 33 ] && grep -qx done "$dir/results"; then
    echo "guest: served: ok ($(grep -c '^ok ' "$dir/results") checks)"
    tail -n 2 "$dir/ssd.out"
else
    cat "$dir/qemu" "$dir/console" "$dir/ssd.err" >&2
    die "served: QEMU ended with $status"
fi
