//! An ext4 image, and programs that find it at a directory (`meantime run -o ro`).

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{self, Ran};
use crate::run_mounted::may_mount;
use crate::shared_memory_path::library;
use meantime_testkit::e2fs::{self, has};
use meantime_testkit::image::scratch;

/// Where programs find it: a directory of every machine. What is in it is out of their sight.
pub(crate) const AT: &str = "/mnt";

pub(crate) fn tool(dir: &Path, program: &str, args: &[&str]) -> Output {
    let output = e2fs::command(program).current_dir(dir).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    output
}

/// A directory `src` and an image of it.
pub(crate) struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// What `fill` puts into the directory. `None` without mkfs.ext4, or where mounting is not
    /// permitted.
    pub(crate) fn new(fill: impl FnOnce(&Path)) -> Option<Self> {
        if !has("mkfs.ext4") || !may_mount() {
            return None;
        }
        let dir = scratch();
        let src = dir.path().join("src");
        std::fs::create_dir(&src).unwrap();
        fill(&src);
        let image = std::fs::File::create(dir.path().join("d.img")).unwrap();
        image.set_len(64 << 20).unwrap();
        tool(dir.path(), "mkfs.ext4", &["-q", "-F", "-d", "src", "d.img"]);
        Some(Self { dir })
    }

    /// A small tree.
    pub(crate) fn tree() -> Option<Self> {
        Self::new(|src| {
            std::fs::write(src.join("a.txt"), "hello\n").unwrap();
            std::fs::create_dir(src.join("dir")).unwrap();
            std::fs::write(src.join("dir/b.bin"), noise(300_000)).unwrap();
            let link =
                |to: &str, name: &str| std::os::unix::fs::symlink(to, src.join(name)).unwrap();
            link("../a.txt", "dir/link");
            link("/etc/passwd", "outside");
            link("loop", "loop");
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `meantime run -o ro` of a program, which is to follow; it says at its end how many of its
    /// calls took the shared-memory path.
    pub(crate) fn command(&self) -> Command {
        let args = ["run", "-o", "ro", "--device", "file:d.img", "--at", AT, "--"];
        let mut command = common::meantime(self.path(), &args);
        command.env("MEANTIME_INTERCEPT", library()).env("MEANTIME_REPORT", "1");
        command
    }

    /// Runs `program`.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, program: &[S]) -> Ran {
        self.command().args(program).output().unwrap().into()
    }

    /// The same, to a successful end; its standard output.
    #[track_caller]
    pub(crate) fn succeed(&self, program: &[&str]) -> String {
        let ran = self.run(program);
        assert_eq!(ran.code, Some(0), "{program:?}: {ran:#?}");
        ran.stdout
    }

    /// A shell script.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        self.succeed(&["sh", "-c", script])
    }

    /// A Python script, with `SRC` for the directory that the image was made of and `AT` for the
    /// mount point.
    #[track_caller]
    pub(crate) fn python(&self, script: &str) {
        if !has("python3") {
            return;
        }
        let head = format!(
            "import os,sys\nAT={AT:?}\nSRC={:?}\n",
            self.path().join("src").to_str().unwrap()
        );
        let file = self.path().join("script.py");
        std::fs::write(&file, head + script).unwrap();
        self.succeed(&["python3", file.to_str().unwrap()]);
    }
}

pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
