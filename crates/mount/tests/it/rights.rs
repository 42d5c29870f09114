//! Permissions, and the attributes that define them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use meantime_mount::Options;
use meantime_testkit::e2fs;
use rustix::fs::{FallocateFlags, XattrFlags, copy_file_range, fallocate};
use rustix::io::Errno;

use crate::served::{Served, by_each_way};
use crate::way::Way;

fn for_all() -> Options {
    Options { allow_other: true, ..Options::default() }
}

/// Runs the following command as an unprivileged user.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn the_kernel_checks_permissions_by_what_the_disk_says() {
    let Some(served) = Served::new("64M", &for_all()) else { return };
    if !e2fs::has("setpriv") {
        return;
    }
    // Other users have to reach the mount's directory.
    served
        .sh("chmod 755 .. .; echo secret > secret; chmod 600 secret; mkdir open; chmod 1777 open");
    served.sh(&format!("! {NOBODY} cat secret 2> /dev/null"));
    served.sh(&format!("! {NOBODY} touch new 2> /dev/null"));
    served.sh(&format!("umask 027; {NOBODY} touch open/own; {NOBODY} mkdir open/dir"));
    let owned = served.sh("stat -c '%u %g %a' open/own open/dir");
    assert_eq!(owned, "65534 65534 640\n65534 65534 750");
    served.sh("touch open/root");
    served.sh(&format!("! {NOBODY} rm -f open/root 2> /dev/null"));
    served.sh(&format!("! {NOBODY} chown 0 open/own 2> /dev/null"));
    // A set-group directory passes its group on.
    served.sh("mkdir group; chgrp 12 group; chmod 2777 group");
    served.sh(&format!("{NOBODY} mkdir group/sub; {NOBODY} touch group/file"));
    let owned = served.sh("stat -c '%g %a' group/sub group/file");
    assert_eq!(owned, "12 2755\n12 644");
    served.end();
}

by_each_way![
    set_user_bits_go_when_somebody_else_writes,
    what_others_own_is_theirs,
    what_is_immutable_or_append_only_stays_so,
];

/// Runs `commands` in the mount's root, each as the user in its first part. Each has to fail with
/// one of these errors.
fn are_refused(served: &Served, commands: &[(&str, &str)]) {
    for (who, command) in commands {
        let said = served.sh(&format!("! LC_ALL=C {who} {command} 2>&1"));
        let is_refusal = ["not permitted", "denied"].iter().any(|words| said.contains(words));
        assert!(is_refusal, "{who} {command}: {said}");
    }
}

fn set_user_bits_go_when_somebody_else_writes(way: Way) {
    let Some(served) = Served::by(way, "64M", &for_all()) else { return };
    if !e2fs::has("setpriv") {
        return;
    }
    served.sh("chmod 755 .. .");
    for (change, left) in [
        ("sh -c 'echo more >> program'", "777"),
        ("sh -c 'echo anew > program'", "777"),
        ("truncate -s 3 program", "777"),
        ("fallocate -l 100000 program", "777"),
        ("cat program", "6777"),
    ] {
        served.sh("echo '#!/bin/sh' > program; chmod 6777 program");
        served.sh(&format!("{NOBODY} {change}"));
        assert_eq!(served.sh("stat -c %a program"), left, "{change}");
    }
    // A set-group bit without group execution, for which the kernel sends no flag.
    for (group, left) in [(0, "666"), (65_534, "2666")] {
        for change in [
            "fallocate -l 200000 program",
            "dd if=/dev/zero of=program bs=1k count=1 conv=notrunc status=none",
            "dd if=/dev/zero of=program bs=4k count=1 oflag=direct conv=notrunc status=none",
            "truncate -s 3 program",
            "sh -c 'echo anew > program'",
        ] {
            served.sh(&format!("chgrp {group} program; chmod 6666 program; {NOBODY} {change}"));
            assert_eq!(served.sh("stat -c %a program"), left, "{group} {change}");
        }
    }
    served.sh("chown 65534:12 program; chmod 2644 program");
    served.sh(&format!("{NOBODY} chgrp 65534 program"));
    assert_eq!(served.sh("stat -c %a program"), "644", "a change of the group by its owner");
    served.sh("chown 0:0 program");
    served.sh("echo x > program; chmod 6777 program; echo y >> program");
    assert_eq!(served.sh("stat -c %a program"), "6777", "root's may stay");
    served.sh("chown 1 program");
    assert_eq!(served.sh("stat -c %a program"), "777");
    served.sh("chmod 2666 program; chown 2 program; echo z >> program");
    assert_eq!(served.sh("stat -c %a program"), "2666", "root's without group execution, too");
    served.sh("chgrp 12 program; chmod 6666 program; chown 3 program");
    assert_eq!(served.sh("stat -c %a program"), "2666", "also of a group that root is not in");
    served.used(|dir| {
        // `struct vfs_cap_data`, version 2: all bits are clear except the version.
        let mut capability = [0; 20];
        capability[..4].copy_from_slice(&0x0200_0000_u32.to_le_bytes());
        let name = "security.capability";
        let path = dir.join("program");
        rustix::fs::setxattr(&path, name, &capability, XattrFlags::empty()).unwrap();
        assert_eq!(rustix::fs::getxattr(&path, name, &mut [0; 64][..]), Ok(20));
        fs::write(&path, b"other").unwrap();
        let gone = rustix::fs::getxattr(&path, name, &mut [0; 64][..]);
        assert_eq!(gone, Err(rustix::io::Errno::NODATA), "a program that was changed");
    });
    served.end();
}

