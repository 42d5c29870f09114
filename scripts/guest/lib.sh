# What the guest's tests share; sourced by each of them. Results go to the host by /dev/ttyS1, a
# line each:
#
#   ok NAME             FAILED NAME
#   note WORDS…         for people
#   fact KEY VALUE      for the host's checks, and summed up over all tests
#   image NAME SHA256   what the guest has read of it all; the host compares the file
#   host COMMAND…       the host is to do something: remove ID

failures=0
# part DIVISOR SIZE: such a part of it, e.g. of 2m or 256k.
part() {
    case $2 in
        *m) echo "$((${2%m} * 1024 / $1))k" ;;
        *k) echo "$((${2%k} / $1))k" ;;
    esac
}
# for_seconds N: N, or half of it if the tests are not to be long (GUEST_LONG=1).
for_seconds() { [ -n "$long" ] && echo "$1" || echo "$(($1 / 2))"; }

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

# since VERSION: whether this kernel is Linux VERSION or later, e.g. 5.19. What it lacks is refused in
# words, or left out with a note.
since() {
    _major=$(uname -r | cut -d . -f 1) _minor=$(uname -r | cut -d . -f 2 | sed 's/[^0-9].*//')
    [ $((_major * 1000 + _minor)) -ge $((${1%%.*} * 1000 + ${1#*.})) ]
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
    _disk=$(disk "$1" "$2") && disk_sum "$_disk"
}

# our_sum URI: the same, read by us.
our_sum() { meantime copy "$1" - 2>/tmp/err | sha256sum | cut -d ' ' -f 1; }

# figure KEY FILE: the sum of all figures of this name in a report.
figure() { awk -F '[:,]' -v key="\"$1\"" '$1 ~ key { sum += $2 } END { printf "%d\n", sum }' "$2"; }

# verified DEVICE POLICY ARGUMENTS…: a run of the bench that verifies what it wrote; counts
# commands. If the tests are not to be long (GUEST_LONG=1), a quarter of what `--size` says, and a
# sixteenth of it where the blocks are small and many.
verified() {
    _device=$1 _how=$2
    shift 2
    _before=
    case " $* " in
        *" --bs 512 "* | *" --bs 4k "* | *" --bs 8k "*) _divisor=16 ;;
        *) _divisor=4 ;;
    esac
    for _word; do
        shift
        [ -n "$long" ] || [ "$_before" != --size ] || _word=$(part $_divisor "$_word")
        set -- "$@" "$_word"
        _before=$_word
    done
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

# verifying NAME DEVICE POLICY ARGUMENTS…: such a run in the background; for `ended`.
verifying() {
    _run=$1 _device=$2 _how=$3
    shift 3
    rm -f "/tmp/$_run.status" "/tmp/$_run.json"
    (
        meantime bench --device "$_device" --completion "$_how" --no-control --verify crc32c --json "/tmp/$_run.json" \
            "$@" >"/tmp/$_run.out" 2>&1
        echo $? >"/tmp/$_run.status"
    ) &
}
# ended NAME WORDS STATUS…: the run ends in a minute, with one of these; no data are wrong, and an
# error has words.
ended() {
    _run=$1 _words=$2
    shift 2
    check "$_words: the run ends" until_true 60 [ -s "/tmp/$_run.status" ]
    _status=$(cat "/tmp/$_run.status")
    cat "/tmp/$_run.out"
    check "$_words: exit status $_status of $*" sh -c "echo ' $* ' | grep -q ' $_status '"
    if [ -s "/tmp/$_run.json" ]; then
        _checked=$(figure verified_blocks "/tmp/$_run.json")
        check "$_words: $_checked blocks are right" [ "$_checked" -gt 0 -a "$(figure verify_errors "/tmp/$_run.json")" = 0 ]
        fact "commands $(figure total_ios "/tmp/$_run.json")"
        fact "verified $_checked"
    else
        check "$_words: an error that is none of the data" sh -c "grep . '/tmp/$_run.out' && ! grep -i verif '/tmp/$_run.out'"
    fi
}

# tcp_connections: how many there are to the port of NVMe/TCP, seen from the host's side.
tcp_connections() { netstat -tn | grep -c ' 127.0.0.1:4420 *ESTABLISHED'; }
tcp_connected() { [ "$(tcp_connections)" -gt 0 ]; }
tcp_closed() { [ "$(tcp_connections)" = 0 ]; }
tcp_listening() { netstat -tln | grep -q '127.0.0.1:4420 '; }

# Linux's NVMe/TCP target.
#
# target_up NQN DEVICE…: a subsystem on 127.0.0.1:4420, for every host; DEVICEs are its namespaces,
# from 1 on.
nvmet=/sys/kernel/config/nvmet
target_up() {
    _nqn=$1
    shift
    modprobe nvmet-tcp
    configfs
    ip link set lo up
    mkdir "$nvmet/subsystems/$_nqn" "$nvmet/ports/1"
    echo 1 >"$nvmet/subsystems/$_nqn/attr_allow_any_host"
    _nsid=0
    for _device in "$@"; do
        _nsid=$((_nsid + 1))
        _namespace=$nvmet/subsystems/$_nqn/namespaces/$_nsid
        mkdir "$_namespace"
        [ -b "$_device" ] || echo 1 >"$_namespace/buffered_io"
        printf %s "$_device" >"$_namespace/device_path"
        echo 1 >"$_namespace/enable"
    done
    for _word in trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid=4420; do
        echo "${_word#*=}" >"$nvmet/ports/1/addr_${_word%%=*}"
    done
    target_link "$_nqn"
}
configfs() { [ -d /sys/kernel/config/nullb ] || [ -d $nvmet ] || mount -t configfs none /sys/kernel/config; }
# target_link NQN, target_unlink NQN: the port serves the subsystem, or does not any more, and hosts
# lose their connections.
target_link() { ln -s "$nvmet/subsystems/$1" "$nvmet/ports/1/subsystems/$1"; }
target_unlink() { rm "$nvmet/ports/1/subsystems/$1"; }

# ram_disk NAME BYTES_PER_BLOCK MIB [KEY=VALUE…]: a block device in memory, /dev/NAME, which can
# discard; with more of null_blk's attributes.
ram_disk() {
    modprobe null_blk nr_devices=0
    configfs
    _disk=/sys/kernel/config/nullb/$1 _words="blocksize=$2 size=$3"
    shift 3
    mkdir "$_disk"
    for _word in memory_backed=1 discard=1 $_words "$@" power=1; do
        echo "${_word#*=}" >"$_disk/${_word%%=*}"
    done
}

# Linux's NVMe/TCP host, without nvme-cli.
#
# linux_connect NQN [OPTION,…]: with options of /dev/nvme-fabrics, of which the last of a kind
# counts; to 127.0.0.1:4420.
linux_connect() {
    modprobe nvme-tcp
    ip link set lo up
    echo "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$1${2:+,$2}" >/dev/nvme-fabrics
}
# linux_controller NQN: its name, e.g. nvme0.
linux_controller() {
    for _c in /sys/class/nvme/nvme*; do
        [ "$(cat "$_c/transport" "$_c/subsysnqn" 2>/dev/null | tr '\n' ' ')" = "tcp $1 " ] && basename "$_c" && return
    done
    return 1
}
# linux_disk NQN NSID: the kernel's block device.
linux_disk() {
    _c=$(linux_controller "$1") || return 1
    for _n in "/sys/class/nvme/$_c"/nvme*n*; do
        [ "$(cat "$_n/nsid" 2>/dev/null)" = "$2" ] || continue
        _n=/dev/$(basename "$_n" | sed 's/c[0-9]*n/n/')
        [ -b "$_n" ] && echo "$_n" && return
    done
    return 1
}
# linux_state NQN STATE: whether its controller is in it: live, connecting, …
linux_state() { _c=$(linux_controller "$1") && [ "$(cat "/sys/class/nvme/$_c/state")" = "$2" ]; }
# linux_disconnect NQN: waits until it is gone.
linux_disconnect() {
    _c=$(linux_controller "$1") && echo 1 >"/sys/class/nvme/$_c/delete_controller" && [ ! -e "/sys/class/nvme/$_c" ]
}

# disk_sum DEVICE: SHA-256 of a whole block device, from the device and not from memory.
disk_sum() { dd if="$1" bs=128k iflag=direct 2>/dev/null | sha256sum | cut -d ' ' -f 1; }

# measure ROW DEVICE POLICY DISK: random reads of $bytes at depth 1, for $ms. The report goes to the
# host whole, with the numbers of interrupts and of reads that the kernel has counted meanwhile; DISK
# is the kernel's, or none.
measure() {
    before_interrupts=$(interrupts nvme) before_reads=$(reads "$4")
    if ! meantime bench --device "$2" --completion "$3" --no-control --rw randread --bs "$bytes" --norandommap \
        --ramp-time 500ms --runtime "${ms}ms" --time-based --json /tmp/json >/tmp/out 2>&1; then
        fail "$1"
        cat /tmp/out
        return
    fi
    say "report $1 $(($(interrupts nvme) - before_interrupts)) $(($(reads "$4") - before_reads))" >/dev/null
    cat /tmp/json >/dev/ttyS1
    say "end"
}

# reads DISK: how many reads the kernel has done on it.
reads() { [ -z "$1" ] && echo 0 || awk '{ print $1 }' "/sys/block/$1/stat"; }

# Lines of the kernel's log in which the IOMMU says that it has stopped a DMA.
dma_faults() { grep -E 'DMAR:.*(fault|DRHD: handling)'; }

# Linux 6.1 waits for a socket's lock while it polls NVMe/TCP, within RCU's read side, and says so.
known_of_tcp_poll='WARNING: CPU: .* rcu_note_context_switch'

# The last line of each test. What $known matches is a fault of the kernel's that is none of ours.
finish() {
    if dmesg | dma_faults; then
        fail "no DMA fault"
    else
        pass "no DMA fault"
    fi
    if dmesg | grep -E 'BUG:|Oops|WARNING: CPU|hung task|blocked for more than' | grep -Ev "${known:-^$}"; then
        fail "no complaint of the kernel"
    fi
    say "done"
    exit $((failures > 0))
}
