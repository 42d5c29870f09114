#!/bin/sh
# Linux's NVMe/TCP host on our target, which is on the loopback interface: verified I/O with its
# options, a file system, and what becomes of I/O while the target is away or cuts connections.
#
# machine: cpus=2 seconds=420
. /lib.sh
known=$known_of_tcp_poll
# What hangs fails, and the test goes on.
meantime() { timeout 40 /bin/meantime "$@"; }
nqn=nqn.2014-08.org.example:our-target
modprobe nvme-tcp
ip link set lo up

# serve URI ARGUMENTS…: our target, until `stop`.
serve() {
    _medium=$1
    shift
    /bin/meantime ssd --tcp 127.0.0.1:4420 --nqn $nqn "$@" "$_medium" >/tmp/ssd.out 2>/tmp/ssd.err &
    ssd=$!
    until_true 30 tcp_listening || { fail "the target listens"; cat /tmp/ssd.out /tmp/ssd.err; }
}
stop() {
    kill -TERM $ssd
    wait $ssd
    check "the target ends well" [ $? = 0 ]
    cat /tmp/ssd.out /tmp/ssd.err
}
# connect OPTION,…: Linux's host; waits for the namespace, which is $dev then.
connect() {
    check "connect $1" linux_connect $nqn "$1"
    check "the namespace appears" until_true 20 linux_disk $nqn 1
    dev=$(linux_disk $nqn 1)
}
disconnect() {
    check "disconnect" linux_disconnect $nqn
    check "no connection is left" until_true 10 tcp_closed
}
# attribute NAME: of Linux's controller.
attribute() { cat "/sys/class/nvme/$(linux_controller $nqn)/$1"; }
# first DEVICE BLOCK_SIZE: SHA-256 of what /tmp/data has been written to.
mib=${long:+16}
mib=${mib:-4}
first() { dd if="$1" bs="$2" iflag=direct 2>/dev/null | head -c $((mib << 20)) | sha256sum; }

