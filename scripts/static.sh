#!/usr/bin/env bash
# Builds the command without libraries, at target/x86_64-unknown-linux-musl/release/meantime, and
# tries it. It can do everything but the shared-memory path of `run`, whose library is loaded
# into programs that have their own C library.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "static: $*" >&2; exit 1; }
musl=x86_64-unknown-linux-musl
[ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ] || {
    command -v rustup >/dev/null || die "no Rust library for $musl here, and no rustup to install it with"
    echo "static: installing Rust's standard library for $musl with rustup"
    rustup --quiet target add "$musl"
}
# shellcheck disable=SC2086
${CARGO:-cargo} build --release --locked --bin meantime --features vendored --target "$musl"
built=${CARGO_TARGET_DIR:-target}/$musl/release/meantime
scripts/split-debug.sh "$built"

! readelf -lW "$built" | grep INTERP >/dev/null || die "$built needs a loader: it is not static"
"$built" bench --device mem:16M --rw randread --runtime 200ms --completion poll --no-control >/dev/null ||
    die "$built does not work"
# What it leaves out it says.
said=$("$built" run --device file:none.img -- true 2>&1) && die "run has found an image"
grep -q "built statically" <<<"$said" || die "run does not say what is missing: $said"
echo "static: $built"
