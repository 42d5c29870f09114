#!/usr/bin/env bash
# xfstests.sh SUITES_DIR [CHECK_ARGUMENT...]: runs the quick generic tests of xfstests on a mount of
# ours, and those that fail there on the kernel's ext4 as well. SUITES_DIR has xfstests.tar.xz, or a
# directory xfstests that was built. The arguments are those of xfstests' `check`.
#
# It succeeds if each test that fails only on our mount is in the table of docs/mount.md, and e2fsck
# finds both images whole before each mount and at the end. It needs root, and
# target/release/meantime or the one that MEANTIME names. RESULTS=DIRECTORY keeps what was found.
#
# WAY=shared-memory: programs that are told a path on a mount, and what they start, have the library
# of `meantime run` (beside the command), and take the shared-memory path
# (docs/shared-memory-path.md). At the end the script says how many calls on data did.
set -euo pipefail
cd "$(dirname "$0")/.."

not_run() { echo "xfstests: not run: $1"; exit 0; }
[ -n "${1:-}" ] || not_run "no directory with xfstests.tar.xz was given"
suites=$(realpath "$1")
shift
[ "$(id -u)" = 0 ] || not_run "it needs root"
for user in fsgqa fsgqa2 123456-fsgqa; do
    id "$user" >/dev/null 2>&1 || not_run "there is no user $user (useradd -m $user)"
done
meantime=$(realpath "${MEANTIME:-${CARGO_TARGET_DIR:-target}/release/meantime}")
[ -x "$meantime" ] || not_run "there is no $meantime (make build, or MEANTIME=PATH)"
way=${WAY:-fuse}
library=$(dirname "$meantime")/libmeantime_intercept.so
[ "$way" = fuse ] || [ -e "$library" ] || not_run "there is no $library (make build)"

# Mounts, and the helper beside mount(8)'s others, are in a name space of this script's own.
if [ -z "${MEANTIME_XFSTESTS_APART:-}" ]; then
    MEANTIME_XFSTESTS_APART=1 MEANTIME=$meantime exec unshare -m "$0" "$suites" "$@"
fi

known=$(realpath docs/mount.md)
target=$(realpath "${CARGO_TARGET_DIR:-target}")
if [ -x "$suites/xfstests/ltp/fsx" ]; then
    tests=$suites/xfstests
else
    [ -e "$suites/xfstests.tar.xz" ] || not_run "$suites has no xfstests.tar.xz"
    tests=$target/suites/xfstests
    if [ ! -x "$tests/ltp/fsx" ]; then
        mkdir -p "$target/suites"
        tar -xJf "$suites/xfstests.tar.xz" -C "$target/suites"
        echo "xfstests: building, see $target/suites/build.log"
        make -C "$tests" -j"$(nproc)" >"$target/suites/build.log" 2>&1 ||
            not_run "it could not be built: see $target/suites/build.log"
    fi
fi

# In memory: nothing of the tests is about the device.
work=$(mktemp -d /dev/shm/meantime-xfstests.XXXXXX)
chmod 755 "$work"
loops=()
end() {
    for dir in test scratch; do umount -f "$work/$dir" 2>/dev/null || true; done
    for server in $(fuser "$work/first.img" "$work/second.img" 2>/dev/null); do
        timeout 60 tail --pid="$server" -f /dev/null || kill -9 "$server"
    done
    for loop in "${loops[@]}"; do losetup -d "$loop" || true; done
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/test" "$work/scratch"
# (No part of the directories' names: those are filtered from what tests print.)
for name in first second; do mkfs.ext4 -q -F -b 4096 "$work/$name.img" 2G; done

# umount(8) returns before the server has written everything, and let go of the image.
mkdir "$work/upper" "$work/work"
cat >"$work/upper/mount.fuse.meantime" <<HELPER
#!/bin/sh
unset LD_PRELOAD MEANTIME_SHARED_MEMORY
image=$work/\$1.img dir=\$2 options=
shift 2
while getopts sfnvo: option; do
    [ "\$option" != o ] || options=\$options,\$OPTARG
done
case \$options, in *,remount,*) exec mount -i -o "\${options#,}" "\$dir" ;; esac
for try in \$(seq 600); do
    fuser -s "\$image" 2>/dev/null || break
    sleep 0.1
done
e2fsck -fn "\$image" >$work/e2fsck.log 2>&1 || {
    { echo "before a mount at \$dir:"; cat $work/e2fsck.log; } >>$work/broken.log
}
name=\$(basename \$image .img)
[ $way = fuse ] || options=\$options,shared_memory=meantime-xfstests-$$-\$name
rm -f "\$image.metrics"
exec $meantime mount "kernel:\$image" "\$dir" -o "fsname=\$name\$options" \
    --metrics "unix:\$image.metrics"
