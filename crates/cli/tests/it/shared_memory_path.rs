//! The shared-memory path of `meantime run`: programs in C that do with their descriptors what a
//! program may do, and others' programs.
//!
//! `MEANTIME_SHARED_MEMORY_ROUNDS=1000000` for longer runs than usual (thousands of rounds).

use std::path::{Path, PathBuf};

use meantime_testkit::e2fs::{self, has};
use rustix::process::geteuid;

use crate::common::{Ran, meantime};
use crate::image::tool;
use crate::run_mounted::prepared;

/// The library that cargo has built for these tests: beside them.
pub(crate) fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libmeantime_intercept.so")
}

/// Rounds of a program that does `usual` ones.
fn rounds(usual: u64) -> String {
    let asked =
        std::env::var("MEANTIME_SHARED_MEMORY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    // The whole is for a program with 10⁴ rounds.
    asked.map_or(usual, |rounds: u64| (usual * rounds / 10_000).max(1)).to_string()
}

/// Seconds that a program may take.
fn limit() -> &'static str {
    if std::env::var_os("MEANTIME_SHARED_MEMORY_ROUNDS").is_some() { "7200" } else { "120" }
}

/// The program `name`, compiled; `None` without a compiler.
fn compiled(dir: &Path, name: &str) -> Option<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    compiled_by(dir, &compiler, &[], name)
}

/// The same, by another compiler, or with `more` arguments.
fn compiled_by(dir: &Path, compiler: &str, more: &[&str], name: &str) -> Option<String> {
    if !has(compiler) {
        return None;
    }
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/short").join(format!("{name}.c"));
    let program = dir.join(name).to_str().unwrap().to_owned();
    let args = ["-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o"];
    tool(dir, compiler, &[&args[..], &[&program, source.to_str().unwrap()], more].concat());
    Some(program)
}

/// Runs a program in the mount's directory.
fn ran(dir: &Path, program: &[&str]) -> Ran {
    ran_with(dir, &[], program)
}

/// The same, with `more` options of `run`.
fn ran_with(dir: &Path, more: &[&str], program: &[&str]) -> Ran {
    let at = dir.join("at");
    let args = ["run", "--device", "file:disk.img?model=null", "--at", at.to_str().unwrap()];
    let mut command = meantime(dir, &[&args[..], more, &["--"]].concat());
    command.env("MEANTIME_INTERCEPT", library()).env("MEANTIME_REPORT", "1");
    command.args(["timeout", "-s", "KILL", limit()]).args(program).output().unwrap().into()
}

