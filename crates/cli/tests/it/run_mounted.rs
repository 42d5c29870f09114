//! `meantime run`: programs that write, on a mount that only they see.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use meantime_testkit::e2fs::{self, has};
use meantime_testkit::image::scratch;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ran, meantime, run, succeed};

/// Time limit for any command: a mount that does not answer fails the test.
const LIMIT: [&str; 4] = ["timeout", "-s", "KILL", "60"];

/// Whether mounting is permitted here; a message if it is not.
pub(crate) fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root() && std::fs::File::open("/dev/fuse").is_ok();
    if !may {
        println!("skipped: not root, or no /dev/fuse");
    }
    may
}

/// Makes a directory with an image and an empty directory `at`; `None` where mounting is not
/// permitted.
pub(crate) fn prepared() -> Option<tempfile::TempDir> {
    if !may_mount() || !e2fs::tools() {
        return None;
    }
    let dir = scratch();
    e2fs::mkfs(dir.path(), "disk.img", "64M", &[]);
    std::fs::create_dir(dir.path().join("at")).unwrap();
    Some(dir)
}

/// Returns the command `meantime run` of `program`, with the mount at `at`.
fn command(dir: &Path, program: &[&str]) -> Command {
    let at = dir.join("at");
    let args = ["run", "--device", "file:disk.img?model=null", "--at", at.to_str().unwrap(), "--"];
    let mut command = meantime(dir, &args);
    command.args(program);
    command
}

fn ran(dir: &Path, program: &[&str]) -> Ran {
    command(dir, &[&LIMIT, program].concat()).output().unwrap().into()
}

/// Runs a script in the mount's directory, which must succeed. Returns its standard output.
#[track_caller]
fn sh(dir: &Path, script: &str) -> String {
    let script = format!("cd '{}'\n{script}", dir.join("at").display());
    let ran = ran(dir, &["sh", "-e", "-c", &script]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{script}: {ran:?}");
    ran.stdout
}

/// Checks that the image is clean and free.
fn check(dir: &Path) {
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    let listed = std::fs::read_dir(dir.join("at")).unwrap().count();
    assert_eq!(listed, 0, "nobody else sees the mount");
}

#[test]
fn what_programs_write_is_there_afterwards() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let made = "echo text > a; mkdir d; mv a d/b; ln -s d/b link; cat link; pwd";
    assert_eq!(sh(dir, made), format!("text\n{}\n", dir.join("at").display()));
    check(dir);
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/d/b"]).stdout, "text\n");
    // A program writes a mapped file, and calls neither msync nor fsync.
    if has("python3") {
        let script = "import mmap,os\n\
                      f = os.open('mapped', os.O_RDWR | os.O_CREAT)\n\
                      os.ftruncate(f, 8192)\n\
                      mmap.mmap(f, 8192)[4096:4099] = b'abc'\n\
                      os._exit(0)\n";
        std::fs::write(dir.join("script.py"), script).unwrap();
        sh(dir, &format!("python3 {}/script.py", dir.display()));
        let read = format!("{}/out", dir.display());
        succeed(dir, &["fs", "get", "file:disk.img:/mapped", &read]);
        assert_eq!(&std::fs::read(read).unwrap()[4096..4099], b"abc");
    }
    check(dir);
}

#[test]
fn static_programs_and_programs_on_the_mount_run() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    if !has("busybox") {
        return;
    }
    let at = dir.join("at");
    let written = format!("{}/file", at.display());
    let script = format!("echo static > {written}; sync {written}");
    assert_eq!(ran(dir, &["busybox", "sh", "-c", &script]).code, Some(0));
    sh(dir, "cp $(command -v busybox) .");
    let copied = format!("{}/busybox", at.display());
    let ran = ran(dir, &[&copied, "cat", &written]);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "static\n"), "{ran:?}");
    check(dir);
}

#[test]
fn a_program_ends_as_it_would_without_us() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let code = |program: &[&str]| ran(dir, program).code;
    let direct = |program: &[&str]| Ran::from(command(dir, program).output().unwrap());
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(direct(&["sh", "-c", "kill -TERM $$"]).code, Some(128 + 15));
    assert_eq!(direct(&["sh", "-c", "kill -KILL $$"]).code, Some(128 + 9));
    let missing = direct(&["meantime-no-such-program"]);
    assert!(missing.code == Some(127) && missing.stderr.contains("PATH"), "{missing:?}");
    assert_eq!(direct(&["/none"]).code, Some(127));
    assert_eq!(direct(&["/dev/null"]).code, Some(126));
    // The program gets its own standard input, and inherits no descriptor of ours.
    let mut cat = command(dir, &["sh", "-c", "cat; ls -l /proc/self/fd"]);
    let input = dir.join("input");
    std::fs::write(&input, "given\n").unwrap();
    cat.stdin(std::fs::File::open(input).unwrap());
    let text = Ran::from(cat.output().unwrap()).stdout;
    let is_ours =
        |line: &str| ["fuse", "socket:", "disk.img"].iter().any(|part| line.contains(part));
    assert!(text.starts_with("given\n") && !text.lines().any(is_ours), "{text}");
    check(dir);
}

