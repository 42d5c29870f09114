//! `meantime run -o ro`: programs that nobody wrote for us, on an ext4 image that `mkfs.ext4` has
//! filled. What they find is compared with what was put in.

use std::path::Path;

use crate::image::{AT, Image, tool};
use meantime_testkit::e2fs::has;

#[test]
fn common_programs_find_what_was_put_in() {
    let Some(image) = Image::tree() else { return };
    assert_eq!(image.succeed(&["cat", &format!("{AT}/a.txt")]), "hello\n");
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let found = sorted(
        image.sh(&format!("find {AT} -printf '%P %y %s %l\\n' | grep -v -e '^ d' -e lost+found")),
    );
    let put = tool(
        &image.path().join("src"),
        "sh",
        &["-c", "find . -printf '%P %y %s %l\\n' | grep -v '^ d'"],
    );
    let put = sorted(String::from_utf8(put.stdout).unwrap());
    // The size of a directory is the file system's own affair.
    let files = |lines: Vec<String>| {
        lines.into_iter().filter(|line| !line.contains(" d ")).collect::<Vec<_>>()
    };
    assert_eq!(files(found), files(put));
    image.sh(&format!("cp -a {AT}/dir copy && cmp copy/b.bin src/dir/b.bin && test -L copy/link"));
    image.sh(&format!("tar -C {AT} -cf - dir | tar -xOf - dir/b.bin | cmp - src/dir/b.bin"));
    assert_eq!(image.sh(&format!("grep -rl hello {AT}")).trim(), format!("{AT}/a.txt"));
    assert_eq!(
        image.succeed(&["stat", "-c", "%F %s", &format!("{AT}/dir/b.bin")]),
        "regular file 300000\n"
    );
}

#[test]
fn errors_are_those_of_a_read_only_mount() {
    let Some(image) = Image::tree() else { return };
    image.python(
        r#"
import errno as E
b, a = AT + "/dir/b.bin", AT + "/a.txt"
f = os.open(b, os.O_RDONLY)
outside = SRC + "/a.txt"
for expected, call in [
    (E.EROFS, lambda: os.open(b, os.O_RDWR)),
    (E.EROFS, lambda: os.open(b, os.O_RDONLY | os.O_TRUNC)),
    (E.EROFS, lambda: os.open(AT + "/new", os.O_CREAT | os.O_RDONLY)),
    (E.EEXIST, lambda: os.open(a, os.O_CREAT | os.O_EXCL | os.O_RDONLY)),
    (E.EISDIR, lambda: os.open(AT + "/dir", os.O_WRONLY)),
    (E.ENOTDIR, lambda: os.open(a, os.O_DIRECTORY)),
    (E.ENOTDIR, lambda: os.open(a + "/", os.O_RDONLY)),
    (E.ENOENT, lambda: os.open(AT + "/none", os.O_RDONLY)),
    (E.ENOENT, lambda: os.open(AT + "/none/new", os.O_CREAT | os.O_WRONLY)),
    (E.ELOOP, lambda: os.open(AT + "/loop", os.O_RDONLY)),
    (E.ELOOP, lambda: os.open(AT + "/dir/link", os.O_NOFOLLOW)),
    (E.ENAMETOOLONG, lambda: os.open(AT + "/" + "x" * 256, os.O_RDONLY)),
    (E.EBADF, lambda: os.write(f, b"x")),
    (E.EBADF, lambda: os.pwrite(f, b"x", 0)),
    (E.EINVAL, lambda: os.ftruncate(f, 0)),
    (E.EINVAL, lambda: os.pread(f, 1, -1)),
    (E.EINVAL, lambda: os.lseek(f, -1, os.SEEK_SET)),
    (E.ENXIO, lambda: os.lseek(f, 300000, os.SEEK_DATA)),
    (E.EISDIR, lambda: os.read(os.open(AT, os.O_RDONLY), 1)),
    (E.EBADF, lambda: os.read(os.open(b, os.O_PATH), 1)),
    (E.EROFS, lambda: os.unlink(b)),
    (E.EROFS, lambda: os.rmdir(AT + "/dir")),
    (E.EEXIST, lambda: os.mkdir(AT + "/dir")),
    (E.EROFS, lambda: os.mkdir(AT + "/new")),
    (E.EROFS, lambda: os.rename(a, b)),
    (E.EXDEV, lambda: os.rename(a, SRC + "/new")),
    (E.EXDEV, lambda: os.rename(outside, AT + "/new")),
    (E.EXDEV, lambda: os.link(a, SRC + "/new")),
    (E.EROFS, lambda: os.symlink("x", AT + "/new")),
    (E.EROFS, lambda: os.chmod(a, 0o600)),
    (E.EROFS, lambda: os.fchmod(f, 0o600)),
    (E.EROFS, lambda: os.chown(a, 0, 0)),
    (E.EROFS, lambda: os.truncate(a, 0)),
    (E.EROFS, lambda: os.utime(a)),
    (E.EROFS, lambda: os.setxattr(a, "user.x", b"1")),
    (E.ENODATA, lambda: os.getxattr(a, "user.x")),
    (E.EINVAL, lambda: os.readlink(a)),
    (E.ENOTDIR, lambda: os.listdir(a)),
]:
    try:
        call()
    except OSError as error:
        assert error.errno == expected, (error, E.errorcode[expected])
    else:
        raise AssertionError(E.errorcode[expected])
assert not os.access(a, os.W_OK) and os.access(a, os.R_OK) and not os.access(a, os.X_OK)
assert os.statvfs(AT).f_flag & os.ST_RDONLY
os.fsync(f)
"#,
    );
}

