//! A mount of an image that this process serves, and ways to use it.
//!
//! Every use of the mount is in a thread or process with a time limit: with a server that does not
//! answer, the test would otherwise hang.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use meantime_ext4::{FileSystem, MountOptions};
use meantime_mount::{Mount, Options, ServeError, SessionError};
use meantime_testkit::{e2fs, image};

/// Time limit for any use of a mount.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Served {
    scratch: tempfile::TempDir,
    pub(crate) image: PathBuf,
    mount: Option<Mount>,
}

impl Served {
    /// Makes and mounts a file system of `size`; `None`, with a message, where that is not
    /// permitted.
    pub(crate) fn new(size: &str, options: &Options) -> Option<Self> {
        Self::with(size, &[], options, &MountOptions { write: true, ..MountOptions::default() })
    }

    pub(crate) fn with(
        size: &str,
        mkfs: &[&str],
        options: &Options,
        file_system: &MountOptions,
    ) -> Option<Self> {
        if !e2fs::tools() {
            return None;
        }
        let scratch = image::scratch();
        let image = image::mkfs(scratch.path(), "image", size, mkfs);
        std::fs::create_dir(scratch.path().join("at")).unwrap();
        let mut served = Self { scratch, image, mount: None };
        served.mount(options, file_system).then_some(served)
    }

    /// Mounts it, possibly again. Returns false if that is not permitted here.
    pub(crate) fn mount(&mut self, options: &Options, file_system: &MountOptions) -> bool {
        let fs = image::mount(&self.image, file_system);
        match Mount::new(fs, &self.dir(), options) {
            Ok(mount) => {
                self.mount = Some(mount);
                true
            }
            Err(ServeError::Session(
                error @ (SessionError::NoFuse(_) | SessionError::Refused { .. }),
            )) => {
                println!("skipped: {error}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the mount's directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.scratch.path().join("at")
    }

    /// Returns a path beside the mount, outside of it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Runs `use_it` on the mount in a thread of its own.
    pub(crate) fn used<T: Send + 'static>(
        &self,
        use_it: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> T {
        let (done, wait) = mpsc::channel();
        let dir = self.dir();
        let thread = std::thread::spawn(move || {
            let used = use_it(&dir);
            let _ = done.send(());
            used
        });
        if wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Blocked requests get errors then.
            let _ = Command::new("umount").arg("-f").arg(self.dir()).status();
            panic!("the mount did not answer");
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `script` in the mount's root. Returns its standard output without the last line end.
    pub(crate) fn sh(&self, script: &str) -> String {
        let script = format!("cd '{}'\n{script}", self.dir().display());
        run(PATIENCE.as_secs(), None, |command| {
            command.args(["sh", "-e", "-c", &script]);
        })
    }

    /// Runs the program that `tell` sets, for at most `seconds`, in the mount's root.
    pub(crate) fn run_for(&self, seconds: u64, tell: impl FnOnce(&mut Command)) -> String {
        run(seconds, Some(&self.dir()), tell)
    }

    /// Returns the mount, for changes that this process makes through the library.
    pub(crate) fn mounted(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Takes the mount out.
    pub(crate) fn take(&mut self) -> Mount {
        self.mount.take().unwrap()
    }

    /// Unmounts it. Retries while it is busy: a process that another thread is just starting has
    /// inherited this one's open files for a moment.
    pub(crate) fn unmount(&mut self) {
        let begun = Instant::now();
        let mut mount = self.take();
        loop {
            match mount.unmount() {
                Ok(()) => return,
                Err((Some(busy), ServeError::Busy { .. }))
                    if begun.elapsed() < Duration::from_secs(10) =>
                {
                    mount = busy;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err((_, error)) => panic!("{error}"),
            }
        }
    }

    /// Mounts the file system through the library alone.
    pub(crate) fn unmounted(&self) -> FileSystem {
        image::mount(&self.image, &MountOptions::default())
    }

    /// Unmounts it, and checks it with e2fsck.
    pub(crate) fn end(mut self) {
        self.unmount();
        e2fs::run("e2fsck", &["-fn", self.image.to_str().unwrap()]);
    }
}

/// Returns the standard output of a program, which must succeed.
fn run(seconds: u64, dir: Option<&Path>, tell: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &seconds.to_string()]).stdin(Stdio::null());
    tell(&mut command);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let output = command.output().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{:?}\n{out}{error}", output.status);
    out.trim_end().to_owned()
}
