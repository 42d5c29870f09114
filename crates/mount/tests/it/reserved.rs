//! The blocks that a file system reserves are for those whom the kernel names.

use meantime_mount::Options;
use meantime_testkit::e2fs;

use crate::served::{Served, by_each_way};
use crate::way::Way;

by_each_way![
    reserved_blocks_are_for_some,
    a_thread_that_changes_its_user_changes_its_right,
    what_the_kernel_writes_back_has_no_right,
];

/// Serves a file system with 40 % of its blocks reserved for user 7 and group 30, whose other
/// blocks `nobody` has used up.
fn full(way: Way) -> Option<Served> {
    if !e2fs::has("setpriv") || !e2fs::has("setfattr") || !e2fs::has("python3") {
        return None;
    }
    let options = Options { allow_other: true, ..Options::default() };
    let mut served = Served::by_with(way, "24M", &["-b", "1024", "-m", "40"], &options)?;
    served.reserve_for(7, 30, &options);
    served.sh("chmod 755 .. .; mkdir all; chmod 777 all; truncate -s 1M all/holes");
    served.sh("touch all/old; chmod 666 all/*");
    let nobody = user(65_534, 65_534, "");
    served.sh(&format!(
        "! {nobody} dd if=/dev/zero of=all/fill bs=64k 2> /dev/null
         ! {nobody} dd if=/dev/zero of=all/rest bs=1k 2> /dev/null"
    ));
    let counts = served.sh("stat -f -c '%b %f %a' .");
    let counts: Vec<u64> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
    assert!(counts[1] * 10 > counts[0] * 4 && counts[2] == 0, "{counts:?}");
    Some(served)
}

/// Returns the beginning of a command that runs as this user. `groups` are supplementary ones.
fn user(uid: u32, gid: u32, groups: &str) -> String {
    let groups = match groups {
        "" => "--clear-groups".to_owned(),
        groups => format!("--groups {groups}"),
    };
    format!("setpriv --reuid {uid} --regid {gid} {groups}")
}

fn reserved_blocks_are_for_some(way: Way) {
    let Some(served) = full(way) else { return };
    let target = "t".repeat(200);
    let value = "v".repeat(600);
    let kinds = [
        ("write", "dd if=/dev/zero of=all/old bs=1k count=40 conv=notrunc"),
        ("append", "dd if=/dev/zero of=all/old bs=1k count=1 oflag=append conv=notrunc"),
        ("direct", "dd if=/dev/zero of=all/holes bs=64k count=1 seek=4 oflag=direct conv=notrunc"),
        ("into a hole", "dd if=/dev/zero of=all/holes bs=1k count=1 seek=70 conv=notrunc"),
        ("fallocate", "fallocate -l 70000 all/old"),
        ("mkdir", "mkdir all/new"),
        ("symlink", &format!("ln -s {target} all/new")),
        ("attribute", &format!("setfattr -n user.large -v {value} all/old")),
    ];
    let undo = "rm -rf all/new all/old all/holes
                truncate -s 1M all/holes; touch all/old; chmod 666 all/old all/holes";
    for (who, may) in [
        (user(65_534, 65_534, ""), false),
        (user(1000, 1000, ""), false),
        // The kernel does not tell us of these (docs/mount.md).
        (user(1000, 1000, "30"), false),
        (user(1000, 0, ""), false),
        (user(7, 7, ""), true),
        (user(1000, 30, ""), true),
        (user(0, 0, ""), true),
    ] {
        for (kind, command) in &kinds {
            let command = format!("LC_ALL=C {who} {command} 2>&1");
            if may {
                served.sh(&command);
            } else {
                let said = served.sh(&format!("! {command}"));
                assert!(said.contains("No space left"), "{who}, {kind}: {said}");
            }
            served.sh(undo);
        }
    }
    // The mount writes data for which root has a promise, whichever user causes the writeback. The
    // user `nobody` has gained nothing.
    served.sh("dd if=/dev/urandom of=all/roots bs=1k count=500 2> /dev/null; cp all/roots ..");
    let nobody = user(65_534, 65_534, "");
    served.sh(&format!("{nobody} sync all/roots; {nobody} fallocate -l 1 all/old || true"));
    served.sh("cmp all/roots ../roots; test $(stat -f -c %a .) = 0; rm all/fill");
    served.sh(&format!("{nobody} dd if=/dev/zero of=all/again bs=1k count=500 2> /dev/null"));
    served.end();
}

/// This also holds for a thread whose calls took the shared-memory path before.
fn a_thread_that_changes_its_user_changes_its_right(way: Way) {
    let Some(served) = full(way) else { return };
    let script = "
import ctypes, errno, os
libc = ctypes.CDLL(None)
fd = os.open('all/mine', os.O_RDWR | os.O_CREAT, 0o666)
def write(expected):
    try:
        written = os.pwrite(fd, b'x' * 2048, os.fstat(fd).st_size)
        assert expected == 2048 == written, written
    except OSError as error:
        assert error.errno == expected == errno.ENOSPC, error
write(2048)
for _ in range(3):
    libc.setfsuid(65534)
    write(errno.ENOSPC)
    libc.setfsuid(0)
    write(2048)
os.fsync(fd)
assert os.fstat(fd).st_size == 4 * 2048
";
    std::fs::write(served.beside("script.py"), script).unwrap();
    served.sh("python3 ../script.py");
    served.end();
}

/// This holds whichever user stored into the mapping: the kernel's requests have no user.
fn what_the_kernel_writes_back_has_no_right(way: Way) {
    let Some(served) = full(way) else { return };
    let script = "
import errno, mmap, os, sys
user, place = int(sys.argv[1]), int(sys.argv[2])
fd = os.open('all/holes', os.O_RDWR)
at = mmap.mmap(fd, 1 << 20)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
at[place] = 1
try:
    at.flush()
    print('written')
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    print('refused')
";
    std::fs::write(served.beside("script.py"), script).unwrap();
    let store = |user, at| served.sh(&format!("python3 ../script.py {user} {at}"));
    for (user, at) in [(65_534, 70_000), (0, 80_000)] {
        assert_eq!(store(user, at), "refused", "{user}");
    }
    served.sh("rm all/fill");
    for (user, at) in [(65_534, 90_000), (0, 100_000)] {
        assert_eq!(store(user, at), "written", "{user}");
    }
    served.end();
}