#[test]
fn descriptors_are_shared_and_inherited() {
    let Some(image) = Image::tree() else { return };
    image.python(
        r#"
import fcntl, mmap, threading
b = AT + "/dir/b.bin"
data = open(SRC + "/dir/b.bin", "rb").read()
assert open(b, "rb").read() == data
f = os.open(b, os.O_RDONLY)
# One offset for all duplicates, and it lasts as long as one of them.
g, h = os.dup(f), fcntl.fcntl(f, fcntl.F_DUPFD, 100)
assert h >= 100 and os.lseek(g, 10, 0) == 10 and os.read(f, 5) == data[10:15]
os.close(f)
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, g)
os.close(null)
assert os.read(g, 5) == b"" and os.read(h, 5) == data[15:20]
# A number that the kernel gives away again is the kernel's.
n = os.open(SRC + "/a.txt", os.O_RDONLY)
assert n == f and os.read(n, 6) == b"hello\n"
# A stale name of a descriptor leads to the file.
assert open("/dev/fd/%d" % h, "rb").read(9) == data[:9] and os.readlink("/proc/self/fd/%d" % h) == b
f = os.open(b, os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 8192)
assert os.preadv(f, [buffer], 4096, os.RWF_HIPRI) == 8192 and buffer[:] == data[4096:12288]
assert fcntl.fcntl(f, fcntl.F_GETFL) & os.O_DIRECT
mapped = mmap.mmap(f, 0, prot=mmap.PROT_READ)
assert mapped[:] == data
fcntl.lockf(f, fcntl.LOCK_SH)
# A child has the descriptors of its parent, and shares their offsets.
os.lseek(h, 77, 0)
names = os.scandir(AT)
child = os.fork()
if child == 0:
    try:
        assert os.read(h, 5) == data[77:82] and os.pread(f, 1024, 512) == data[512:1536]
        assert open(b, "rb").read() == data and mapped[:] == data
        os.close(h)
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert os.read(h, 5) == data[82:87]
failed = []
def reader(seed):
    try:
        for turn in range(200):
            at = (turn * 7919 + seed * 31) % 290000
            # O_DIRECT takes whole blocks of the device.
            block = at - at % 512
            assert os.pread(f, 4096, block) == data[block:block + 4096]
            assert os.pread(h, 4096, at) == data[at:at + 4096]
            with open(b, "rb") as own:
                own.seek(at)
                assert own.read(100) == data[at:at + 100]
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
import subprocess
assert subprocess.run(["cat", AT + "/a.txt"], capture_output=True).stdout == b"hello\n"
assert os.read(h, 5) == data[87:92]
"#,
    );
}

