# What the guest's tests share; sourced by each of them. Results go to the host by /dev/ttyS1, a
# line each:
#
#   ok NAME             FAILED NAME
#   note WORDS…         for people
#   fact KEY VALUE      for the host's checks, and summed up over all tests
#   image NAME SHA256   what the guest has read of it all; the host compares the file
#   host COMMAND…       the host is to do something: remove ID

failures=0

say() { echo "$*" >/dev/ttyS1; echo "guest: $*"; }
pass() { say "ok $*"; }
fail() { say "FAILED $*"; failures=$((failures + 1)); }
fact() { say "fact $*"; }

# check NAME COMMAND…: COMMAND must succeed.
check() {
    _name=$1
    shift
    if "$@" >/tmp/out 2>&1; then
        pass "$_name"
    else
        _status=$?
        fail "$_name"
        echo "guest: exit $_status of: $*"
        cat /tmp/out
    fi
}

# says NAME TEXT: the command checked before this has said TEXT (a regular expression).
says() {
    if grep -Eq "$2" /tmp/out; then
        pass "$1"
    else
        fail "$1"
        echo "guest: '$2' was to be said:"
        cat /tmp/out
    fi
}

# refused NAME TEXT COMMAND…: COMMAND must fail, not by a signal, and say TEXT (a regular
# expression).
refused() {
    _name=$1 _text=$2
    shift 2
    "$@" >/tmp/out 2>&1
    _status=$?
    if [ $_status -gt 0 ] && [ $_status -lt 124 ] && grep -Eq "$_text" /tmp/out; then
        pass "$_name"
    else
        fail "$_name"
        echo "guest: exit $_status where a failure that says '$_text' was due: $*"
        cat /tmp/out
    fi
}

# until_true SECONDS COMMAND…: waits for COMMAND to succeed.
until_true() {
    _tries=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        _tries=$((_tries - 1))
        [ $_tries -gt 0 ] || return 1
        usleep 100000
    done
}

# address SERIAL: the PCI address of the controller that the machine's description calls so; the
# kernel's driver must have it.
address() {
    for _c in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$_c/serial")" = "$1" ] && basename "$(readlink -f "$_c/device")" && return
    done
    return 1
}

# disk SERIAL NSID: the kernel's block device.
disk() {
    for _c in /sys/class/nvme/nvme*; do
        [ "$(tr -d ' ' <"$_c/serial")" = "$1" ] || continue
        for _n in "$_c"/nvme*n*; do
            [ -e "$_n/nsid" ] && [ "$(cat "$_n/nsid")" = "$2" ] && echo "/dev/$(basename "$_n" | sed 's/c[0-9]*n/n/')" && return
        done
    done
    return 1
}

# opened N: whether N VFIO devices are open.
opened() { [ "$(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c vfio-device)" = "$1" ]; }

driver() { basename "$(readlink "/sys/bus/pci/devices/$1/driver")"; }
is_driver() { [ "$(driver "$1")" = "$2" ]; }

# interrupts PATTERN: how many interrupts lines of /proc/interrupts that match have had, on all
# CPUs.
interrupts() {
    awk -v pattern="$1" '$0 ~ pattern { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

# kernel_sum SERIAL NSID: SHA-256 of a whole namespace, read by the kernel from the device and not
# from its memory.
kernel_sum() {
    _disk=$(disk "$1" "$2") || return 1
    dd if="$_disk" bs=128k iflag=direct 2>/dev/null | sha256sum | cut -d ' ' -f 1
}

# our_sum URI: the same, read by us.
our_sum() { meantime copy "$1" - 2>/tmp/err | sha256sum | cut -d ' ' -f 1; }

# figure KEY FILE: the sum of all figures of this name in a report.
figure() { awk -F '[:,]' -v key="\"$1\"" '$1 ~ key { sum += $2 } END { printf "%d\n", sum }' "$2"; }

# verified DEVICE POLICY ARGUMENTS…: a run of the bench that verifies what it wrote; counts
# commands.
verified() {
    _device=$1 _how=$2
    shift 2
    _words="$_device $_how $*"
    if ! meantime bench --device "$_device" --completion "$_how" --no-control --verify crc32c --json /tmp/json "$@" >/tmp/out 2>&1; then
        fail "verified: $_words"
        cat /tmp/out
        return
    fi
    _checked=$(figure verified_blocks /tmp/json)
    # Read back is at least what was written; else nothing was verified.
    if [ "$_checked" -gt 0 ] && [ "$(figure verify_errors /tmp/json)" = 0 ] && [ "$(figure errors /tmp/json)" = 0 ]; then
        pass "verified: $_words ($_checked)"
    else
        fail "verified: $_words"
        cat /tmp/out
    fi
    fact "commands $(figure total_ios /tmp/json)"
    fact "verified $_checked"
}

# Lines of the kernel's log in which the IOMMU says that it has stopped a DMA.
dma_faults() { grep -E 'DMAR:.*(fault|DRHD: handling)'; }

# The last line of each test.
finish() {
    if dmesg | dma_faults; then
        fail "no DMA fault"
    else
        pass "no DMA fault"
    fi
    if dmesg | grep -E 'BUG:|Oops|WARNING: CPU|hung task|blocked for more than'; then
        fail "no complaint of the kernel"
    fi
    say "done"
    exit $((failures > 0))
}
