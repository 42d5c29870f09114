#!/bin/sh
# Our NVMe/TCP host on Linux's target, which is on the loopback interface: what it shows and finds,
# verified I/O of every size, digests, what the target refuses, and what becomes of I/O while the
# target is away.
#
# machine: cpus=2 seconds=420
. /lib.sh
# What hangs fails, and the test goes on.
meantime() { timeout 40 /bin/meantime "$@"; }
nqn=nqn.2014-08.org.example:linux-target
target=nvme+tcp://127.0.0.1/$nqn
uri="$target?nsid=1" small="$target?nsid=2"
ram_disk nullb0 4096 32
ram_disk nullb1 512 16
target_up $nqn /dev/nullb0 /dev/nullb1

# Linux's own host, so that what fails below is not the target's or the guest's.
check "Linux's host connects" linux_connect $nqn
check "Linux's host finds its namespaces" until_true 10 linux_disk $nqn 2
dev=$(linux_disk $nqn 1)
verified "kernel:$dev" interrupt --rw randrw --bs 4k --size 4m --iodepth 4
check "Linux's host reads what is there" [ "$(disk_sum "$dev")" = "$(disk_sum /dev/nullb0)" ]

# Both at once; one reads what the other has written.
dd if=/dev/urandom of="$dev" bs=1M count=8 oflag=direct 2>/dev/null
check "we read what Linux's host has written" [ "$(our_sum "$uri")" = "$(disk_sum "$dev")" ]
check "Linux's host disconnects" linux_disconnect $nqn

check "info" meantime info --device "$uri"
says "info: the model" "Linux"
says "info: the transport" "TCP|tcp"
check "discover" meantime discover nvme+tcp://127.0.0.1
says "discover: the subsystem" "$nqn"
check "discover: a port by name" meantime discover nvme+tcp://127.0.0.1:4420

# The depths, and the ways to wait.
for how in poll interrupt adaptive; do
    for depth in ${long:+1 4} 32; do
        verified "$uri" $how --rw randrw --bs 4k --size 3m --iodepth $depth
    done
done
verified "$small" interrupt --rw randrw --bs 512 --size 256k --iodepth 16
# In the capsule, its limit of 16 KiB, and above, where the target asks for the data (R2T).
for bytes in 16k 20k 64k; do
    verified "$uri" interrupt --rw randrw --bs $bytes --size 8m --iodepth 4
done
verified "$uri" interrupt --rw randrw --bs 1m --size 32m --iodepth 4
verified "$uri" poll --rw randrw --bs 4k --size 4m --iodepth 8 --numjobs 2
for digest in header data header+data; do
    verified "$uri&digest=$digest" interrupt --rw randrw --bs 4k --size 2m --iodepth 4
    verified "$uri&digest=$digest" poll --rw randrw --bs 256k --size 4m --iodepth 2
done
verified "$uri" interrupt --rw randrw --bs 4k --size 2m --iodepth 4 --fsync 4
ours=$(our_sum "$uri")
check "the device has what we wrote" [ "$ours" = "$(disk_sum /dev/nullb0)" ]
check "and with digests" [ "$ours" = "$(our_sum "$uri&digest=header+data")" ]

# What is deallocated reads as zeroes of this device, and its neighbours stay.
zeroes() { [ "$(dd if=/dev/nullb0 bs=64k count=16 iflag=direct 2>/dev/null | tr -d '\000' | wc -c)" = 0 ]; }
rest() { dd if=/dev/nullb0 bs=64k skip=16 iflag=direct 2>/dev/null | sha256sum; }
before=$(rest)
check "trim" meantime bench --device "$uri" --completion interrupt --no-control --rw trim --bs 64k --size 1m
check "trimmed" zeroes
check "nothing else is" [ "$(rest)" = "$before" ]

# A file system; mkfs also writes zeroes. Afterwards Linux mounts it.
dd if=/dev/urandom of=/tmp/file bs=64k count=80 2>/dev/null
sum=$(sha256sum </tmp/file)
check "a file system" meantime fs mkfs --force "$uri"
check "a file goes there" meantime fs put /tmp/file "$uri:/file"
check "the file" [ "$(meantime fs cat "$uri:/file" | sha256sum)" = "$sum" ]
check "nothing is damaged" meantime fs check "$uri"
mkdir /tmp/mnt
check "Linux mounts it" mount -t ext4 -o ro /dev/nullb0 /tmp/mnt
check "the file by Linux" [ "$(sha256sum </tmp/mnt/file)" = "$sum" ]
umount /tmp/mnt
# From here on it may be lost.
uri="$uri&overwrite=1"

# one URI ARGUMENTS…: a short run of reads.
one() {
    _uri=$1
    shift
    meantime bench --device "$_uri" --completion interrupt --no-control --rw read --bs 4k --number-ios 10 "$@"
}
refused "another NQN" "nqn.2014-08.org.example:nobody" one "nvme+tcp://127.0.0.1/nqn.2014-08.org.example:nobody?nsid=1"
refused "another namespace" "[Nn]amespace" one "$target?nsid=7"
refused "another port" "refused" one "nvme+tcp://127.0.0.1:4421/$nqn?nsid=1"
refused "discover where nobody is" "refused" meantime discover nvme+tcp://127.0.0.1:4421
host=nqn.2014-08.org.example:host
echo 0 >$nvmet/subsystems/$nqn/attr_allow_any_host
refused "a host that may not" "[Hh]ost" one "$uri&hostnqn=$host"
mkdir $nvmet/hosts/$host
ln -s $nvmet/hosts/$host $nvmet/subsystems/$nqn/allowed_hosts/$host
check "a host that may" one "$uri&hostnqn=$host"
rm $nvmet/subsystems/$nqn/allowed_hosts/$host
echo 1 >$nvmet/subsystems/$nqn/attr_allow_any_host

# A path that the target says does not lead to the data, for the time being.
ana=$nvmet/ports/1/ana_groups/1/ana_state
for state in inaccessible:[Ii]naccessible persistent-loss:[Pp]ersistent.[Ll]oss; do
    echo ${state%:*} >$ana
    refused "ANA state ${state%:*}, by name" "${state#*:}" one "$uri"
done
echo non-optimized >$ana
check "ANA state non-optimized" one "$uri"
echo optimized >$ana

# The target drops its hosts, and is there again: a run goes on, or ends with an error.
for how in interrupt poll; do
    verifying away "$uri" $how --rw randrw --bs 4k --size 16m --iodepth 8 --runtime "$(for_seconds 12)" --time-based
    until_true 30 tcp_connected
    sleep 2
    target_unlink $nqn
    sleep 2
    target_link $nqn
    ended away "$how: the target away for 2 s" 0 1
    say "note $how, target away: exit status $(cat /tmp/away.status)"
done

# A program that is killed leaves nothing behind.
verifying killed "$uri" poll --rw randwrite --bs 64k --size 16m --iodepth 16 --runtime 60 --time-based
until_true 30 tcp_connected
sleep 2
kill -KILL "$(pidof meantime)"
check "killed" until_true 10 [ -s /tmp/killed.status ]
verified "$uri" interrupt --rw randrw --bs 4k --size 2m --iodepth 4
check "no connection is left" until_true 10 tcp_closed
finish
