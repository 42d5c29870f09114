#!/bin/sh
# NVMe/TCP hosts, Linux's and ours, one after the other as $rows orders them (by the kernel's
# command line), on Linux's target over the loopback interface; its device answers at once. A row is
# null/BYTES/WAY, BYTES the namespace's block size and that of the reads. Each row is measured for
# $ms (`measure` in lib.sh).
#
# machine: cpus=2 seconds=600
. /lib.sh
known=$known_of_tcp_poll

nqn=nqn.2014-08.org.example:bench
ram_disk nullb0 4096 1024 memory_backed=0
ram_disk nullb1 512 1024 memory_backed=0
target_up $nqn /dev/nullb0 /dev/nullb1
# Both hosts are connected for a row only. Without SQ flow control, as
# ours has none, a read ends with its data.
for row in $(echo "$rows" | tr , ' '); do
    way=${row##*/} bytes=${row#*/} && bytes=${bytes%/*}
    nsid=1
    [ "$bytes" = 4096 ] || nsid=2
    case $way in
        kernel-*)
            linux_connect $nqn disable_sqflow,nr_io_queues=1,nr_poll_queues=1
            until_true 10 linux_disk $nqn 2
            disk=$(linux_disk $nqn $nsid)
            measure "$row" "kernel:$disk" "${way#kernel-}" "$(basename "$disk")"
            linux_disconnect $nqn
            ;;
        ours-*) measure "$row" "nvme+tcp://127.0.0.1/$nqn?nsid=$nsid" "${way#ours-}" "" ;;
    esac
done
finish
