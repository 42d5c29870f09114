//! Ordinary programs on the mount.

use std::fs;
use std::path::Path;

use meantime_mount::Options;
use meantime_testkit::e2fs;

use crate::served::{Served, by_each_way};
use crate::way::Way;

by_each_way!(databases_are_whole, fio_finds_what_it_wrote, programs_append_to_one_log);

/// Returns the path of a program's source.
pub(crate) fn source(name: &str) -> String {
    format!("{}/tests/it/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether this library is installed. If not, it prints that the test is skipped.
pub(crate) fn is_library(name: &str, package: &str) -> bool {
    let is = Path::new("/usr/lib/x86_64-linux-gnu").join(name).exists();
    if !is {
        println!("skipped: there is no {name} here (package {package})");
    }
    is
}

#[test]
fn trees_are_copied_packed_and_unpacked() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    let from = "/usr/include/linux";
    if !std::path::Path::new(from).exists() {
        return println!("skipped: no {from}");
    }
    served.sh(&format!("cp -a {from} copy; diff -r {from} copy"));
    served.sh(
        "ln -s copy link; mkdir more; ln copy/fuse.h more/hard; tar cf tree.tar copy link more",
    );
    served.sh("mkdir out; tar xf tree.tar -C out; diff -r copy out/copy; test out/more/hard -ef out/copy/fuse.h");
    served.sh("find out -type f | wc -l; du -s out; ls -lR out > /dev/null; rm -r out copy");
    served.end();
}

#[test]
fn repositories_are_made_and_checked() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    if !e2fs::has("git") {
        return;
    }
    let env = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a";
    served.sh(&format!(
        "{env}; git init -q r; cd r; for n in 1 2 3 4 5; do seq $n 2000 > f$n; git add f$n; git commit -qm $n; done; \
         git gc -q; git fsck --strict; cd ..; git clone -q r s; cd s; git status --porcelain; diff ../r/f5 f5"
    ));
    served.end();
}

fn databases_are_whole(way: Way) {
    let Some(served) = Served::by(way, "128M", &Options::default()) else { return };
    if !e2fs::has("sqlite3") {
        return;
    }
    for journal in ["delete", "wal", "truncate"] {
        let before = served.data_calls();
        let made = served.sh(&format!(
            "(echo 'pragma journal_mode={journal}; create table t(a integer primary key, b);'
              for n in $(seq 200); do echo 'insert into t(b) values(randomblob(3000));'; done
             ) | sqlite3 {journal}.db > /dev/null
             sqlite3 {journal}.db 'pragma integrity_check; select count(*) from t;'"
        ));
        assert_eq!(made, "ok\n200", "{journal}");
        served.went_their_way(&format!("SQLite, {journal}"), before);
        let before = served.data_calls();
        // The sqlite3 command would read the file as a stream first. In WAL mode the last to close
        // deletes a file that is mapped, so they close at their ends.
        let insert = "import os, sqlite3, sys\n\
                      kept = []\n\
                      for n in range(30):\n    \
                          db = sqlite3.connect(sys.argv[1] + '.db', 60, isolation_level=None)\n    \
                          db.execute('insert into t(b) values(?)', (os.urandom(3000),))\n    \
                          kept.append(db) if sys.argv[1] == 'wal' else db.close()";
        served.sh(&format!("for n in 1 2 3; do python3 -c \"{insert}\" {journal} & done; wait"));
        served.went_their_way(&format!("SQLite, {journal}, by three"), before);
        let check = "'pragma integrity_check; select count(*) from t;'";
        assert_eq!(served.sh(&format!("sqlite3 {journal}.db {check}")), "ok\n290", "{journal}");
    }
    served.end();
}

fn fio_finds_what_it_wrote(way: Way) {
    let Some(served) = Served::by(way, "256M", &Options::default()) else { return };
    if !e2fs::has("fio") {
        return;
    }
    // The kernel handles the calls of libaio and mappings.
    for (engine, may_be_short) in [
        ("psync", true),
        ("pvsync2", true),
        ("libaio --iodepth=8 --direct=1", false),
        ("mmap", false),
        ("psync --direct=1 --numjobs=3", true),
    ] {
        let before = served.data_calls();
        let size = "--size=8M --bs=4k --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1";
        served.sh(&format!(
            "fio --name=f --output=/dev/null --fallocate=none --ioengine={engine} {size} --fsync=64"
        ));
        if may_be_short {
            served.went_their_way(&format!("fio, {engine}"), before);
        }
    }
    served.end();
}