HELPER
chmod +x "$work/upper/mount.fuse.meantime"
sbin=$(realpath /sbin)
mount -t overlay -o "lowerdir=$sbin,upperdir=$work/upper,workdir=$work/work" overlay "$sbin"

# For xfstests the type of a mount by FUSE is fuse; ours is fuse.meantime.
mkdir "$work/bin"
cat >"$work/bin/findmnt" <<PROGRAM
#!/bin/bash
exec $(command -v findmnt) "\${@/#%fuse/fuse.meantime}"
PROGRAM
cat >"$work/bin/df" <<PROGRAM
#!/bin/sh
$(command -v df) "\$@" | sed s/fuse.meantime/fuse/
PROGRAM
# What a server has counted goes with it.
cat >"$work/bin/umount" <<PROGRAM
#!/bin/sh
for socket in $work/*.metrics; do
    [ ! -e "\$socket" ] || env -u LD_PRELOAD curl -s -m 5 --unix-socket "\$socket" \
        http://localhost/metrics | sed "s|^|\$(stat -c %i "\$socket") |" >>$work/counted
done
exec $(command -v umount) "\$@"
PROGRAM
chmod +x "$work/bin/"*
export PATH=$work/bin:$PATH

# run NAME CHECK_ARGUMENT...: runs tests; those that failed are in NAME.failed.
export TEST_DIR=$work/test SCRATCH_MNT=$work/scratch
run() {
    local name=$1
    shift
    # (It fails if a test does.)
    (cd "$tests" && RESULT_BASE=$work/results.$name ./check "$@") 2>&1 |
        tee "$work/$name.log" || true
    { grep '^Failures:' "$work/$name.log" || true; } | tail -n 1 | tr ' ' '\n' | grep / |
        sort >"$work/$name.failed" || true
    if [ -n "${RESULTS:-}" ]; then
        mkdir -p "$RESULTS"
        cp -r "$work/results.$name" "$work/$name.log" "$work/$name.failed" "$RESULTS"
    fi
}

[ $# -gt 0 ] || set -- -g generic/quick
export TEST_DEV=first SCRATCH_DEV=second
(
    export FSTYP=fuse FUSE_SUBTYP=.meantime
    export MOUNT_OPTIONS="-o allow_other" TEST_FS_MOUNT_OPTS="-o allow_other"
    if [ "$way" = shared-memory ]; then
        cc -shared -fPIC -O1 -o "$work/choose.so" scripts/xfstests-way.c
        # (Those that were loaded last begin first.)
        export MEANTIME_SOCKETS=meantime-xfstests-$$ LD_PRELOAD=$library:$work/choose.so
    fi
    run ours "$@"
)
for dir in test scratch; do umount "$work/$dir" 2>/dev/null || true; done
for name in first second; do
    for _ in $(seq 600); do fuser -s "$work/$name.img" 2>/dev/null || break; sleep 0.1; done
    e2fsck -fn "$work/$name.img" >"$work/last.log" 2>&1 || cat "$work/last.log" >>"$work/broken.log"
done

: >"$work/theirs.failed"
if [ -s "$work/ours.failed" ]; then
    for name in first second; do
        mkfs.ext4 -q -F "$work/$name.ext4" 2G
        loops+=("$(losetup -f --show "$work/$name.ext4")")
    done
    mapfile -t failed <"$work/ours.failed"
    FSTYP=ext4 TEST_DEV=${loops[0]} SCRATCH_DEV=${loops[1]} run theirs "${failed[@]}"
    for dir in test scratch; do umount "$work/$dir" 2>/dev/null || true; done
fi

status=0
for test in $(comm -23 "$work/ours.failed" "$work/theirs.failed"); do
    if grep -q "^| $test " "$known"; then
        echo "xfstests: $test differs from the kernel's ext4; docs/mount.md says why"
    else
        echo "xfstests: $test fails, and does not with the kernel's ext4"
        status=1
    fi
done
if [ -s "$work/broken.log" ]; then
    cat "$work/broken.log"
    echo "xfstests: e2fsck found an image damaged"
    status=1
fi
if [ "$way" = shared-memory ]; then
    # The last counts of each server.
    awk '$2 ~ /^meantime_mount_(short_calls|requests)_total/ { counts[$1 " " $2] = $3 }
        END {
            for (what in counts) {
                if (what !~ /kind="(read|write|sync|fsync)"/) continue
                if (what ~ /short_calls/) short += counts[what]; else long += counts[what]
            }
            print "xfstests: calls on data:", short + 0, "short,", long + 0, "by the kernel"
        }' "$work/counted"
fi
echo "xfstests: $(wc -l <"$work/ours.failed") failed here," \
    "$(wc -l <"$work/theirs.failed") of them with the kernel's ext4 too"
exit $status