#[test]
fn what_the_program_has_started_is_waited_for() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let at = dir.join("at");
    let script = format!("(sleep 2; echo late > {0}/late) > /dev/null 2>&1 & exit 3", at.display());
    let first = ran(dir, &["sh", "-c", &script]);
    assert_eq!(first.code, Some(3), "{first:?}");
    assert!(first.stderr.contains("goes on") && first.stderr.contains("processes "), "{first:?}");
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/late"]).stdout, "late\n");
    // A signal ends children that would go on for ever.
    let begun = Instant::now();
    let mut child = command(dir, &["sh", "-c", "sleep 600 > /dev/null 2>&1 & exit 4"]);
    let child = child.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(Ran::from(child.wait_with_output().unwrap()).code, Some(4));
    assert!(begun.elapsed() < Duration::from_secs(60));
    check(dir);
}

/// Runs `script` in the mount's directory, which leaves something behind and exits with 4. Sends
/// `signals` when that was said, each as soon as the last one was answered. Returns what was printed.
fn left_behind(dir: &Path, more: &[&str], script: &str, signals: &[Signal]) -> (Ran, Duration) {
    let at = dir.join("at");
    let at = at.to_str().unwrap();
    let script = format!("cd {at}\n{script}\nexit 4");
    let args = ["run", "--device", "file:disk.img?model=null", "--at", at];
    let program = ["--", "sh", "-c", &script];
    let mut child = meantime(dir, &[&args[..], more, &program].concat()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut signals = signals.iter();
    let (mut said, mut begun) = (String::new(), Instant::now());
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(60));
        let _ = kill_process(pid, Signal::KILL);
    });
    for line in lines {
        said = format!("{said}{}\n", line.unwrap());
        if let Some(signal) = signals.next() {
            begun = Instant::now();
            kill_process(pid, *signal).unwrap();
        }
    }
    let code = child.wait().unwrap().code();
    // (It ends with this process.)
    drop(watchdog);
    (Ran { code, stdout: String::new(), stderr: said }, begun.elapsed())
}

#[test]
fn what_has_namespaces_of_its_own_is_named_and_ended() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    for (script, ends) in [
        ("setsid unshare -m sleep 600 > /dev/null 2>&1 &", true),
        ("setsid unshare -m sh -c 'cd /; sleep 600 & wait' > /dev/null 2>&1 &", true),
        // It sees the mount no longer, and has a file of it.
        (
            "echo text > file; exec 3< file; cd /; setsid unshare -m \
             sh -c 'umount -l $0; exec sleep 600' $OLDPWD > /dev/null 2>&1 & exec 3<&-; sleep 0.3",
            false,
        ),
    ] {
        let signals = [Signal::TERM, Signal::TERM];
        let (ran, _) = left_behind(dir, &[], script, if ends { &signals[..1] } else { &signals });
        assert_eq!(ran.code, Some(4), "{script}: {ran:?}");
        let said = ran.stderr.lines().next().unwrap_or_default();
        assert!(said.contains("process") && said.contains("(sleep)"), "{script}: {ran:#?}");
        assert_eq!(ran.stderr.contains("ENOTCONN"), !ends, "{script}: {ran:#?}");
        check(dir);
    }
}

