//! The process that serves the mount.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use meantime_ext4::MountOptions;
use meantime_mount::{Mount, Options};
use meantime_testkit::{e2fs, image};

use crate::ROLE;

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
    let mount = match Mount::new(fs, Path::new(&dir), &Options::default()) {
        Ok(mount) => mount,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("{READY}");
    let (gone, parent) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        drop(gone);
    });
    while !mount.wait(Duration::from_millis(200)) {
        if parent.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
            return mount.unmount_by_force().unwrap();
        }
    }
    mount.unmount().map_err(|(_, error)| error).unwrap();
}

/// A server process, killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    /// Its standard output: a pipe.
    said: BufReader<ChildStdout>,
    dir: std::path::PathBuf,
    ended: bool,
}

impl Server {
    /// Starts a server. `None`, with a message, if mounting is not possible here.
    pub(crate) fn start(image: &Path, dir: &Path, fast_commit: bool) -> Option<Self> {
        let mut command = role("server", &[("IMAGE", image.as_os_str()), ("DIR", dir.as_os_str())]);
        if fast_commit {
            command.env("FAST_COMMIT", "1");
        }
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, said, dir: dir.to_owned(), ended: false };
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
