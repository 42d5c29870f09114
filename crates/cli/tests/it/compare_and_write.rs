//! Compare-and-write by the command: locks and counters on a device that processes share.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout};

use crate::common::{Ran, meantime, run, succeed};

const SERVED: &str = "vfio-user:ssd.sock";

/// A running `meantime ssd`, killed at the end.
struct Served {
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Served {
    fn start(dir: &Path) -> Self {
        let args = ["ssd", "--socket", "ssd.sock", "--log", "none", "mem:1M?lba=512"];
        let mut child =
            meantime(dir, &args).stderr(std::process::Stdio::inherit()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        assert!(!ready.is_empty(), "it does not begin");
        Self { child, _stdout: stdout }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A block with a number.
fn block(number: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

fn number(path: &Path) -> u64 {
    u64::from_le_bytes(std::fs::read(path).unwrap()[..8].try_into().unwrap())
}

/// Tries once, with files called after `who`.
fn attempt(dir: &Path, who: &str, expected: u64, new: u64) -> Ran {
    let name = |what: &str| format!("{who}.{what}");
    std::fs::write(dir.join(name("old")), block(expected)).unwrap();
    std::fs::write(dir.join(name("new")), block(new)).unwrap();
    let args = ["compare-and-write", "--device", SERVED, "--lba", "9", "--expect"];
    let files = [&name("old"), "--write", &name("new"), "--found", &name("found")];
    run(dir, &[&args[..], &files[..]].concat())
}

/// Processes that take turns at one SSD: each finds the other's numbers, and no count is lost.
#[test]
fn processes_count_up_one_block() {
    const TIMES: u64 = 12;
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path());
    let count = |who: &str| {
        let (mut seen, mut done, mut conflicts) = (0, 0, 0u64);
        while done < TIMES {
            let ran = attempt(dir.path(), who, seen, seen + 1);
            match ran.code {
                Some(0) => (seen, done) = (seen + 1, done + 1),
                Some(3) => {
                    assert!(ran.stderr.contains("nothing was written"), "{ran:?}");
                    seen = number(&dir.path().join(format!("{who}.found")));
                    conflicts += 1;
                }
                _ => panic!("{ran:?}"),
            }
        }
        conflicts
    };
    let conflicts: u64 = std::thread::scope(|scope| {
        ["a", "b"]
            .map(|who| scope.spawn(move || count(who)))
            .map(|one| one.join().unwrap())
            .iter()
            .sum()
    });
    // Whoever came second has begun with 0, which was no longer there.
    assert!(conflicts >= 1);
    let last = attempt(dir.path(), "sum", 0, 0);
    assert_eq!(last.code, Some(3), "{last:?}");
    assert_eq!(number(&dir.path().join("sum.found")), 2 * TIMES);
}

#[test]
fn a_block_of_a_file_is_written_once() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = dir.path().join("a.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    std::fs::write(dir.path().join("free"), block(0)).unwrap();
    std::fs::write(dir.path().join("mine"), block(7)).unwrap();
    let args = [
        "compare-and-write",
        "--device",
        "file:a.img",
        "--lba",
        "5",
        "--expect",
        "free",
        "--write",
    ];
    succeed(dir.path(), &[&args[..], &["mine"]].concat());
    assert_eq!(std::fs::read(&image).unwrap()[5 * 512..][..512], block(7));
    let again = run(dir.path(), &[&args[..], &["mine"]].concat());
    assert_eq!((again.code, again.stdout.as_str()), (Some(3), ""), "{again:?}");
    assert!(again.stderr.contains("at block 5"), "{again:?}");
}

#[test]
fn what_cannot_be_is_an_error_that_says_why() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(dir.path().join("a.img"), vec![0; 1 << 20]).unwrap();
    std::fs::write(dir.path().join("one"), block(0)).unwrap();
    std::fs::write(dir.path().join("half"), &block(0)[..100]).unwrap();
    std::fs::write(dir.path().join("empty"), b"").unwrap();
    std::fs::write(dir.path().join("many"), vec![0; 1 << 20]).unwrap();
    for (device, lba, expect, write, code, words) in [
        ("kernel:a.img?direct=0", "0", "one", "one", 1, "the kernel's stack passes none on"),
        ("file:a.img", "2048", "one", "one", 1, "beyond"),
        ("file:a.img", "0", "one", "half", 2, "100 bytes are no whole number"),
        ("file:a.img", "0", "empty", "one", 2, "0 bytes are no whole number"),
        ("file:a.img", "0", "one", "many", 2, "more than"),
        ("file:a.img", "0", "none", "one", 1, "--expect none"),
        ("file:a.img", "0", "-", "-", 2, "put one of them into a file"),
        ("file:a.img", "x", "one", "one", 2, "--lba"),
        ("a.img", "0", "one", "one", 2, "did you mean file:a.img?"),
    ] {
        let args = [
            "compare-and-write",
            "--device",
            device,
            "--lba",
            lba,
            "--expect",
            expect,
            "--write",
            write,
        ];
        let ran = run(dir.path(), &args);
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains(words) && ran.stderr.lines().count() == 1,
            "{args:?}: {}",
            ran.stderr
        );
    }
    let args = [
        "compare-and-write",
        "--device",
        "file:a.img",
        "--lba",
        "0",
        "--expect",
        "one",
        "--write",
        "one",
    ];
    let ran = run(dir.path(), &[&args[..], &["--found", "no/where"]].concat());
    assert!(ran.code == Some(2) && ran.stderr.contains("--found no/where"), "{ran:?}");
    assert_eq!(std::fs::read(dir.path().join("a.img")).unwrap(), vec![0; 1 << 20]);
}
