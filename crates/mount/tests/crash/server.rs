//! The process that serves the mount.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use meantime_ext4::MountOptions;
use meantime_mount::{Mount, Options};
use meantime_testkit::{e2fs, image};

use crate::ROLE;
use crate::way::Way;

/// Time after which a process is taken to hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const READY: &str = "the mount answers";

/// Returns a command that runs this test's program again as `role`.
pub(crate) fn role(role: &str, settings: &[(&str, &OsStr)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "what_is_durable_survives_some_crashes", "--nocapture"]);
    command.env(ROLE, role).envs(settings.iter().copied()).stdin(Stdio::null());
    command
}

/// Serves until the mount is unmounted, or the test's own process is gone.
pub(crate) fn serve() {
    let [image, dir] = ["IMAGE", "DIR"].map(|name| std::env::var_os(name).unwrap());
    let options = MountOptions {
        write: true,
        fast_commit: std::env::var_os("FAST_COMMIT").is_some(),
        ..MountOptions::default()
    };
    let fs = match image::try_mount(Path::new(&image), &options) {
        Ok(fs) => fs,
        Err(error) => return println!("skipped: {error}"),
    };
    let options = Options { shared_memory: std::env::var("SOCKET").ok(), ..Options::default() };
    let mount = match Mount::new(fs, Path::new(&dir), &options) {
        Ok(mount) => mount,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("{READY}");
    let (gone, parent) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        drop(gone);
    });
    let calls = mount.calls().unwrap();
    while !mount.wait(Duration::from_millis(20)) {
        // The process may be killed at any moment.
        let counts = calls.get();
        let short = counts.reads + counts.writes + counts.syncs;
        std::fs::write(counted(Path::new(&image)), short.to_string()).unwrap();
        if parent.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
            return mount.unmount_by_force().unwrap();
        }
    }
    mount.unmount().map_err(|(_, error)| error).unwrap();
}

/// The file in which the server counts the short calls on data.
fn counted(image: &Path) -> PathBuf {
    image.with_extension("calls")
}

/// A server process, killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    /// The pipe of its standard output.
    said: BufReader<ChildStdout>,
    image: PathBuf,
    dir: PathBuf,
    socket: String,
    ended: bool,
}

impl Server {
    /// Starts a server. `None`, with a message, if mounting is not possible here.
    pub(crate) fn start(image: &Path, dir: &Path, fast_commit: bool) -> Option<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let socket = format!("meantime-crash-{}-{number}", std::process::id());
        let _ = std::fs::remove_file(counted(image));
        let settings =
            [("IMAGE", image.as_os_str()), ("DIR", dir.as_os_str()), ("SOCKET", socket.as_ref())];
        let mut command = role("server", &settings);
        if fast_commit {
            command.env("FAST_COMMIT", "1");
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let said = BufReader::new(process.stdout.take().unwrap());
        let (image, dir) = (image.to_owned(), dir.to_owned());
        let mut server = Self { process, said, image, dir, socket, ended: false };
        let mut line = String::new();
        while server.said.read_line(&mut line).unwrap() > 0 {
            if line.ends_with(&format!("{READY}\n")) {
                return Some(server);
            }
            if let Some((_, why)) = line.split_once("skipped: ") {
                println!("skipped: {}", why.trim_end());
                return None;
            }
            line.clear();
        }
        panic!("the server has ended, see above");
    }

    /// Makes `command` use `way`.
    pub(crate) fn lead(&self, command: &mut Command, way: Way) {
        way.lead(command, std::fs::metadata(&self.dir).unwrap().dev(), &self.socket);
    }

    /// Returns how many short calls on data it has counted.
    pub(crate) fn short_calls(&self) -> u64 {
        let text = std::fs::read_to_string(counted(&self.image)).unwrap_or_default();
        text.parse().unwrap_or(0)
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Waits for the end of a server that was killed, and removes its mount.
    pub(crate) fn bury(mut self) {
        self.ended = true;
        let _ = self.process.wait();
        e2fs::run("umount", &[self.dir.to_str().unwrap()]);
    }

    /// Unmounts cleanly. Returns false if the server did not end, because a mount namespace
    /// elsewhere keeps a copy of the mount, and was killed.
    pub(crate) fn end(mut self) -> bool {
        self.ended = true;
        e2fs::run("umount", &[self.dir.to_str().unwrap()]);
        let begun = Instant::now();
        while self.process.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE {
            if begun.elapsed() > Duration::from_secs(2) && is_mounted_elsewhere(&self.dir) {
                self.kill();
                let _ = self.process.wait();
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = wait(&mut self.process, "the server");
        let mut said = String::new();
        let _ = self.said.read_to_string(&mut said);
        assert!(status.success(), "the server: {status}\n{said}");
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
            let _ = self.process.wait();
            let _ = e2fs::command("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

/// Returns whether a mount at `dir` is in any process's mount namespace.
fn is_mounted_elsewhere(dir: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let tables = processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("mountinfo")).ok());
    tables.into_iter().any(|table| table.contains(&format!(" {} ", dir.display())))
}

/// Returns how `process` ended, which it has to do soon.
pub(crate) fn wait(process: &mut Child, who: &str) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = process.kill();
            panic!("{who} has not ended");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