#[test]
fn what_ignores_sigterm_loses_the_mount() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    // It writes all the time, maps a file, and says how many writes it has seen succeed.
    let script = "import mmap, os, signal, sys\n\
                  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                  mapped = os.open('mapped', os.O_RDWR | os.O_CREAT)\n\
                  os.ftruncate(mapped, 8192)\n\
                  memory = mmap.mmap(mapped, 8192)\n\
                  memory[:4] = b'kept'\n\
                  memory.flush()\n\
                  memory[4096:4100] = b'lost'\n\
                  file = os.open('file', os.O_WRONLY | os.O_CREAT)\n\
                  done = 0\n\
                  try:\n\
                  \x20   while True:\n\
                  \x20       assert os.pwrite(file, b'%07d\\n' % done, 8 * done) == 8\n\
                  \x20       done += 1\n\
                  except OSError as error:\n\
                  \x20   open(sys.argv[1], 'w').write('%d %d' % (done, error.errno))\n";
    if !has("python3") {
        return;
    }
    std::fs::write(dir.join("script.py"), script).unwrap();
    let (script, told) = (dir.join("script.py"), dir.join("told"));
    let script = format!("python3 {} {} > /dev/null 2>&1 &", script.display(), told.display());
    // At the second signal; or some time after the first.
    for (more, signals) in [
        (&["--grace", "600"][..], &[Signal::INT, Signal::INT][..]),
        (&["--grace", "1", "--no-short"], &[Signal::TERM]),
    ] {
        let _ = std::fs::remove_file(&told);
        let (ran, took) = left_behind(dir, more, &script, signals);
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
        for part in ["goes on", "SIGTERM was sent to process ", "ENOTCONN", "msync"] {
            assert!(ran.stderr.contains(part), "{ran:#?}");
        }
        // It learns of the end by its next call.
        let begun = Instant::now();
        let told = loop {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            if text.contains(' ') {
                break text;
            }
            assert!(begun.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(20));
        };
        let (done, errno) = told.split_once(' ').unwrap();
        assert!(["107", "103"].contains(&errno), "{told}");
        let done: usize = done.parse().unwrap();
        check(dir);
        let cat =
            |name: &str| succeed(dir, &["fs", "cat", &format!("file:disk.img:{name}")]).stdout;
        let written = cat("/file");
        assert!(done > 0 && written.lines().count() >= done, "{done}: {}", written.len());
        assert!(written.lines().take(done).enumerate().all(|(n, line)| line.parse() == Ok(n)));
        assert!(cat("/mapped").starts_with("kept"));
    }
}

#[test]
fn signals_are_passed_on() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let script = format!(
        "trap 'echo usr > {0}/usr' USR1; trap 'echo term > {0}/term; exit 7' TERM; \
         echo ready; while :; do sleep 0.05; done",
        dir.join("at").display()
    );
    let mut child = command(dir, &["sh", "-c", &script]).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(7));
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/usr"]).stdout, "usr\n");
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/term"]).stdout, "term\n");
    check(dir);
}

#[test]
fn a_server_that_was_killed_leaves_nothing() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let at = dir.join("at");
    let script = format!(
        "echo durable > {0}/file; sync {0}/file; echo ready; while ls {0} > /dev/null 2>&1; do \
         sleep 0.05; done; echo gone",
        at.display()
    );
    let mut child = command(dir, &["sh", "-c", &script]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(&mut out, &mut ready).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The program sees that the mount is gone.
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "gone\n");
    // The device is free, and the journal is replayed.
    assert_eq!(sh(dir, "cat file"), "durable\n");
    check(dir);
}

#[test]
fn a_directory_that_is_not_there_is_made_for_the_program_only() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    std::fs::create_dir_all(dir.join("above/sibling")).unwrap();
    std::fs::write(dir.join("above/sibling/file"), "").unwrap();
    let run_at = |at: &str| {
        let at = dir.join(at);
        let script = format!("cd {}; echo x > x && echo *; cd ..; echo */*; : > y", at.display());
        let at = at.to_str().unwrap();
        run(dir, &["run", "--device", "file:disk.img", "--at", at, "--", "sh", "-c", &script])
    };
    let ran = run_at("above/none");
    let seen = "lost+found x\nnone/lost+found none/x sibling/file\n";
    assert_eq!(ran.stdout, seen, "{ran:?}");
    assert!(ran.stderr.contains("Read-only"), "what it would write there would be lost: {ran:?}");
    assert!(!dir.join("above/none").exists());
    // Where the directory cannot be made over its parent, nothing is changed.
    for at in ["none", "none/none", "disk.img"] {
        let ran = run_at(at);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(1), 1), "{ran:?}");
        assert!(ran.stderr.contains("mkdir") || ran.stderr.contains("not a dir"), "{ran:?}");
    }
    check(dir);
}

