#!/usr/bin/env bash
# guest.sh test [TEST...] | bench [OPTIONS] | programs [OPTIONS] | reproduce --json FILE [--quick]:
# Meantime in a virtual machine, on QEMU's NVMe controllers.
#
# Boots stock Debian kernels under QEMU's software emulation (no KVM, no root) with an emulated
# IOMMU.
# test: each of scripts/guest/tests, or TEST, in a guest of its own; asserts what was done, never
# how long it took. GUEST_LONG=1: with many more commands. GUEST_SUITE is the Debian suite whose kernel
# boots: bookworm (6.1), bullseye (5.10), trixie (6.12).
# bench: the kernel's ways to wait and ours side by side on one controller
# (scripts/guest/bench.py --help).
# programs: fio, SQLite and RocksDB on the kernel's ext4 and on ours, on one controller
# (scripts/guest/programs.py --help).
# reproduce: the figures of `meantime reproduce --guest FILE` (scripts/guest/reproduce.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."

action=${1:-}
shift || true
die() { echo "guest: $*" >&2; exit 1; }
for tool in qemu-system-x86_64 busybox cpio depmod python3 readelf strip timeout; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || die "$tool is not installed: run 'scripts/setup.sh test'"
done

dir=${CARGO_TARGET_DIR:-target} programs=()
case $action in
    test)
        suites=("${GUEST_SUITE:-bookworm}")
        # The command that the other tests run, so that it is built once.
        make --no-print-directory build-tests
        meantime=$dir/debug/meantime
        ;;
    programs)
        suites=(bookworm)
        for tool in fio sqlite3 db_bench; do
            programs+=("$(command -v "$tool")") || die "$tool is not installed: run 'scripts/setup.sh fs'"
        done
        cargo build --release --locked --quiet -p meantime-cli -p meantime-intercept
        meantime=$dir/release/meantime
        programs+=("$dir/release/libmeantime_intercept.so")
        ;;
    bench | reproduce)
        suites=(bookworm bullseye)
        target=x86_64-unknown-linux-musl
        # Without OpenSSL, which would have to be built for it.
        cargo build --release --locked --quiet --target $target -p meantime-cli --no-default-features
        meantime=$dir/$target/release/meantime
        ;;
    *) sed -nE '2,/^$/s/^# ?//p' "$0" >&2; exit 2 ;;
esac

there=()
[ "$action" != reproduce ] || set -- --meantime "$meantime" "$@"
for suite in "${suites[@]}"; do
    if kernel=$(scripts/guest/kernel.sh "$suite"); then
        scripts/guest/initramfs.sh "$suite" "$meantime" "target/guest/$action-$suite.cpio" "${programs[@]}"
        there+=("$kernel" "target/guest/$action-$suite.cpio")
    elif [ "$suite" = "${suites[0]}" ]; then
        exit 1
    else
        echo "guest: without the rows of $suite's kernel" >&2
    fi
done
exec python3 "scripts/guest/$action.py" "${there[@]}" "$@"
