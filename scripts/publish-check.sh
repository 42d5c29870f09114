#!/usr/bin/env bash
# Makes the packages that a registry would take, and builds each from what is in its package and in
# those of the crates it needs. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
# One directory for all packages: else each builds all it needs in one of its own. A new one each
# time: cargo takes a crate of the same version, in a registry of the same path, to be the same.
rm -rf "$target"/publish-*
CARGO_TARGET_DIR=$(mktemp -d "$(realpath "$target")/publish-XXXXXX")
trap 'rm -rf "$CARGO_TARGET_DIR"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
export CARGO_TARGET_DIR CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# CARGO may be several words.
# shellcheck disable=SC2086
${CARGO:-cargo} publish --dry-run --workspace --locked --allow-dirty