/// Sticky directories, owners, modes, flags, and what only root may.
fn what_others_own_is_theirs(way: Way) {
    let Some(served) = Served::by(way, "64M", &for_all()) else { return };
    if !["setpriv", "chattr", "setfattr", "fstrim"].into_iter().all(e2fs::has) {
        return;
    }
    served.sh("chmod 755 .. .; mkdir sticky; chmod 1777 sticky; cd sticky; mkdir dir group");
    served.sh("cd sticky; echo x > root; chmod 666 root; setfattr -n trusted.t -v t root");
    served.sh("cd sticky; chgrp 12 group; chmod 2777 group");
    served.sh(&format!("cd sticky; {NOBODY} touch own own2"));
    const OTHER: &str = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    are_refused(
        &served,
        &[
            (NOBODY, "rm -f sticky/root"),
            (NOBODY, "rmdir sticky/dir"),
            (NOBODY, "mv sticky/root sticky/other"),
            (NOBODY, "mv sticky/own sticky/root"),
            (OTHER, "rm -f sticky/own"),
            (OTHER, "mv sticky/own sticky/other"),
            (NOBODY, "chmod 600 sticky/root"),
            (NOBODY, "chown 65534 sticky/root"),
            (NOBODY, "chown 0 sticky/own"),
            (NOBODY, "chgrp 12 sticky/own"),
            (NOBODY, "touch -d 2001-01-01 sticky/root"),
            (NOBODY, "setfattr -n trusted.t -v t sticky/own"),
            (
                NOBODY,
                "setfattr -n security.capability -v 0sAAAAAgAAAAAAAAAAAAAAAAAAAAA= sticky/own",
            ),
            (NOBODY, "chattr +A sticky/root"),
            (NOBODY, "chattr +i sticky/own"),
            (NOBODY, "chattr +a sticky/own"),
            (NOBODY, "fstrim ."),
        ],
    );
    served.sh(&format!(
        "cd sticky; {NOBODY} chattr +A own; {NOBODY} chmod 2755 own; {NOBODY} chgrp 65534 own
         {NOBODY} mv own2 own; {NOBODY} rm own
         test -z \"$({NOBODY} getfattr -d -m - root 2> /dev/null)\"
         getfattr -d -m - root | grep -q trusted
         {OTHER} touch group/of; {OTHER} chmod 2755 group/of; {OTHER} mkdir group/dir"
    ));
    // A file of a user who is not in the group does not get the set-group bit; a directory hands it
    // on.
    assert_eq!(served.sh("stat -c '%g %a' sticky/group/of sticky/group/dir"), "12 755\n12 2755");
    served.end();
}

