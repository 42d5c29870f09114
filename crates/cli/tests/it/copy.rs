//! All of a device's data, to another device, and through pipes.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Ran, meantime, run, succeed};

/// Bytes that differ from block to block and within one.
fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A directory on a file system with direct I/O, if there is one.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn copy_from_pipe(dir: &Path, input: &[u8], to: &str) -> Ran {
    let mut child = meantime(dir, &["copy", "-", to]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A command that refuses its input does not read it to the end.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap().into()
    })
}

#[test]
fn a_device_comes_out_of_a_pipe_as_it_went_in() {
    let dir = directory();
    // No whole number of chunks; and a target that is larger than the data.
    let input = data((1 << 20) + 3 * 4096);
    std::fs::write(dir.path().join("a.img"), vec![0xee; 2 << 20]).unwrap();
    let ran = copy_from_pipe(dir.path(), &input, "file:a.img?lba=4096");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("meantime: copied 1"), "{}", ran.stderr);
    let image = std::fs::read(dir.path().join("a.img")).unwrap();
    assert!(
        image[..input.len()] == input[..] && image[input.len()..].iter().all(|byte| *byte == 0xee)
    );

    let output = meantime(dir.path(), &["copy", "file:a.img", "-"]).output().unwrap();
    assert!(output.status.success() && output.stdout == image);
}

#[test]
fn a_device_is_copied_to_another() {
    let dir = directory();
    let input = data(77 * 4096);
    std::fs::write(dir.path().join("a.img"), &input).unwrap();
    std::fs::write(dir.path().join("b.img"), vec![0; 1 << 20]).unwrap();
    succeed(dir.path(), &["copy", "file:a.img", "file:b.img"]);
    assert!(std::fs::read(dir.path().join("b.img")).unwrap()[..input.len()] == input[..]);
    // The kernel's way out says the same.
    let output = meantime(dir.path(), &["copy", "kernel:b.img?direct=0", "-"]).output().unwrap();
    assert!(output.status.success() && output.stdout[..input.len()] == input[..]);
}

#[test]
fn what_cannot_be_copied_is_an_error_that_says_why() {
    let dir = directory();
    let before = data(1 << 20);
    std::fs::write(dir.path().join("small.img"), &before[..65536]).unwrap();
    std::fs::write(dir.path().join("large.img"), &before).unwrap();
    std::fs::write(dir.path().join("odd.img"), &before[..4608]).unwrap();
    for (from, to, code, words) in [
        ("file:large.img", "file:small.img", 1, "room for 65536: nothing was copied"),
        ("kernel:odd.img?direct=0", "file:small.img?lba=4096", 1, "no whole number"),
        ("-", "-", 2, "needs no device"),
        ("file:small.img", "file:small.img", 2, "both"),
        ("file:none.img", "-", 1, "none.img"),
        ("-", "nothing:at-all", 2, "nothing"),
    ] {
        let ran = run(dir.path(), &["copy", from, to]);
        assert_eq!(ran.code, Some(code), "{from} {to}: {ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    }
    assert!(std::fs::read(dir.path().join("small.img")).unwrap() == before[..65536]);

    let ran = copy_from_pipe(dir.path(), &before, "file:small.img");
    assert!(
        ran.code == Some(1) && ran.stderr.contains("more data than the device has room for"),
        "{ran:?}"
    );
    let ran = copy_from_pipe(dir.path(), &before[..700], "file:small.img");
    assert!(ran.code == Some(1) && ran.stderr.contains("188 bytes into a block of 512"), "{ran:?}");
}
