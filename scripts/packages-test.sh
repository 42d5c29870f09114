#!/usr/bin/env bash
# packages-test.sh [PART...]
#
# What users install, on a bare Debian 12 that is made for it and removed again: the packages that
# `make deb` has built, as a new user; then purges them and looks what is left. Debian comes from
# where this machine's apt has it, and is kept in memory (1 GB), since dpkg syncs all it writes.
# Needs root. PART: lint, use, static, wheel, fio, run, purge (default: all).
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "packages-test: $*"; }
die() { echo "packages-test: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || exec sudo --preserve-env=PATH,CARGO_TARGET_DIR "$0" "$@"

target=$(realpath "${CARGO_TARGET_DIR:-target}")
shopt -s nullglob
packages=("$target"/deb/*.deb)
[ ${#packages[@]} != 0 ] || die "no packages in $target/deb: run 'make deb'"
parts=("$@")
[ $# != 0 ] || parts=(lint use static wheel fio run purge)
wanted() { [[ " ${parts[*]} " = *" $1 "* ]]; }

# shellcheck source=scripts/debian-root.sh
. scripts/debian-root.sh
trap remove_debian EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

apt_install() { inside apt-get install -y -qq -o Dpkg::Options::=--force-unsafe-io "$@" >"$root/tmp/apt.log" 2>&1 || { cat "$root/tmp/apt.log" >&2; die "apt-get install $*"; }; }
bare_debian() {
    make_debian bookworm "$target/deb/debootstrap.log"
    inside apt-get update -qq
    # What the tests use, and of what the packages depend on what every Debian with systemd has.
    apt_install man-db bash-completion zsh gcc libc6-dev pkg-config systemd-standalone-sysusers
}

installed() { inside dpkg-query -W -f '${Package}:${Architecture}\n' | LC_ALL=C sort; }

# All files, but those that apt, dpkg and others keep of what they have done, and what users have.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./tmp -o -path ./home \
        -o -path ./root -o -path ./run -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg \
        -o -path ./var/lib/systemd/deb-systemd-helper-enabled -o -name __pycache__ \) -prune -o -print | LC_ALL=C sort)
}

lint() {
    local changes=("$target"/deb/*.changes)
    lintian --no-cfg --allow-root --fail-on error,warning "${changes[0]}" || die "lintian has found something"
    say "lintian: nothing found"
}

install_packages() {
    mkdir "$root/tmp/packages"
    local package
    for package in "${packages[@]}"; do
        case $package in
            *-dbgsym_*) ;;
            *) cp "$package" "$root/tmp/packages" ;;
        esac
    done
    (cd "$root/tmp/packages" && chmod 644 ./*)
    local files=("$root"/tmp/packages/*.deb)
    apt_install "${files[@]/#"$root"/}"
    say "installed: ${files[*]##*/}"
}

# tab WHAT SHELL SETUP TYPED WANTED: what Tab makes of a line, for the user.
tab() {
    local now
    now=$(scripts/tab.py --setup "$3" "$2" chroot --userspec=user:user "$root" env -i -C /home/user PATH=/usr/bin:/bin \
        HOME=/home/user TERM=dumb LC_ALL=C.UTF-8 "$2" -i -- "$4") || die "$1: $now"
    [ "$now" = "$5" ] || die "$1: Tab after '$4' gives '$now', not '$5'"
    say "$1: $now"
}

use() {
    expect "meantime bench" "randread" as_user meantime bench --device mem:64M --rw randread --runtime 500ms --completion poll
    expect "the job files" "qd1" as_user ls /usr/share/meantime/jobs
    expect "man meantime-bench" "measure a device" as_user man meantime-bench
    expect "man mount.fuse.meantime" "allow_other" as_user man mount.fuse.meantime
    expect "whatis" "list a directory" inside sh -c 'mandb -q; whatis meantime-fs-ls'

    as_user meantime fs mkfs 'file:disk.img?create=64M' >/dev/null
    as_user meantime fs mkdir file:disk.img:/usr
    expect "meantime fs ls" "usr" as_user meantime fs ls file:disk.img:/
    if [ -e /dev/fuse ]; then
        expect "mount -t fuse.meantime" "lost+found" \
            inside sh -ec 'mount -t fuse.meantime file:/home/user/disk.img /mnt; ls /mnt; umount /mnt'
    fi

    # bash-completion loads it for users' shells; of zsh users say compinit themselves.
    local bash=". /usr/share/bash-completion/bash_completion" zsh="autoload -U compinit; compinit -u -D"
    tab bash bash "$bash" "meantime dev" "meantime devices "
    tab bash bash "$bash" "meantime bench --device mem:1G\\?model=op" "meantime bench --device mem:1G\\?model=optane "
    tab bash bash "$bash" "meantime fs ls file:disk.img:/us" "meantime fs ls file:disk.img:/usr/"
    tab zsh zsh "$zsh" "meantime dev" "meantime devices "
    tab zsh zsh "$zsh" "meantime fs ls file:disk.img:/us" "meantime fs ls file:disk.img:/usr/"
    quick_tab

    as_user sh -ec 'cc -o qd1 /usr/share/doc/libmeantime-dev/examples/qd1.c $(pkg-config --cflags --libs meantime)'
    expect "a C program" "" as_user ./qd1 mem:16M
    expect "the group" "meantime:" inside getent group meantime
    units
}

