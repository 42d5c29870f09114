#!/usr/bin/env bash
# install.sh install|uninstall [--prefix DIR] [--libdir DIR] [--destdir DIR] [--from DIR]
#
# Installs the command and the library it loads into programs, manual pages, completions for bash,
# zsh and fish, fio's engine, the C library with header and pkg-config file, the job files and a
# dashboard beneath PREFIX (/usr/local), or removes them. DESTDIR is put before every path that is
# written, and in no file. The C library goes to --libdir (lib), below PREFIX. --from is where
# everything was built (target/release). With the prefix /usr or /usr/local, mount(8) and umount(8)
# find the command as their helper in /sbin.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -nE '2,/^$/s/^# ?//p' "$0" >&2; exit 2; }
die() { echo "install: $*" >&2; exit 1; }

action=${1:-}
[ "$action" = install ] || [ "$action" = uninstall ] || usage
shift
prefix=/usr/local libdir=lib destdir="" from=${CARGO_TARGET_DIR:-target}/release
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --destdir) destdir=$2 ;;
        --from) from=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[[ $prefix = /* ]] || die "PREFIX=$prefix is not an absolute path: give one, e.g. /usr/local"
[[ $libdir != /* ]] || die "LIBDIR=$libdir is an absolute path: give one below PREFIX, e.g. lib64"
# A path with these would break the pkg-config file, or what reads it.
[[ $prefix/$libdir != *[[:space:]\"\'\$\#\\]* ]] ||
    die "PREFIX=$prefix or LIBDIR=$libdir has a character that pkg-config files cannot hold"

version=$(sed -nE '/^\[workspace.package\]/,/^\[/s/^version = "(.*)"/\1/p' Cargo.toml)
[ -n "$version" ] || die "Cargo.toml has no version"
# As crates/capi/build.rs has it in the library.
case $version in
    0.*) abi=${version%.*} ;;
    *) abi=${version%%.*} ;;
esac

root=$destdir$prefix
bin=$root/bin lib=$root/$libdir include=$root/include jobs=$root/share/meantime/jobs
# What the command loads is where it looks for it, whatever --libdir is.
private=$root/lib/meantime
man=$root/share/man
bash=$root/share/bash-completion/completions zsh=$root/share/zsh/site-functions fish=$root/share/fish/vendor_completions.d
files=(
    "$bin/meantime" "$bin/.debug/meantime.debug"
    "$lib/.debug/libmeantime_c.so.debug" "$private/.debug/libmeantime_intercept.so.debug"
    "$private/libmeantime-fio.so" "$private/.debug/libmeantime_fio.so.debug"
    "$lib/libmeantime.so" "$lib/libmeantime.so.$abi" "$lib/libmeantime.so.$version"
    "$lib/libmeantime.a" "$private/libmeantime_intercept.so" "$lib/pkgconfig/meantime.pc" "$include/meantime.h"
    "$bash/meantime" "$zsh/_meantime" "$fish/meantime.fish"
)
# The only place where mount(8) looks. (A package must not have a directory where the system has a
# link.) Another prefix is not for the whole system.
sbin=$destdir/sbin helpers=()
[ -z "$destdir" ] || [ ! -L /sbin ] || sbin=$destdir/usr/sbin
case $prefix in
    /usr | /usr/local) helpers=("$sbin/mount.fuse.meantime" "$sbin/umount.fuse.meantime") ;;
esac
files+=("${helpers[@]}")
shopt -s nullglob
for job in jobs/*.fio; do
    files+=("$jobs/${job##*/}")
done
for helper in "${helpers[@]}"; do
    files+=("$man/man8/${helper##*/}.8")
done
files+=("$root/share/meantime/grafana.json")

if [ "$action" = uninstall ]; then
    rm -f -- "${files[@]}" "$man"/man1/meantime.1 "$man"/man1/meantime-*.1
    # Unless somebody else has put something there.
    rmdir -- "$jobs" "$root/share/meantime" "$bin/.debug" "$lib/.debug" "$private/.debug" "$private" 2>/dev/null || true
    echo "uninstalled Meantime from $root"
    exit 0
fi

for file in meantime libmeantime_c.so libmeantime_c.a libmeantime_{intercept,fio}.so; do
    [ -e "$from/$file" ] || die "$from/$file is not there: run 'make install', which builds it"
done
# A library that is given another name than its soname says would not be found by the programs that
# are linked to it.
soname=$(readelf -d "$from/libmeantime_c.so" | sed -nE 's/.*Library soname: \[(.*)\].*/\1/p')
[ "$soname" = "libmeantime.so.$abi" ] || die "the soname of libmeantime_c.so is '$soname', not libmeantime.so.$abi: build it again"

install -d "$bin" "$lib/pkgconfig" "$private" "$include" "$man/man1"
install -m 755 "$from/meantime" "$bin/meantime"
install -m 755 "$from/libmeantime_c.so" "$lib/libmeantime.so.$version"
ln -sfn "libmeantime.so.$version" "$lib/libmeantime.so.$abi"
ln -sfn "libmeantime.so.$abi" "$lib/libmeantime.so"
for helper in "${helpers[@]}"; do
    install -d "${helper%/*}"
    ln -sfn "$prefix/bin/meantime" "$helper"
done
# Loaded by `meantime run`, which looks for it there.
install -m 755 "$from/libmeantime_intercept.so" "$private"
install -m 755 "$from/libmeantime_fio.so" "$private/libmeantime-fio.so"
install -m 644 "$from/libmeantime_c.a" "$lib/libmeantime.a"
# Debug information, where debuggers and backtraces look for it.
for file in "$bin/.debug/meantime" "$lib/.debug/libmeantime_c.so" "$private/.debug/"libmeantime_{intercept,fio}.so; do
    built=$from/${file##*/}
    # Unless the file itself has it.
    ! readelf -SW "$built" | grep gnu_debuglink >/dev/null || install -D -m 644 "$built.debug" "$file.debug"
done
install -m 644 crates/capi/include/meantime.h "$include/meantime.h"
# The static library needs nothing but what the C compiler adds by itself, and these, which are part
# of libc since glibc 2.34.
cat >"$lib/pkgconfig/meantime.pc" <<END
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: Meantime
Description: User-space I/O stack for SSDs that answer in microseconds: its block layer
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lmeantime
Libs.private: -lpthread -ldl -lm
END
chmod 644 "$lib/pkgconfig/meantime.pc"
for job in jobs/*.fio; do
    install -D -m 644 "$job" "$jobs/${job##*/}"
done
"$from/meantime" man "$man/man1"
chmod 644 "$man"/man1/meantime*.1
for helper in "${helpers[@]}"; do
    name=${helper##*/}
    install -D -m 644 /dev/stdin "$man/man8/$name.8" <<<".so man1/meantime-${name%.fuse.meantime}.1"
done
install -D -m 644 crates/cli/completions/meantime.bash "$bash/meantime"
install -D -m 644 crates/cli/completions/_meantime "$zsh/_meantime"
install -D -m 644 crates/cli/completions/meantime.fish "$fish/meantime.fish"
install -m 644 docs/grafana.json "$root/share/meantime/grafana.json"
echo "installed Meantime $version in $root"
if [ -z "$destdir" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
    # So that programs find the library, if this is where the loader looks.
    ldconfig 2>/dev/null || true
fi