fn programs_append_to_one_log(way: Way) {
    let Some(served) = Served::by(way, "64M", &Options::default()) else { return };
    if !e2fs::has("python3") {
        return;
    }
    let append = "import os, sys\n\
                  for log in range(5):\n    \
                      to = os.open(f'log{log}', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n    \
                      for n in range(500): os.write(to, b'%s %d\\n' % (sys.argv[1].encode(), n))";
    let before = served.data_calls();
    served.sh(&format!("for n in 1 2 3; do python3 -c \"{append}\" $n & done; wait"));
    let calls = served.data_calls().since(before);
    // On a busy machine one process may need longer to connect than the others' calls wait for it.
    assert_eq!(way == Way::SharedMemory, calls.share() > 50.0, "{calls:?}");
    served.sh("seq 0 499 > all
         for log in 0 1 2 3 4; do
             for n in 1 2 3; do sed -n \"s/^$n //p\" log$log | cmp - all; done
             test $(wc -l < log$log) = 1500
         done");
    served.end();
}

#[test]
fn locks_are_the_kernels() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("flock") {
        return;
    }
    let text = served.sh(
        "flock lock sh -c 'touch held; until test -e tried; do sleep 0.05; done; echo first' &
         until test -e held; do sleep 0.05; done
         ! flock -n lock true; touch tried; flock lock echo second; wait",
    );
    assert_eq!(text, "first\nsecond");
    served.end();
}

/// The server is asked nothing when a descriptor is closed. What a close ends, the kernel ends.
#[test]
fn a_close_asks_nothing_and_ends_locks_and_mappings() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("python3") {
        return;
    }
    let script = r#"
import errno, fcntl, mmap, os, struct, subprocess, sys

# fcntl(2), with `F_OFD_SETLK`.
OFD_SETLK = 37
LOCK = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

if len(sys.argv) > 1:
    fd = os.open("file", os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLK, LOCK)
        sys.exit(0)
    except OSError as error:
        sys.exit(1 if error.errno in (errno.EAGAIN, errno.EACCES) else 2)


def is_free():
    return subprocess.run([sys.executable, sys.argv[0], "try"]).returncode == 0


one, other = (os.open("file", os.O_RDWR | os.O_CREAT) for _ in range(2))
fcntl.fcntl(one, fcntl.F_SETLK, LOCK)
assert not is_free()
# Any close of the file ends a process's POSIX locks.
os.close(other)
assert is_free()
# A lock of the open file description lasts until its last descriptor is closed.
fcntl.fcntl(one, OFD_SETLK, LOCK)
twice = os.dup(one)
os.close(one)
assert not is_free()
os.close(twice)
assert is_free()

# A mapping outlives its descriptor, and what is stored is there for others at once.
fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 16)
mapping = mmap.mmap(fd, 1 << 16)
os.close(fd)
mapping[5000:5005] = b"hello"
with open("mapped", "rb") as file:
    assert file.read()[5000:5005] == b"hello"
mapping.close()
for number in range(1000):
    with open(f"many{number % 10}", "wb") as file:
        file.write(b"%d" % number)
"#;
    fs::write(served.beside("closes.py"), script).unwrap();
    served.sh("python3 ../closes.py");
    let flushes = served.mounted().requests();
    let flushes = flushes.iter().find(|(name, _)| name == "flush").unwrap().1.served;
    // Linux 5.16 is the first that does not ask.
    let is_old = kernel_version() < (5, 16);
    assert!(flushes == 0 || is_old, "{flushes}");
    let mut served = served;
    served.unmount();
    assert_eq!(served.unmounted().read("/mapped").unwrap()[5000..5005], b"hello"[..]);
    assert_eq!(served.unmounted().read("/many7").unwrap(), b"997");
}

