//! A mount of an image that this process serves, and ways to use it.
//!
//! Every use of the mount is in a thread or process with a time limit: with a server that does not
//! answer, the test would otherwise hang.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use meantime_ext4::{FileSystem, MountOptions};
use meantime_mount::{Mount, Options, ServeError, SessionError};
use meantime_testkit::{e2fs, image};

use crate::way::Way;

/// Time limit for any use of a mount.
const PATIENCE: Duration = Duration::from_secs(120);

/// Defines a test for each way of each function that takes one.
macro_rules! by_each_way {
    ($($test:ident),* $(,)?) => {
        mod by_fuse {
            $(#[test] fn $test() { super::$test(crate::way::Way::Fuse); })*
        }
        mod by_shared_memory {
            $(#[test] fn $test() { super::$test(crate::way::Way::SharedMemory); })*
        }
    };
}
pub(crate) use by_each_way;

/// The calls on data that reached this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DataCalls {
    pub(crate) short: u64,
    /// Requests of the kernel, and calls that were sent back to take the FUSE path.
    pub(crate) long: u64,
}

impl DataCalls {
    /// Those since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { short: self.short - before.short, long: self.long - before.long }
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.short += others.short;
        self.long += others.long;
    }

    /// The percentage of short calls.
    pub(crate) fn share(self) -> f64 {
        100.0 * self.short as f64 / (self.short + self.long).max(1) as f64
    }
}

pub(crate) struct Served {
    scratch: tempfile::TempDir,
    pub(crate) image: PathBuf,
    mount: Option<Mount>,
    /// The name of the socket of the shared-memory path, if there is one.
    socket: Option<String>,
    /// The way of programs for which nothing else is said.
    way: Way,
}

impl Served {
    /// Makes and mounts a file system of `size`. Where that is not permitted, prints a message and
    /// returns `None`.
    pub(crate) fn new(size: &str, options: &Options) -> Option<Self> {
        Self::with(size, &[], options, &MountOptions { write: true, ..MountOptions::default() })
    }

    /// The same, for programs that go `way`. The mount has a shared-memory path in any case.
    pub(crate) fn by(way: Way, size: &str, options: &Options) -> Option<Self> {
        Self::by_with(way, size, &[], options)
    }

    /// The same, made by mke2fs with `mkfs`.
    pub(crate) fn by_with(way: Way, size: &str, mkfs: &[&str], options: &Options) -> Option<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("meantime-way-{}-{number}", std::process::id());
        let options = Options { shared_memory: Some(name), ..options.clone() };
        let file_system = MountOptions { write: true, ..MountOptions::default() };
        Some(Self { way, ..Self::with(size, mkfs, &options, &file_system)? })
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
        let (socket, way) = (options.shared_memory.clone(), Way::Fuse);
        let mut served = Self { scratch, image, mount: None, socket, way };
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

    /// Unmounts it, sets the user and the group for whom blocks are reserved, and mounts it again.
    pub(crate) fn reserve_for(&mut self, uid: u32, gid: u32, options: &Options) {
        self.unmount();
        let (uid, gid) = (uid.to_string(), gid.to_string());
        e2fs::run("tune2fs", &["-u", &uid, "-g", &gid, self.image.to_str().unwrap()]);
        let options = Options { shared_memory: self.socket.clone(), ..options.clone() };
        let file_system = MountOptions { write: true, ..MountOptions::default() };
        assert!(self.mount(&options, &file_system));
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
            self.lead(command, self.way);
            command.args(["sh", "-e", "-c", &script]);
        })
    }

    /// Runs the program that `tell` sets, for at most `seconds`, in the mount's root.
    pub(crate) fn run_for(&self, seconds: u64, tell: impl FnOnce(&mut Command)) -> String {
        run(seconds, Some(&self.dir()), |command| {
            self.lead(command, self.way);
            tell(command);
        })
    }

    /// Makes `command`, and the processes that it starts, use `way`.
    pub(crate) fn lead(&self, command: &mut Command, way: Way) {
        if way == Way::SharedMemory {
            let device = self.used(|dir| std::fs::metadata(dir).unwrap().dev());
            way.lead(
                command,
                device,
                self.socket.as_ref().expect("a mount with a shared-memory path"),
            );
        }
    }

    /// Returns the calls on data until now.
    pub(crate) fn data_calls(&self) -> DataCalls {
        let calls = self.mounted().calls().map(|calls| calls.get()).unwrap_or_default();
        let requests = self.mounted().requests();
        let of_data = |name: &String| ["read", "write", "fsync"].contains(&name.as_str());
        let requests = requests.iter().filter(|(name, _)| of_data(name));
        DataCalls {
            short: calls.reads + calls.writes + calls.syncs,
            long: calls.long + requests.map(|(_, requests)| requests.served).sum::<u64>(),
        }
    }

    /// Checks that since `before` at least 95 % of the calls on data were short, if programs take
    /// the shared-memory path, and none otherwise. `what` they did is for the message.
    #[track_caller]
    pub(crate) fn went_their_way(&self, what: &str, before: DataCalls) {
        let calls = self.data_calls().since(before);
        let share = calls.share();
        println!("{what}: {share:.1} % short, {calls:?}");
        match self.way {
            Way::Fuse => assert_eq!(calls.short, 0, "{what}"),
            Way::SharedMemory => assert!(share >= 95.0, "{what}: {share:.1} % short, {calls:?}"),
        }
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
    /// inherited this process's open files for a moment.
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
