#!/bin/sh
# Ways to wait, one after the other, as $rows orders them (by the kernel's command line): a row is
# CONTROLLER/BYTES/WAY. BYTES is the namespace's block size and that of the reads. Each row is
# measured for $ms (`measure` in lib.sh).
#
# machine: seconds=600 kernel="nvme.poll_queues=1"
# nvme: null ns=1G/512+1G/4096 medium=null
# nvme: slow ns=1G/512 medium=null latency_us=100
. /lib.sh

modprobe nvme
until_true 10 disk null 2
until_true 10 disk slow 1
null=$(address null) slow=$(address slow)

for row in $(echo "$rows" | tr , ' '); do
    controller=${row%%/*} way=${row##*/}
    bytes=${row#*/} && bytes=${bytes%/*}
    case $controller in
        null) a=$null ;;
        slow) a=$slow ;;
    esac
    nsid=1
    [ "$bytes" = 512 ] || nsid=2
    case $way in
        kernel-*)
            is_driver "$a" nvme || meantime unbind "$a"
            until_true 10 disk "$controller" $nsid
            disk=$(basename "$(disk "$controller" $nsid)")
            delay=-1 how=poll
            case $way in
                *-interrupt) how=interrupt ;;
                # Half the mean of what the kernel has seen, and a time of our own.
                *-hybrid) delay=0 ;;
                *-hybrid-*) delay=${way##*-} ;;
            esac
            echo $delay >"/sys/block/$disk/queue/io_poll_delay"
            measure "$row" "kernel:/dev/$disk" $how "$disk"
            ;;
        ours-*)
            is_driver "$a" vfio-pci || meantime bind "$a"
            measure "$row" "vfio:$a?nsid=$nsid" "${way#ours-}" ""
            ;;
    esac
done
finish