# A press of Tab takes less than 50 ms of a CPU, at its best of ten. (What it waits for the CPU is
# the machine's matter.)
quick_tab() {
    local best=1000 ms TIMEFORMAT='%3U %3S'
    for _ in {1..10}; do
        ms=$({ time as_user meantime complete zsh -- meantime fs ls file:disk.img:/u >/dev/null; } 2>&1)
        ms=${ms//./}
        ms=$((10#${ms% *} + 10#${ms#* }))
        [ "$ms" -ge "$best" ] || best=$ms
    done
    [ "$best" -lt 50 ] || die "Tab takes $best ms"
    say "Tab takes $best ms"
}

units() {
    command -v systemd-analyze >/dev/null || { say "no systemd-analyze here: units are not looked at"; return; }
    local unit
    for unit in meantime-ssd@x.service meantime-mount@mnt.service; do
        local found
        # A bare Debian has no other units, and none to depend on.
        found=$(systemd-analyze --root="$root" --man=no verify "$unit" 2>&1 | grep -i meantime | grep -v 'Unit .* not found' || true)
        [ -z "$found" ] || die "systemd-analyze: $found"
        say "$unit: nothing found"
    done
}

# The command without libraries, where one was built: alone in a directory.
static() {
    local built=$target/x86_64-unknown-linux-musl/release/meantime
    [ -x "$built" ] || { say "no command without libraries in target: not tried"; return; }
    install -D -m 755 "$built" "$root/home/user/static/meantime"
    expect "the static command" "randread" as_user static/meantime bench --device mem:64M --rw randread --runtime 500ms --completion poll
    rm -r "$root/home/user/static"
}

# A wheel of `pip install`, where one was built: its example runs. What the example needs is fetched
# outside, where pip is set up.
wheel() {
    local wheels=("$target"/wheels/meantime-*.whl) needs=(fsspec pandas pyarrow duckdb)
    [ ${#wheels[@]} != 0 ] || { say "no wheel in target/wheels: not tried"; return; }
    apt_install python3-venv
    cp "${wheels[-1]}" crates/python/examples/parquet.py "$root/home/user/"
    python3 -m pip --quiet --disable-pip-version-check download --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --dest "$root/home/user/wheels" "${needs[@]}"
    as_user sh -ec "python3 -m venv venv; venv/bin/pip install --quiet --no-index --find-links wheels ./${wheels[-1]##*/} ${needs[*]}"
    expect "the example of Python" "DuckDB: Oslo has 250,000 rows" as_user venv/bin/python parquet.py
}

# The engine for Debian's fio, where the packages have one.
fio() {
    local engines=("$root"/usr/lib/*/fio/*meantime* "$root"/usr/lib/meantime/*fio*.so)
    [ ${#engines[@]} != 0 ] || { say "no fio engine in the packages: not tried"; return; }
    apt_install fio
    expect "fio with the engine" "IOPS=" as_user fio --name=x --thread=1 --rw=randread --size=16m \
        --ioengine="external:${engines[0]#"$root"}" --filename='mem\:16M'
    expect "fio's verification" "READ: " as_user fio --name=x --thread=1 --rw=randwrite --bs=4k --verify=crc32c \
        --ioengine="external:${engines[0]#"$root"}" --device=mem:16M --size=16m
}

# A program that nobody wrote for us, with the library that `meantime run` loads.
run() {
    local image=file:/root/run.img out short
    [ -e /dev/fuse ] || { say "no /dev/fuse here: 'meantime run' is not tried"; return; }
    inside sh -ec "meantime fs mkfs '$image?create=64M' >/dev/null; meantime fs mkdir $image:/usr"
    expect "meantime run" "usr" inside meantime run --device "$image" -- ls /mnt/meantime
    apt_install fio
    out=$(inside env MEANTIME_REPORT=1 meantime run --device "$image" -- fio --name=x --thread=1 \
        --directory=/mnt/meantime --rw=randrw --bs=4k --size=8m 2>&1) || die "meantime run: failed: $out"
    # 8 MiB, 4 KiB a call.
    short=$(sed -nE 's/.* ([0-9]+) calls short.*/\1/p' <<<"$out" | sort -n | tail -n 1)
    [ "${short:-0}" -ge 2048 ] || die "meantime run: fio's calls did not take the shared-memory path: $out"
    inside meantime fs check "$image" >/dev/null || die "meantime run: the file system is not clean"
    say "meantime run -- fio: $short calls took the shared-memory path"
}

purge() {
    # With all that came with them; apt itself keeps what another package recommends.
    local new
    mapfile -t new < <(installed | LC_ALL=C comm -13 "$root/tmp/packages-before" -)
    inside apt-get purge -y -qq "${new[@]}" >/dev/null 2>&1 || die "apt-get purge ${new[*]}"
    files >"$root/tmp/after"
    # Users and groups stay, as everywhere in Debian; so do what others made of them.
    local left
    left=$(LC_ALL=C comm -13 "$root/tmp/before" "$root/tmp/after" | grep -vxE './etc/(group|gshadow|passwd|shadow)-' || true)
    # Of what is in these two only ours is asked for. The directory of a user's sockets stays in
    # /tmp, empty: like all there it is the user's, and goes when the system next boots.
    left+=$(cd "$root" && find ./run ./tmp -maxdepth 1 -name '*meantime*' \
        ! \( -path './tmp/meantime-[0-9]*' -type d -empty \) -printf '\n%p')
    [ -z "$left" ] || die "left after apt purge:"$'\n'"$left"
    say "apt purge: nothing is left"
}

! wanted lint || lint
bare_debian
files >"$root/tmp/before"
installed >"$root/tmp/packages-before"
install_packages
for part in use static wheel fio run purge; do
    ! wanted "$part" || "$part"
done
say "done"