/// The kernel's version, by its first two numbers.
fn kernel_version() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn rsync_copies_all_that_there_is() {
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    if !["rsync", "setfattr", "setfacl"].into_iter().all(e2fs::has) {
        return;
    }
    served.sh("mkdir -p from/d; cd from; echo text > file; ln file d/hard; ln -s ../file d/soft
         mkfifo fifo
         setfattr -n user.kind -v text file; setfattr -n user.other -v more d
         setfacl -m u:1234:rw,g:99:r file; setfacl -d -m u:1234:rwx d
         truncate -s 3M sparse; printf x | dd of=sparse bs=1 seek=1M conv=notrunc status=none
         touch -d '1969-05-05 12:00:00.123456789' file; chmod 4711 d/hard
         chown -h 7:8 d/soft");
    let copy = "rsync -aHAX --sparse";
    let text = served.sh(&format!(
        "{copy} from/ to; {copy} -nic --delete from/ to
         test to/file -ef to/d/hard; getfacl -cs to/d | grep -c 1234
         getfattr --only-values -n user.kind to/file; echo
         stat -c %Y.%y to/file | cut -c -40 | grep -c 123456789
         test $(du -k to/sparse | cut -f 1) -lt 100; cmp from/sparse to/sparse
         echo more >> from/file; {copy} --inplace from/ to; cmp from/file to/d/hard
         rm from/file; {copy} --delete from/ to; ! test -e to/file"
    ));
    assert_eq!(text, "1\ntext\n1");
    served.end();
}

#[test]
fn holes_stay_holes() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    let text = served.sh("truncate -s 20M sparse; for at in 0 5 19; do
           head -c 5000 /dev/urandom | dd of=sparse bs=1M seek=$at conv=notrunc status=none
         done; head -c 4M /dev/zero > zeroes
         for how in auto always never; do
           cp --sparse=$how --reflink=auto sparse $how; cmp sparse $how
           cp --sparse=$how zeroes zeroes.$how; cmp zeroes zeroes.$how
         done
         size() { for file; do test $(du -k $file | cut -f 1) -ge 100 && echo $file; done; true; }
         size sparse auto always never zeroes.auto zeroes.always zeroes.never");
    assert_eq!(text, "never\nzeroes.auto\nzeroes.never");
    served.end();
}

#[test]
fn python_finds_files_as_elsewhere() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("python3") {
        return;
    }
    let program = source("files.py");
    assert_eq!(served.sh(&format!("mkdir d; cd d; python3 {program}")), "done");
    served.end();
}

#[test]
fn nobody_reads_what_was_before_a_direct_write() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("python3") {
        return;
    }
    assert_eq!(served.sh(&format!("python3 {}", source("aio.py"))), "0");
    served.end();
}

#[test]
fn go_programs_need_no_c_library() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("go") {
        return;
    }
    // Compiled outside the mount: only the program is tested.
    let (program, source) = (served.beside("program"), source("files.go"));
    let program = program.display();
    served.sh(&format!("CGO_ENABLED=0 go build -o {program} {source}"));
    assert_eq!(served.sh(&format!("mkdir d; cd d; cp {program} ../go; ../go")), "18");
    served.end();
}

#[test]
fn java_maps_files() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("javac") {
        return;
    }
    let source = source("MountedFiles.java");
    let text = served.sh(&format!("javac -d . {source}; java -Xshare:auto -cp . MountedFiles"));
    assert_eq!(text, "done");
    served.end();
}

#[test]
fn static_programs_run_from_it() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("busybox") {
        return;
    }
    let text = served.sh(
        "cp $(command -v busybox) .; mkdir bin; ./busybox --install -s bin; export PATH=$PWD/bin
         seq 3000 | sort -rn > lines; sed -i 's/1/one/' lines; mkdir -p a/b; cp -a lines a/b
         tar czf a.tar.gz a; rm -r a; tar xzf a.tar.gz; cmp lines a/b/lines
         find a -type f -exec md5sum {} + | wc -l
         dd if=lines of=copy bs=7 2> /dev/null; cmp lines copy
         rmdir x 2> /dev/null || mv a x; ls x; stat -c %h busybox",
    );
    assert_eq!(text, "1\nb\n1");
    served.end();
}

#[test]
fn cargo_builds_on_it() {
    let Some(served) = Served::new("256M", &Options::default()) else { return };
    if !e2fs::has("cargo") {
        return;
    }
    let text = served.sh(
        "unset CARGO_TARGET_DIR CARGO_BUILD_TARGET RUSTFLAGS; export CARGO_NET_OFFLINE=true
         cargo -q init --vcs none --name tiny .; cargo -q run
         sed -i s/Hello/Goodbye/ src/main.rs; cargo -q run",
    );
    assert_eq!(text, "Hello, world!\nGoodbye, world!");
    served.end();
}