#[test]
fn what_cannot_be_run_is_said_in_one_line() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    std::fs::write(dir.join("junk"), vec![7; 1 << 20]).unwrap();
    let at = dir.join("at");
    for (device, more, code, part) in [
        ("file:junk", &[][..], 1, "no ext4"),
        ("file:none.img", &[], 1, "none.img"),
        ("mem:64M", &[], 2, "begins empty"),
        ("file:disk.img?create=1M", &[], 2, "create="),
        ("file:disk.img", &["-o", "colour=red"], 2, "no such option"),
        ("file:disk.img", &["--at", "mnt"], 2, "absolute"),
        ("file:disk.img", &["--cache", "4k"], 2, "1M"),
        ("file:disk.img?ro=1", &[], 1, "-o ro"),
    ] {
        let mut args = vec!["run", "--device", device];
        if !more.contains(&"--at") {
            args.extend(["--at", at.to_str().unwrap()]);
        }
        args.extend(more);
        args.extend(["--", "true"]);
        let ran = run(dir, &args);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(code), 1), "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    let ran = run(dir, &["run", "--device", "file:disk.img"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("PROGRAM"), "{ran:?}");
    let ran = run(dir, &["run", "--help"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("EXIT STATUS"), "{ran:?}");
    // Two commands share an image for reading.
    let both = "meantime=$1; shift; \"$meantime\" \"$@\"";
    let at = at.to_str().unwrap();
    let inner = ["run", "--device", "file:disk.img?ro=1", "-o", "ro", "--at", at, "--", "ls", at];
    let outer = &inner[..inner.len() - 2];
    let program = env!("CARGO_BIN_EXE_meantime");
    let ran = run(dir, &[outer, &["sh", "-c", both, "sh", program], &inner].concat());
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "lost+found\n"), "{ran:?}");
    check(dir);
}

/// As a user that may open /dev/fuse, as on most systems, and may create namespaces.
#[test]
fn a_user_who_is_not_root_may_run_programs() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    if !has("setpriv") || !has("unshare") {
        return;
    }
    let user = "12345";
    let image = dir.join("own.img");
    e2fs::mkfs(dir, "own.img", "64M", &["-E", &format!("root_owner={user}:{user}")]);
    for path in [dir, &image, &dir.join("at")] {
        std::os::unix::fs::chown(path, Some(12345), Some(12345)).unwrap();
    }
    // A /dev/fuse with this mode, which only this test sees.
    let with_fuse = |mode: &str, program: &str| {
        let script = format!(
            "mount -t tmpfs none /mnt && mknod -m {mode} /mnt/fuse c 10 229 && \
             mount --bind /mnt/fuse /dev/fuse && umount -l /mnt && \
             exec setpriv --reuid {user} --regid {user} --clear-groups {program}"
        );
        let mut command = Command::new("unshare");
        // Not where control sockets of the namespace's root would be among those of the machine's.
        command.env("XDG_RUNTIME_DIR", dir);
        Ran::from(command.args(["-m", "sh", "-e", "-c", &script]).output().unwrap())
    };
    let as_user = |program: &str| with_fuse("666", program);
    let probe = as_user("unshare -Um true");
    if probe.code != Some(0) {
        return println!("skipped: no namespaces for users here: {}", probe.stderr);
    }
    let program = env!("CARGO_BIN_EXE_meantime");
    let at = dir.join("at");
    let at = at.display();
    let run = format!("{program} run --device file:{} --at {at} -- ", image.display());
    let script = "id -u; echo mine > $0/file; stat -c %u:%g $0/file; cat $0/file; ls /root";
    let ran = as_user(&format!("{run} sh -c '{script}' {at}"));
    assert_eq!(ran.stdout, "12345\n12345:12345\nmine\n", "{ran:?}");
    assert_ne!(ran.code, Some(0), "it has no right that its user has not");
    e2fs::run("e2fsck", &["-fn", image.to_str().unwrap()]);
    // Also where the directory is made in memory.
    std::fs::create_dir_all(dir.join("above/sibling")).unwrap();
    let none = dir.join("above/none");
    let at_none =
        format!("{program} run --device file:{} --at {}", image.display(), none.display());
    let ran = as_user(&format!("{at_none} -- cat {}/file", none.display()));
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "mine\n"), "{ran:?}");
    let ran = with_fuse("600", &format!("{run} true"));
    assert!(ran.code == Some(1) && ran.stderr.contains("chmod 666 /dev/fuse"), "{ran:?}");
    assert!(ran.stderr.contains("`meantime fs get`"), "{ran:?}");
    // Where that is forbidden, the message names the cause.
    let none = format!(
        "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; \
         exec setpriv --bounding-set=-sys_admin {run} true'"
    );
    let ran = as_user(&none);
    assert!(ran.code == Some(1) && ran.stderr.contains("max_user_namespaces"), "{ran:?}");
    assert!(ran.stderr.contains("`meantime fs get`"), "{ran:?}");
}

#[test]
fn a_program_that_does_nothing_is_done_soon() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let times: Vec<_> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(Ran::from(command(dir, &["true"]).output().unwrap()).code, Some(0));
            begun.elapsed()
        })
        .collect();
    println!("{times:?}");
    // (Allows for a loaded machine and an unoptimised program.)
    assert!(times.iter().min() < Some(&Duration::from_secs(2)), "{times:?}");
    check(dir);
}
