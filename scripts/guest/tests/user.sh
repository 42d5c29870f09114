#!/bin/sh
# An ordinary user, after one command of root's.
#
# machine: seconds=180
# nvme: a ns=16M/512
. /lib.sh
modprobe nvme
until_true 10 disk a 1
a=$(address a)
chmod 1777 /tmp
# as_user LIMIT COMMAND…: with so much lockable memory, in KiB.
as_user() {
    _limit=$1
    shift
    (
        ulimit -l "$_limit"
        exec su user -c "cd /tmp && $*"
    )
}
run="meantime bench --device vfio:$a --completion poll --no-control --rw randread --bs 4k --number-ios 2000"

refused "a user cannot bind" "root" as_user unlimited "meantime bind $a"
check "a user can look" as_user unlimited "meantime devices"
check "bind --owner" meantime bind --owner user "$a"
refused "too little lockable memory" "RLIMIT_MEMLOCK" as_user 64 "$run"
check "enough of it" as_user 65536 "$run"
check "by interrupt" as_user 65536 "meantime bench --device vfio:$a --completion interrupt --no-control --rw randread --bs 4k --number-ios 2000"
check "unbind" meantime unbind "$a"
check "given back" until_true 10 disk a 1
finish
