#!/usr/bin/env bash
# release.sh [test]
#
# Packs what `make static` has built, with manual pages, completions, README and licences, as
# target/release-archive/meantime-VERSION-x86_64-linux.tar.gz, and writes SHA256SUMS beside it. One
# command at one commit always makes the same archive. Unpacked with --strip-components=1 in a
# prefix, everything is where `make install` puts it. With "test", tries the archive in a bare
# Debian instead: that needs debootstrap and root, and else says that it was not run.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "release: $*"; }
die() { echo "release: $*" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
built=$target/x86_64-unknown-linux-musl/release/meantime
out=$target/release-archive
version=$(sed -nE '/^\[workspace.package\]/,/^\[/s/^version = "(.*)"/\1/p' Cargo.toml)
[ -n "$version" ] || die "Cargo.toml has no version"
name=meantime-$version-x86_64-linux

pack() {
    [ -x "$built" ] || die "$built is not there: run 'make release', which builds it"
    rm -rf "$out"
    local top=$out/$name completions=crates/cli/completions time
    local share=$top/share doc=$top/share/doc/meantime
    install -D -m 755 "$built" "$top/bin/meantime"
    "$built" man "$share/man/man1"
    install -D -m 644 $completions/meantime.bash "$share/bash-completion/completions/meantime"
    install -D -m 644 $completions/_meantime "$share/zsh/site-functions/_meantime"
    install -D -m 644 $completions/meantime.fish "$share/fish/vendor_completions.d/meantime.fish"
    install -d "$doc"
    install -m 644 README.md LICENSE LICENSE-APACHE LICENSE-MIT "$doc"
    # Other people's crates are linked into it.
    scripts/licences.py >"$doc/third-party-licences.txt"
    # Outside of a clone there is no commit.
    time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
    tar -C "$out" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --format=ustar -cf - "$name" | gzip -n -9 >"$out/$name.tar.gz"
    (cd "$out" && sha256sum "$name.tar.gz" >SHA256SUMS)
    rm -r "$top"
    say "$out/$name.tar.gz ($(stat -c %s "$out/$name.tar.gz") bytes)"
}

try() {
    [ -e "$out/$name.tar.gz" ] || die "$out/$name.tar.gz is not there: run 'make release'"
    (cd "$out" && sha256sum --quiet -c SHA256SUMS) || die "SHA256SUMS does not agree"
    PATH=$PATH:/usr/sbin:/sbin command -v debootstrap >/dev/null || { say "not run: no debootstrap"; return; }
    [ "$(id -u)" = 0 ] || { say "not run: only root can make a bare Debian"; return; }
    # shellcheck source=scripts/debian-root.sh
    . scripts/debian-root.sh
    trap remove_debian EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    make_debian bookworm "$out/debootstrap.log"
    tar -C "$root/usr/local" --strip-components=1 -xzf "$out/$name.tar.gz"
    meantime() { as_user /usr/local/bin/meantime "$@"; }
    expect "meantime --version" "meantime $version" meantime --version
    expect "meantime bench" "null" meantime bench --device 'mem:64M?model=null' --runtime 200ms
    expect "meantime completions" "complete -" meantime completions bash
    expect "meantime fs" "" meantime fs mkfs 'file:disk.img?create=64M'
    # Without the library that it would load into programs, `run` says so, and goes on by the mount.
    if [ -e /dev/fuse ]; then
        expect "meantime run" "built statically" inside /usr/local/bin/meantime run \
            --device file:/home/user/disk.img -- ls /mnt/meantime
    fi
    for file in share/man/man1/meantime-bench.1 share/doc/meantime/LICENSE-MIT \
        share/bash-completion/completions/meantime; do
        [ -s "$root/usr/local/$file" ] || die "the archive has no $file"
    done
    say "done"
}

case ${1:-} in
    "") pack ;;
    test) try ;;
    *) sed -nE '2,/^$/s/^# ?//p' "$0" >&2; exit 2 ;;
esac
