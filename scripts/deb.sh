#!/usr/bin/env bash
# Builds the Debian packages, at target/deb. What they hold is what `make install` installs, built
# in target/release. CARGO is the cargo to build with, with options for its builds if you like.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "deb: $*" >&2; exit 1; }
version=$(sed -nE '/^\[workspace.package\]/,/^\[/s/^version = "(.*)"/\1/p' Cargo.toml)
packaged=$(dpkg-parsechangelog -S Version)
[ "${packaged%-*}" = "$version" ] || die "debian/changelog has version $packaged, Cargo.toml $version"

out=$(mkdir -p "${CARGO_TARGET_DIR:-target}/deb" && cd "${CARGO_TARGET_DIR:-target}/deb" && pwd)
rm -f "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
base=$out/meantime_${packaged}_$(dpkg --print-architecture)
# The build was the same before: what it says is of interest if it fails.
log=$out/build.log
DEB_OUT=$out dpkg-buildpackage -b -us -uc --no-pre-clean \
    --buildinfo-option=-u"$out" --buildinfo-file="$base.buildinfo" \
    --changes-option=-u"$out" --changes-file="$base.changes" >"$log" 2>&1 ||
    { tail -n 50 "$log" >&2; die "building failed; all it said is in $log"; }
debian/rules clean >>"$log" 2>&1
ls "$out"/*.deb
