//! Permissions, and the attributes that define them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use meantime_mount::Options;
use meantime_testkit::e2fs;
use rustix::fs::{FallocateFlags, XattrFlags, copy_file_range, fallocate};
use rustix::io::Errno;

use crate::served::Served;

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

#[test]
fn set_user_bits_go_when_somebody_else_writes() {
    let Some(served) = Served::new("64M", &for_all()) else { return };
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
    // (The kernel sends no kill flag for a set-group bit without group execution.)
    served.sh(&format!("chmod 6666 program; {NOBODY} fallocate -l 200000 program"));
    assert_eq!(served.sh("stat -c %a program"), "666");
    served.sh("echo x > program; chmod 6777 program; echo y >> program");
    assert_eq!(served.sh("stat -c %a program"), "6777", "root's may stay");
    served.sh("chown 1 program");
    assert_eq!(served.sh("stat -c %a program"), "777");
    served.used(|dir| {
        // (struct vfs_cap_data, version 2: all bits clear except the version.)
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
    // (chattr reads the file's attributes first, so the kernel has the old ones cached.)
    let changed = "stat -c %z file";
    served.sh(&format!("a=$({changed}); chattr +A file; b=$({changed}); test \"$a\" != \"$b\""));
    if e2fs::has("fstrim") {
        served.sh("fstrim -v .; ! fstrim -l 100 . 2> /dev/null");
    }
    served.end();
}
