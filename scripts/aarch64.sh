#!/usr/bin/env bash
# Checks that everything compiles for AArch64, and runs there, in QEMU's user emulation, the unit
# tests of what has no device: formats and numbers, and the clocks and copies of `hw`.
# Emulation says nothing of the order of memory accesses.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
die() { echo "aarch64: $*" >&2; exit 1; }
want() {
    command -v "$1" >/dev/null || {
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "$1 is not installed: install the package $2"
        echo "aarch64: installing $2"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
    }
}
want aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
want qemu-aarch64-static qemu-user-static
[ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || want libc6-dev-arm64-cross-is-missing libc6-dev-arm64-cross
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    command -v rustup >/dev/null || die "no rustup here to install the target $target with"
    rustup --quiet target add "$target"
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
# Without OpenSSL, which would have to be built for it.
cargo check --locked --workspace --target "$target" \
    --exclude meantime-cli --exclude meantime-nvme-auth --exclude meantime-fuzz
cargo check --locked -p meantime-cli --no-default-features --target "$target"
test() { cargo test --locked --target "$target" --lib "$@"; }
test -p meantime-nvme-spec -p meantime-random -p meantime-ext4-format
# Of what else `hw` does, the emulation lacks signals' details, NUMA and io_uring.
test -p meantime-hw -- clock:: view:: dma::