serve "mem:32M?lba=4096"
connect ""
check "its size" [ "$(cat "/sys/block/${dev#/dev/}/size")" = 65536 ]
check "its blocks" [ "$(cat "/sys/block/${dev#/dev/}/queue/logical_block_size")" = 4096 ]
check "our discover" meantime discover nvme+tcp://127.0.0.1
says "discover: the subsystem" "$nqn"
# Writes that go with the command, and those for which the target asks (R2T).
for bytes in 4k 16k 128k 1M; do
    dd if=/dev/urandom of=/tmp/data bs=1M count=$mib 2>/dev/null
    check "dd writes, bs=$bytes" dd if=/tmp/data of="$dev" bs=$bytes oflag=direct
    check "dd reads, bs=$bytes" [ "$(first "$dev" $bytes)" = "$(sha256sum </tmp/data)" ]
done
for depth in 1 4 32; do
    verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 4m --iodepth $depth
done
verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 2m --iodepth 4 --fsync 4
verified "kernel:$dev" interrupt --rw randrw --bs 256k --size 8m --iodepth 8
check "trim" meantime bench --device "kernel:$dev" --completion interrupt --no-control --rw trim --bs 64k --size 1m

disconnect

# Linux's options.
for options in hdr_digest data_digest hdr_digest,data_digest disable_sqflow disable_sqflow,hdr_digest,data_digest queue_size=16; do
    connect $options
    verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 2m --iodepth 8
    verified "kernel:$dev" interrupt --rw randrw --bs 128k --size 4m --iodepth 2
    disconnect
done
connect nr_io_queues=2,nr_poll_queues=1
check "queues: $(attribute queue_count)" [ "$(attribute queue_count)" = 4 ]
verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 4m --iodepth 8 --numjobs 2
verified "kernel:$dev" poll --rw randrw --bs 4k --size 2m --iodepth 4
# More data than the target has buffers for: nobody may wait for one that another holds.
verified "kernel:$dev" interrupt --rw randwrite --bs 64k --size 24m --iodepth 64 --numjobs 4
disconnect
stop

# A file system on a medium that is a file. The target ends in between.
serve "file:/tmp/medium?create=48M&lba=4096"
connect reconnect_delay=1
check "a file system" meantime fs mkfs "kernel:$dev"
mkdir /tmp/mnt
check "mount" mount -t ext4 "$dev" /tmp/mnt
check "a file goes there" cp /tmp/data /tmp/mnt/data
check "umount" umount /tmp/mnt
disconnect
stop
serve "file:/tmp/medium?lba=4096"
connect reconnect_delay=1
check "mount again" mount -t ext4 "$dev" /tmp/mnt
check "the file is there" [ "$(sha256sum </tmp/mnt/data)" = "$(sha256sum </tmp/data)" ]
check "umount again" umount /tmp/mnt
check "nothing is damaged" meantime fs check "kernel:$dev"

# The target ends, or is killed, in mid-run, and is started again: Linux's host goes on.
for signal in TERM KILL; do
    verifying run "kernel:$dev?overwrite=1" interrupt --rw randrw --bs 4k --size 16m --iodepth 8 --runtime "$(for_seconds 10)" --time-based
    sleep 2
    kill -$signal $ssd
    wait $ssd
    check "SIG$signal: Linux's host sees it" until_true 10 linux_state $nqn connecting
    serve "file:/tmp/medium?lba=4096"
    check "SIG$signal: it connects again" until_true 20 linux_state $nqn live
    ended run "SIG$signal" 0
done
disconnect
stop

# Connections end between two commands or within an answer, digests are wrong: Linux connects
# again, or repeats.
recoveries() { dmesg | grep -c "$1"; }
# faulty PLAN OPTION,… SAID: a run with such faults; Linux's host says so. While it connects it does
# not notice that a connection has ended, and waits a minute for an answer: then once more, with
# another seed.
faulty() {
    for seed in 1 2 3; do
        serve "mem:32M?lba=4096" --net-faults "$1,seed=$seed"
        check "$1: connect" until_true 30 linux_connect $nqn "reconnect_delay=1${2:+,$2}"
        check "$1: the namespace appears" until_true 30 linux_disk $nqn 1
        dev=$(linux_disk $nqn 1)
        before=$(recoveries "$3")
        verifying run "kernel:$dev" interrupt --rw randrw --bs 4k --size 16m --iodepth 8 --runtime 10 --time-based
        until_true 35 [ -s /tmp/run.status ] && break
        linux_state $nqn connecting || break
        say "note $1: Linux waits for what was lost while it connected"
        linux_disconnect $nqn
        stop
    done
    ended run "$1" 0
    had=$(($(recoveries "$3") - before))
    check "$1: $had times, Linux's host: $3" [ $had -gt 0 ]
    disconnect
    stop
}
# Few of them: reconnecting very often, Linux 6.1 corrupts its own heap now and then.
faulty drop=1/3000,cut=1/3000 "" "Reconnecting in"
faulty ddgst=1/300 data_digest "digest error"

# Only one host may.
serve "mem:16M" --host nqn.2014-08.org.example:host
refused "another host" "write error|error" linux_connect $nqn hostnqn=nqn.2014-08.org.example:other
connect hostnqn=nqn.2014-08.org.example:host
disconnect

# Two targets are two subsystems, also to a host that compares what identifies a namespace.
other=nqn.2014-08.org.example:another-target
/bin/meantime ssd --tcp 127.0.0.1:4421 --nqn $other mem:16M >/tmp/other.out 2>&1 &
second=$!
connect hostnqn=nqn.2014-08.org.example:host
check "another target" until_true 10 linux_connect $other trsvcid=4421
check "its namespace appears, too" until_true 20 linux_disk $other 1
check "they are two" [ "$(linux_disk $other 1)" != "$dev" ]
check "disconnect from the other" linux_disconnect $other
kill -TERM $second
wait $second
disconnect
stop
refused "no target" "write error|error" linux_connect $nqn
finish
