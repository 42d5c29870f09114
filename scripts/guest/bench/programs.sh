#!/bin/sh
# Programs on one disk, in $turns turns: on the kernel's ext4, on ours by `meantime run`, and on ours
# without the shared-memory path. Says `time PROGRAM WAY µs` of an operation each.
#
# machine: cpus=2 seconds=1800 memory_mib=2048
# nvme: a ns=512M/4096
. /lib.sh

modprobe nvme
modprobe ext4
modprobe fuse
until_true 10 disk a 1
a=$(address a)
check "a file system" meantime fs mkfs "kernel:$(disk a 1)"
mkdir /tmp/mnt

# program PROGRAM: prints what it says in the file system's directory.
cat >/tmp/program <<'PROGRAM'
cd /tmp/mnt || exit
fio="fio --name=x --thread=0 --output-format=json --ioengine=psync --bs=4k --size=32m --filename=f --fallocate=none
    --clocksource=clock_gettime --time_based --runtime=3"
db="db_bench --db=db --compression_type=none --value_size=400 --cache_size=1000000"
case $1 in
    fill) dd if=/dev/zero of=f bs=1M count=32 conv=fsync ;;
    read-direct) $fio --rw=randread --norandommap --direct=1 ;;
    write-fdatasync) $fio --rw=randwrite --norandommap --fdatasync=1 ;;
    sqlite-insert)
        rm -f t.db
        (
            echo "create table t (id integer primary key, text blob);"
            for n in $(seq 100); do echo "insert into t (text) values (zeroblob(3000));"; done
        ) >/tmp/sql
        begin=$(cut -d ' ' -f 1 /proc/uptime)
        sqlite3 t.db </tmp/sql
        echo "us $(echo "$begin $(cut -d ' ' -f 1 /proc/uptime)" | awk '{ print ($2 - $1) * 10000 }')"
        ;;
    rocksdb-fillsync) rm -rf db; $db --benchmarks=fillsync --num=300 ;;
    rocksdb-readrandom)
        rm -rf db
        $db --benchmarks=fillseq --num=5000 >/dev/null
        $db --use_existing_db=1 --benchmarks=readrandom --num=5000
        ;;
esac
PROGRAM

# micros: what an operation took, by what a program has said.
micros() {
    awk '
        /^us / { us = $2 }
        / micros\/op / { us = $3 }
        /"(read|write|trim|sync)" : \{/ { is_counted = $1 ~ /read|write/ }
        is_counted && /"total_ios" : / { ios += $3 }
        is_counted && /"runtime" : [0-9]/ && $3 + 0 > ms { ms = $3 + 0 }
        END { print us ? us : ios ? ms * 1000 / ios : "" }' "$1"
}

on() {
    case $1 in
        kernel)
            is_driver "$a" nvme || meantime unbind "$a"
            until_true 10 disk a 1
            mount -t ext4 "$(disk a 1)" /tmp/mnt || return
            sh /tmp/program "$2"
            _status=$?
            umount /tmp/mnt
            return $_status
            ;;
        *)
            is_driver "$a" vfio-pci || meantime bind "$a"
            [ "$1" = short ] && _how= || _how=--no-shared-memory
            meantime run $_how --device "vfio:$a" --at /tmp/mnt -- sh /tmp/program "$2"
            ;;
    esac
}

check "the file that is read" on kernel fill
for turn in $(seq "$turns"); do
    for program in $(echo "$programs" | tr , ' '); do
        for way in kernel short long; do
            if on $way "$program" >/tmp/out 2>&1 && us=$(micros /tmp/out) && [ "$us" ]; then
                say "time $program $way $us"
            else
                fail "$program $way"
                cat /tmp/out
            fi
        done
    done
done
finish