fn what_is_immutable_or_append_only_stays_so(way: Way) {
    let Some(served) = Served::by(way, "64M", &for_all()) else { return };
    if !["chattr", "setfattr", "setpriv", "python3"].into_iter().all(e2fs::has) {
        return;
    }
    served.sh("chmod 755 .. .; echo text > fixed; echo text > grows; echo text > other");
    served.sh("mkdir shut log; touch shut/in log/in; chattr +i fixed shut; chattr +a grows log");
    // Root runs each of these commands.
    let of_both = [
        "sh -c 'echo x > NAME'",
        "truncate -s 1 NAME",
        "chmod 600 NAME",
        "chown 1 NAME",
        "touch -d 2001-01-01 NAME",
        "rm -f NAME",
        "mv NAME elsewhere",
        "mv other NAME",
        "ln NAME elsewhere",
        "setfattr -n user.u -v u NAME",
        "dd if=/dev/zero of=NAME bs=1 count=1 conv=notrunc",
    ];
    for name in ["fixed", "grows"] {
        for command in of_both {
            are_refused(&served, &[("", &command.replace("NAME", name))]);
        }
    }
    let more = [
        "sh -c 'echo x >> fixed'",
        "touch fixed",
        "fallocate -l 9000 fixed",
        "touch shut/new",
        "mkdir shut/new",
        "ln -s t shut/new",
        "ln other shut/new",
        "mv other shut/new",
        "rm -f shut/in",
        "rm -f log/in",
        "mv log/in elsewhere",
    ];
    more.iter().for_each(|command| are_refused(&served, &[("", command)]));
    served.sh("echo more >> grows; touch grows; touch log/new; mkdir log/dir; ln other log/link");
    assert_eq!(served.sh("cat grows"), "text\nmore");
    // The descriptors were opened before. As in ext4, nothing of an immutable file is changed until
    // it is not immutable any more, and a write that was accepted is not lost.
    let script = "
import errno, mmap, os, subprocess
def refused(what):
    try:
        what()
    except OSError as error:
        assert error.errno == errno.EPERM, error
    else:
        raise SystemExit('not refused')
fd = os.open('other', os.O_RDWR)
direct = os.open('other', os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
os.pwrite(fd, b'1' * 8192, 0)
subprocess.check_call(['chattr', '+i', 'other'])
refused(lambda: os.pwrite(fd, b'2', 0))
refused(lambda: os.pwrite(fd, b'2', 8192))
refused(lambda: os.pwritev(direct, [page], 0))
refused(lambda: os.ftruncate(fd, 1))
refused(lambda: os.posix_fallocate(fd, 0, 100000))
os.fsync(fd)
assert os.pread(fd, 9000, 0) == b'1' * 8192
subprocess.check_call(['chattr', '-i', 'other'])
os.pwrite(fd, b'3', 0)
subprocess.check_call(['chattr', '+a', 'other'])
os.pwrite(fd, b'4', 0)
refused(lambda: os.ftruncate(fd, 1))
subprocess.check_call(['chattr', '-a', 'other'])
end = os.open('grows', os.O_WRONLY | os.O_APPEND)
os.pwrite(end, b'last', 0)
refused(lambda: os.ftruncate(end, 1))
";
    std::fs::write(served.beside("script.py"), script).unwrap();
    served.sh("python3 ../script.py");
    assert_eq!(served.sh("cat grows"), "text\nmore\nlast");
    served.sh("chattr -i fixed shut; chattr -a grows log; rm -rf *");
    served.end();
}

#[test]
fn attributes_are_set_listed_and_removed() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let path = dir.join("file");
        fs::write(&path, b"").unwrap();
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        set("user.one", b"1", XattrFlags::empty()).unwrap();
        set("trusted.two", &[2; 500], XattrFlags::CREATE).unwrap();
        let exists = set("user.one", b"x", XattrFlags::CREATE);
        assert_eq!(exists, Err(rustix::io::Errno::EXIST));
        let missing = set("user.no", b"x", XattrFlags::REPLACE);
        assert_eq!(missing, Err(rustix::io::Errno::NODATA));
        set("user.one", b"11", XattrFlags::REPLACE).unwrap();
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut value[..]), Ok(2));
        assert_eq!(&value[..2], b"11");
        let small = rustix::fs::getxattr(&path, "trusted.two", &mut value[..]);
        assert_eq!(small, Err(rustix::io::Errno::RANGE));
        let mut names = [0; 256];
        let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        assert_eq!(&names[..len], b"user.one\0trusted.two\0");
        rustix::fs::removexattr(&path, "user.one").unwrap();
        let gone = rustix::fs::removexattr(&path, "user.one");
        assert_eq!(gone, Err(rustix::io::Errno::NODATA));
    });
    served.end();
}