#[test]
fn fio_verifies_what_fio_wrote() {
    let wrote = |src: &Path| {
        let size = "--size=2m";
        tool(
            src,
            "fio",
            &[
                "--name=w",
                "--filename=f",
                size,
                "--rw=write",
                "--bs=4k",
                "--verify=crc32c",
                "--do_verify=0",
                "--verify_state_save=0",
            ],
        );
    };
    let Some(image) = has("fio").then(|| Image::new(wrote)).flatten() else { return };
    let file = format!("--filename={AT}/f");
    for engine in ["psync", "pvsync2", "sync", "mmap"] {
        for options in
            [&["--direct=0"][..], &["--direct=1"], &["--direct=0", "--thread", "--numjobs=2"]]
        {
            if engine == "mmap" && options[0] == "--direct=1" {
                continue;
            }
            let mut fio: Vec<&str> = vec![
                "fio",
                "--name=v",
                &file,
                "--size=2m",
                "--rw=randread",
                "--bs=4k",
                "--readonly",
            ];
            let engine = format!("--ioengine={engine}");
            fio.extend([
                "--verify=crc32c",
                "--verify_state_load=0",
                "--verify_fatal=1",
                "--output-format=json",
                &engine,
            ]);
            fio.extend(options);
            let out = image.succeed(&fio);
            let report: serde_json::Value =
                serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
            for job in report["jobs"].as_array().unwrap() {
                assert_eq!(
                    (job["error"].as_i64(), job["read"]["io_bytes"].as_i64()),
                    (Some(0), Some(2 << 20)),
                    "{fio:?}"
                );
            }
        }
    }
}

#[test]
fn sqlite_reads_its_databases() {
    let fill = |src: &Path| {
        let rows = "with recursive c(x) as (select 1 union all select x+1 from c where x<3000) insert into t select x, hex(zeroblob(40)) from c;";
        let table = format!("create table t(a, b); {rows} create index i on t(a);");
        tool(src, "sqlite3", &["rollback.db", &table]);
        // One that was left with a log: as it is while the program that wrote it still has it open.
        tool(src, "sqlite3", &["wal.db", &format!("pragma journal_mode=wal; {table}")]);
        let copy = "pragma wal_autocheckpoint=0; insert into t values (3001, 'in the log');\n.system cp wal.db left.db; cp wal.db-wal left.db-wal; cp wal.db-shm left.db-shm";
        std::fs::write(src.join("copy.sql"), copy).unwrap();
        tool(src, "sh", &["-c", "sqlite3 wal.db < copy.sql"]);
    };
    let Some(image) = has("sqlite3").then(|| Image::new(fill)).flatten() else { return };
    let ask = "pragma integrity_check; select count(*), sum(a) from t;";
    for (name, answer) in [
        (format!("{AT}/rollback.db"), "ok\n3000|4501500\n"),
        (format!("{AT}/left.db"), "ok\n3001|4504501\n"),
        (format!("file:{AT}/wal.db?immutable=1"), "ok\n3001|4504501\n"),
    ] {
        assert_eq!(image.succeed(&["sqlite3", "-readonly", &name, ask]), answer, "{name}");
    }
    let mapped = format!("pragma mmap_size=100000000; {ask}");
    let out = image.succeed(&["sqlite3", "-readonly", &format!("{AT}/rollback.db"), &mapped]);
    assert!(out.ends_with("ok\n3000|4501500\n"), "{out}");
    let ran = image.run(&["sqlite3", &format!("{AT}/rollback.db"), "insert into t values (1, 2);"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("readonly database"), "{ran:?}");
}