/// The most calls that took the shared-memory path in one process, as it says at its end.
pub(crate) fn most_short(ran: &Ran) -> u64 {
    let counts = ran.stderr.lines().filter_map(|line| {
        let (before, _) = line.split_once(" calls short")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    counts.max().unwrap_or(0)
}

/// Runs the program `name` on the mount: it checks itself. At least `short` of its calls take the
/// shared-memory path.
#[track_caller]
fn succeeds(name: &str, arguments: &[&str], short: u64) -> Option<Ran> {
    succeeds_with(&[], name, arguments, short)
}

/// The same, with `more` options of `run`.
#[track_caller]
fn succeeds_with(more: &[&str], name: &str, arguments: &[&str], short: u64) -> Option<Ran> {
    let dir = prepared()?;
    let dir = dir.path();
    let program = compiled(dir, name)?;
    let at = dir.join("at");
    let program = [&[&*program, at.to_str().unwrap()], arguments].concat();
    let ran = ran_with(dir, more, &program);
    assert_eq!(ran.code, Some(0), "{name}: {ran:#?}");
    assert!(most_short(&ran) >= short, "{name}: {}", ran.stderr);
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    Some(ran)
}

#[test]
fn no_byte_goes_to_the_file_that_had_the_number_before() {
    // Twelve threads.
    succeeds("numbers", &[&rounds(850)], 1000);
}

#[test]
fn processes_share_a_position() {
    succeeds("forks", &[&rounds(2000)], 1000);
}

#[test]
fn what_processes_append_is_all_there() {
    succeeds("append", &[&rounds(1000)], 500);
}

#[test]
fn streams_and_calls_on_one_descriptor_have_an_order() {
    succeeds("mixed", &[], 20);
}

#[test]
fn signal_handlers_write() {
    succeeds("handlers", &[&rounds(5000)], 1000);
}

#[test]
fn many_threads_with_large_calls_stay_within_the_memory_that_is_theirs() {
    let more = ["--cache", "16M"];
    let Some(ran) = succeeds_with(&more, "threads", &["300", "250"], 4) else { return };
    // It is said once, and counted at the end.
    let said = ran.stderr.lines().filter(|line| line.contains("--shared-memory-limit")).count();
    assert!(said <= 2, "{}", ran.stderr);
}

/// Calls that took the FUSE path because the thread was in one already, as the program says.
fn busy(ran: &Ran) -> u64 {
    let counts = ran.stderr.lines().filter_map(|line| {
        let (before, _) = line.split_once(" long: in a signal handler")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    counts.max().unwrap_or(0)
}

#[test]
fn a_thread_that_has_left_a_call_takes_the_shared_memory_path_again() {
    let Some(ran) = succeeds("jumps", &[&rounds(1000)], 5000) else { return };
    // Those of the handler, which interrupts calls, at most; and few of others.
    assert!(busy(&ran) * 20 < most_short(&ran), "{}", ran.stderr);
}

#[test]
fn children_write_to_the_descriptors_that_they_were_given() {
    succeeds("spawns", &[&rounds(20)], 50);
}

#[test]
fn what_is_read_from_memory_only_is_left_to_the_kernel() {
    let ran = succeeds("reads", &["3000"], 600);
    let is_left = |ran: &Ran| ran.stderr.contains("the kernel's cache is faster for the file");
    assert!(ran.is_none_or(|ran| is_left(&ran)));
}

#[test]
fn what_is_read_whole_is_the_kernels_unless_somebody_takes_the_shared_memory_path_to_it() {
    if !has("python3") {
        return;
    }
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let read = "import os, sys\n\
                name = sys.argv[1]\n\
                made = os.open(name, os.O_RDWR | os.O_CREAT)\n\
                os.pwrite(made, b'x' * 8192, 0)\n\
                if len(sys.argv) < 3: os.close(made)\n\
                for n in range(100):\n    \
                    fd = os.open(name, os.O_RDONLY)\n    \
                    assert len(os.read(fd, 65536)) == 8192 and not os.read(fd, 1)\n    \
                    os.close(fd)";
    let file = dir.join("at/file");
    let file = file.to_str().unwrap();
    let whole = ran(dir, &["python3", "-c", read, file]);
    assert_eq!((whole.code, most_short(&whole)), (Some(0), 1), "{whole:?}");
    assert!(whole.stderr.contains("the kernel's cache is faster for the file"), "{whole:?}");
    let shared = ran(dir, &["python3", "-c", read, file, "kept"]);
    assert!(shared.code == Some(0) && most_short(&shared) > 200, "{shared:?}");
}

#[test]
fn reading_ahead_does_not_end_the_shared_memory_path() {
    if !has("python3") {
        return;
    }
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let read = "import os, sys\n\
                with open(sys.argv[1], 'wb') as made: made.write(bytes(range(256)) * 4096)\n\
                fd = os.open(sys.argv[1], os.O_RDONLY)\n\
                for n in range(50):\n    \
                    at = n * 7919 % 1000000\n    \
                    os.posix_fadvise(fd, at + 1, 4096, os.POSIX_FADV_WILLNEED)\n    \
                    assert os.pread(fd, 1, at) == bytes([at % 256])";
    let file = dir.join("at/file");
    let ran = ran(dir, &["python3", "-c", read, file.to_str().unwrap()]);
    assert_eq!((ran.code, most_short(&ran) >= 50), (Some(0), true), "{ran:?}");
}

#[test]
fn programs_take_the_shared_memory_path_unless_told_otherwise() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let file = dir.join("at/file");
    let written = format!("of={}", file.display());
    let dd = ["dd", "if=/dev/zero", &written, "bs=4k", "count=100", "conv=fsync"];
    let short = ran(dir, &dd);
    assert_eq!(short.code, Some(0), "{short:?}");
    assert!(most_short(&short) >= 100, "{short:?}");
    let at = dir.join("at");
    let args = ["run", "--no-shared-memory", "--device", "file:disk.img?model=null", "--at"];
    let mut command = meantime(dir, &args);
    command.env("MEANTIME_REPORT", "1").arg(at).arg("--").args(dd);
    let long = Ran::from(command.output().unwrap());
    assert!(long.code == Some(0) && !long.stderr.contains("short"), "{long:?}");
}

/// Runs `writes` by a shell that takes the shared-memory path. It prints nothing but what it
/// should.
fn writes(compiler: &str, more: &[&str], is_short: bool) {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let Some(program) = compiled_by(dir, compiler, more, "writes") else { return };
    let at = dir.join("at");
    let script = format!("cd {} && {program} . file no && echo >line", at.display());
    for program in [&[&*program, at.to_str().unwrap(), "file", "no"][..], &["sh", "-c", &script]] {
        let ran = ran(dir, program);
        assert_eq!((ran.code, &*ran.stdout), (Some(0), "written\n"), "{ran:#?}");
        assert_eq!(most_short(&ran) >= 200, is_short, "{ran:#?}");
        let said = ran.stderr.lines().find(|line| !line.starts_with("meantime: "));
        assert_eq!(said, None, "{ran:#?}");
    }
}

#[test]
fn programs_of_another_c_library_take_the_fuse_path() {
    writes("cc", &[], true);
    // Its headers have none of Linux's.
    let headers = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
    writes("musl-gcc", &headers, false);
}

#[test]
fn programs_that_check_their_memory_take_the_fuse_path() {
    for (sanitizer, is_short) in [("address", false), ("undefined", true)] {
        writes("gcc", &[&format!("-fsanitize={sanitizer}")], is_short);
    }
}

#[test]
fn programs_that_confine_themselves_take_the_fuse_path_from_then_on() {
    for how in ["strict", "call", "filter"] {
        succeeds("writes", &["file", how], 200);
    }
}

#[test]
fn a_program_in_a_chroot_is_not_told_of_a_library_that_is_not_there() {
    if !geteuid().is_root() {
        return;
    }
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let Some(program) = compiled(dir, "writes") else { return };
    let at = dir.join("at");
    // The program, its loader and its C library in the mount.
    let script = format!(
        "set -e; cd {}; cp {program} writes\n\
         for file in $(env -u LD_PRELOAD ldd writes | grep -o '/[^ ]*'); do cp --parents -L $file .; done\n\
         chroot . /writes / file no",
        at.display()
    );
    let ran = ran(dir, &["sh", "-c", &script]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "written\n"), "{ran:#?}");
    assert!(!ran.stderr.contains("LD_PRELOAD"), "{ran:#?}");
}

#[test]
fn the_librarys_socket_is_not_the_programs() {
    if !has("python3") || !geteuid().is_root() {
        return;
    }
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    // All numbers are closed, and the file opened again: it takes the shared-memory path still.
    let script = "import os, sys\n\
                  name = sys.argv[1] + '/file'\n\
                  f = os.open(name, os.O_RDWR | os.O_CREAT)\n\
                  before = set(map(int, os.listdir('/proc/self/fd')))\n\
                  assert os.write(f, b'abc') == 3\n\
                  socket = [n for n in map(int, os.listdir('/proc/self/fd'))\n\
                  \x20   if n not in before and n > 100]\n\
                  assert len(socket) == 1, socket\n\
                  for close in os.close, lambda n: os.dup2(f, n):\n\
                  \x20   try: close(socket[0])\n\
                  \x20   except OSError as error: assert error.errno == 9\n\
                  \x20   else: raise Exception('closed')\n\
                  os.closerange(3, 4096)\n\
                  os.stat('/proc/self/fd/%d' % socket[0])\n\
                  f = os.open(name, os.O_RDWR)\n\
                  for at in range(1000): assert os.pread(f, 3, 0) == b'abc'\n";
    std::fs::write(dir.join("script.py"), script).unwrap();
    let (script, at) = (dir.join("script.py"), dir.join("at"));
    let ran = ran(dir, &["python3", script.to_str().unwrap(), at.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(most_short(&ran) >= 1000, "{ran:?}");
}

/// Databases and fio beside each other: what they write they read.
#[test]
fn databases_and_fio_verify() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let at = dir.join("at");
    if has("python3") {
        let script = "import sqlite3, sys\n\
                      for mode in 'wal', 'delete':\n\
                      \x20   db = sqlite3.connect(sys.argv[1] + '/' + mode)\n\
                      \x20   db.execute('pragma journal_mode=' + mode)\n\
                      \x20   db.execute('create table t(a integer primary key, b text)')\n\
                      \x20   for n in range(300):\n\
                      \x20       with db: db.execute('insert into t values(?, ?)', (n, 'x' * n))\n\
                      \x20   db.close()\n\
                      \x20   db = sqlite3.connect(sys.argv[1] + '/' + mode)\n\
                      \x20   assert db.execute('pragma integrity_check').fetchone() == ('ok',)\n\
                      \x20   assert db.execute('select sum(length(b)) from t').fetchone() == (44850,)\n";
        std::fs::write(dir.join("script.py"), script).unwrap();
        let script = dir.join("script.py");
        let ran = ran(dir, &["python3", script.to_str().unwrap(), at.to_str().unwrap()]);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        assert!(most_short(&ran) >= 600, "{ran:?}");
    }
    if has("fio") {
        for engine in ["psync", "pvsync2", "sync"] {
            let engine = format!("--ioengine={engine}");
            let directory = format!("--directory={}", at.display());
            let fio = ["fio", "--name=v", "--rw=randrw", "--bs=3k", "--size=4m", "--numjobs=3"];
            let more = ["--verify=crc32c", "--fsync=50", "--thread", "--group_reporting"];
            let ran = ran(dir, &[&fio[..], &more, &[&engine, &directory]].concat());
            assert_eq!(ran.code, Some(0), "{ran:#?}");
            assert!(most_short(&ran) >= 1000, "{ran:?}");
        }
    }
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
}