/// Returns an ACL as `setxattr` takes it: version 2, then tag, permissions and ID of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn access_lists_count_and_are_handed_on() {
    let Some(served) = Served::new("64M", &for_all()) else { return };
    if !e2fs::has("setpriv") {
        return;
    }
    served.sh("chmod 755 .. .; mkdir dir; chmod 700 dir; echo text > file; chmod 600 file");
    let none = u32::MAX;
    let nobody = list(&[(1, 6, none), (2, 4, 65_534), (4, 0, none), (16, 4, none), (32, 0, none)]);
    let default = list(&[(1, 7, none), (2, 7, 65_534), (4, 0, none), (16, 7, none), (32, 0, none)]);
    served.used(move |dir| {
        let set = |name, what: &str, value: &[u8]| {
            rustix::fs::setxattr(dir.join(name), what, value, XattrFlags::empty()).unwrap();
        };
        set("file", "system.posix_acl_access", &nobody);
        set("dir", "system.posix_acl_default", &default);
        set("dir", "system.posix_acl_access", &default);
        let mut value = [0; 128];
        let path = dir.join("file");
        let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..]).unwrap();
        assert_eq!(&value[..len], nobody);
    });
    assert_eq!(served.sh("stat -c %a file"), "640", "the mask is the group's");
    assert_eq!(served.sh(&format!("{NOBODY} cat file")), "text");
    served.sh(&format!("! {NOBODY} sh -c 'echo x >> file' 2> /dev/null"));
    // With a default ACL the umask has no effect.
    served
        .sh(&format!("umask 077; touch dir/new; mkdir dir/sub; {NOBODY} sh -c 'echo y > dir/new'"));
    assert_eq!(served.sh("stat -c %a dir/new dir/sub"), "660\n770");
    served.sh("chmod 600 file");
    served.sh(&format!("! {NOBODY} cat file 2> /dev/null"));
    served.end();
}

#[test]
fn times_are_kept_and_set() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let file = File::create(dir.join("file")).unwrap();
        let created = file.metadata().unwrap().created();
        let age = SystemTime::now().duration_since(created.unwrap()).unwrap();
        assert!(age < Duration::from_secs(60), "{age:?}");
        let time = SystemTime::UNIX_EPOCH + Duration::new(4_000_000_000, 123_456_789);
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1_000);
        file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(early)).unwrap();
        let metadata = fs::metadata(dir.join("file")).unwrap();
        assert_eq!((metadata.modified().unwrap(), metadata.accessed().unwrap()), (time, early));
        // A change of the mode keeps them, and updates ctime.
        let changed = metadata.ctime_nsec();
        fs::set_permissions(dir.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let metadata = fs::metadata(dir.join("file")).unwrap();
        assert_eq!(metadata.modified().unwrap(), time);
        assert!(metadata.ctime_nsec() != changed && metadata.mode() & 0o7777 == 0o600);
    });
    served.end();
}

#[test]
fn flags_of_inodes_are_seen_and_obeyed() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("chattr") {
        return;
    }
    served.sh("echo one > file; chattr +a file; echo two >> file; mkdir dir; chattr +d dir");
    served.sh("! sh -c 'echo three > file' 2> /dev/null; ! rm -f file 2> /dev/null");
    assert!(served.sh("lsattr file").contains('a'));
    assert!(served.sh("lsattr -d dir").contains('d'));
    served.sh(
        "chattr -a +i file; ! sh -c 'echo x >> file' 2> /dev/null; ! mv file other 2> /dev/null",
    );
    served.sh("chattr -i file; echo three >> file");
    // An immutable file cannot be changed through earlier descriptors, either.
    let (open, from) = served.used(|dir| {
        let open = File::options().write(true).open(dir.join("file")).unwrap();
        (open, File::open(dir.join("file")).unwrap())
    });
    served.sh("chattr +i file");
    let (set_aside, copied) = served.used(move |_| {
        let set_aside = fallocate(&open, FallocateFlags::empty(), 0, 99);
        (set_aside, copy_file_range(&from, Some(&mut 0), &open, Some(&mut 6), 3))
    });
    assert_eq!((set_aside, copied), (Err(Errno::PERM), Err(Errno::PERM)));
    served.sh("chattr -i file");
    assert_eq!(served.sh("cat file"), "one\ntwo\nthree");
    served.sh("lsattr -v file > /dev/null; lsattr -p file > /dev/null");
    // chattr reads the file's attributes first, so the kernel has the old ones cached.
    let changed = "stat -c %z file";
    served.sh(&format!("a=$({changed}); chattr +A file; b=$({changed}); test \"$a\" != \"$b\""));
    if e2fs::has("fstrim") {
        served.sh("fstrim -v .; ! fstrim -l 100 . 2> /dev/null");
    }
    served.end();
}
