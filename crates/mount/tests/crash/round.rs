//! Rounds of crashes on one file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use meantime_ext4::{MountError, MountOptions};
use meantime_testkit::{Rng, e2fs, image};

use crate::files::{self, Tree};
use crate::server::{self, PATIENCE, Server, wait};
use crate::way::Way;

/// Rounds after which a new file system is made.
const ROUNDS_OF_ONE: u64 = 25;
/// Options of mkfs for each file system.
const MKFS: [&[&str]; 4] = [&[], &["-b", "1024"], &["-O", "fast_commit"], &["-O", "^orphan_file"]];
/// The programs that keep numbers durably, as `writer.py` names them.
const KEEPERS: [&str; 5] = ["delete", "wal", "rocksdb", "mapped", "truncate"];
/// Directories in which a program executes steps.
const DIRS: [&str; 2] = ["one", "two"];

const WRITER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crash/writer.py");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Server,
    Programs,
    Both,
}

/// A file system, and its expected content.
struct Place {
    scratch: tempfile::TempDir,
    image: PathBuf,
    trees: [Tree; 2],
    fast_commit: bool,
    keepers: Vec<&'static str>,
    /// The number of lines that the current keeper had noted before.
    noted: usize,
    /// A mount namespace was created elsewhere while the kernel had the image mounted, and keeps a
    /// copy of that mount.
    is_taken: bool,
    rng: Rng,
}

/// Counts of what was done, printed at the end.
#[derive(Debug, Default)]
struct Tally {
    steps: usize,
    numbers: usize,
    by_us: usize,
    by_kernel: usize,
    by_e2fsck: usize,
    server_lived: usize,
    short_calls: u64,
}

/// Runs `rounds` rounds.
pub(crate) fn run(rounds: u64, seed: u64) {
    if !e2fs::tools() {
        return;
    }
    let keepers = keepers();
    let mut tally = Tally::default();
    let mut done = 0;
    while done < rounds {
        let Some(mut place) = Place::new(seed + done, &keepers) else { return };
        for round in 0..ROUNDS_OF_ONE.min(rounds - done) {
            if place.is_taken {
                // An image that another namespace still has mounted cannot be used any more.
                break;
            }
            let number = done + round;
            println!("round {number}, seed {}", seed + done);
            place.round(number, &mut tally);
        }
        done += ROUNDS_OF_ONE;
    }
    println!("{rounds} rounds: {tally:?}");
    assert!(tally.steps + tally.numbers > 0, "nothing was durable before any crash");
    assert!(tally.short_calls > 0, "no program took the shared-memory path");
}

/// Returns the keepers that are available here.
fn keepers() -> Vec<&'static str> {
    if !e2fs::has("python3") {
        return Vec::new();
    }
    let rocksdb = Path::new("/usr/lib/x86_64-linux-gnu/librocksdb.so.7.8").exists();
    if !rocksdb {
        println!("without RocksDB: there is no librocksdb.so.7.8 (package rocksdb-tools)");
    }
    KEEPERS.into_iter().filter(|keeper| rocksdb || *keeper != "rocksdb").collect()
}

impl Place {
    fn new(seed: u64, keepers: &[&'static str]) -> Option<Self> {
        let mut rng = Rng::new(seed);
        let scratch = image::scratch();
        let made = MKFS[rng.below(MKFS.len() as u64) as usize];
        let image = image::mkfs(scratch.path(), "image", "96M", made);
        for dir in ["at", "kernel"] {
            fs::create_dir(scratch.path().join(dir)).unwrap();
        }
        let fast_commit = made.contains(&"fast_commit");
        let (trees, keepers) = (Default::default(), keepers.to_vec());
        let mut place =
            Self { scratch, image, trees, fast_commit, keepers, noted: 0, is_taken: false, rng };
        let server = place.server()?;
        for dir in DIRS.iter().chain(&place.keepers) {
            fs::create_dir(place.dir().join(dir)).unwrap();
        }
        place.is_taken = !server.end();
        Some(place)
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("at")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn server(&self) -> Option<Server> {
        Server::start(&self.image, &self.dir(), self.fast_commit)
    }

    /// Lets programs work, kills something, then checks everything.
    fn round(&mut self, number: u64, tally: &mut Tally) {
        let mut server = self.server().expect("there was a mount before");
        let keeper = match self.keepers.len() {
            0 => None,
            len => Some(self.keepers[number as usize % len]),
        };
        let killed = match self.rng.below(8) {
            0 => Killed::Programs,
            1..4 => Killed::Both,
            _ => Killed::Server,
        };
        let mut programs = self.start_programs(&server, keeper);
        self.wait_for_notes(keeper);
        let ms = self.rng.below(300);
        std::thread::sleep(Duration::from_millis(ms));
        let server_first = self.rng.one_in(2);
        tally.short_calls += server.short_calls();
        if killed == Killed::Server || killed == Killed::Both && server_first {
            server.kill();
        }
        if killed != Killed::Server {
            programs.iter_mut().for_each(|program| drop(program.kill()));
        }
        if killed == Killed::Both {
            server.kill();
        }
        for program in &mut programs {
            wait(program, "a program whose mount has gone");
        }
        if killed == Killed::Programs {
            self.check(&self.dir(), keeper, tally);
            self.is_taken = !server.end();
            tally.server_lived += 1;
        } else {
            server.bury();
            self.recover(number, keeper, tally);
        }
        if !self.is_taken {
            e2fs::run("e2fsck", &["-fn", self.image.to_str().unwrap()]);
        }
    }

    fn start_programs(&mut self, server: &Server, keeper: Option<&str>) -> Vec<Child> {
        let mut programs = Vec::new();
        for dir in DIRS {
            let notes = self.notes(dir);
            let _ = fs::remove_file(&notes);
            let seed = self.rng.next().to_string();
            let at = self.dir().join(dir);
            let settings =
                [("DIR", at.as_os_str()), ("NOTES", notes.as_os_str()), ("SEED", seed.as_ref())];
            let mut program = server::role("files", &settings);
            server.lead(&mut program, self.way());
            programs.push(program.stdout(Stdio::null()).spawn().expect("a process"));
        }
        if let Some(keeper) = keeper {
            let text = fs::read_to_string(self.notes(keeper)).unwrap_or_default();
            self.noted = text.lines().count();
            // Its errors about the lost mount are of no use.
            let mut writer = self.writer("write", keeper, &self.dir());
            server.lead(&mut writer, self.way());
            programs.push(writer.stderr(Stdio::null()).spawn().expect("python3"));
        }
        programs
    }

    /// Returns the way of a program. Usually it is the short one.
    fn way(&mut self) -> Way {
        if self.rng.below(4) > 0 { Way::SharedMemory } else { Way::Fuse }
    }

    /// Waits until each program has made something durable.
    fn wait_for_notes(&self, keeper: Option<&str>) {
        let begun = Instant::now();
        let noted = |name: &str, before: usize| {
            let text = fs::read_to_string(self.notes(name)).unwrap_or_default();
            text.lines().count() > before
        };
        // A step has two lines.
        while !DIRS.iter().all(|dir| noted(dir, 1))
            || keeper.is_some_and(|keeper| !noted(keeper, self.noted))
        {
            assert!(begun.elapsed() < PATIENCE, "a program has made nothing durable");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn notes(&self, name: &str) -> PathBuf {
        self.beside(&format!("{name}.notes"))
    }

    fn writer(&self, what: &str, keeper: &str, at: &Path) -> Command {
        let mut command = Command::new("python3");
        command.args([WRITER, what, keeper]).arg(at.join(keeper).join("kept"));
        command.arg(self.notes(keeper)).stdin(Stdio::null());
        command
    }

    /// Recovers the file system after a crash of the server.
    fn recover(&mut self, number: u64, keeper: Option<&str>, tally: &mut Tally) {
        let image = self.image.to_str().unwrap().to_owned();
        if number % 3 == 1
            && let Some(kernel) = image::Mounted::new(&self.image, &self.beside("kernel"), "rw")
        {
            self.check(&self.beside("kernel"), keeper, tally);
            drop(kernel);
            self.wait_for_loop();
            tally.by_kernel += 1;
            return;
        }
        if number % 3 == 2 {
            e2fs::run_for("e2fsck", &["-p", &image], &[0, 1]);
            e2fs::run("e2fsck", &["-fn", &image]);
            tally.by_e2fsck += 1;
        } else {
            tally.by_us += 1;
        }
        let server = self.server().expect("there was a mount before");
        self.check(&self.dir(), keeper, tally);
        self.is_taken = !server.end();
    }

    /// Waits until the loop device is free. It stays for a moment after its mount is gone.
    fn wait_for_loop(&mut self) {
        let begun = Instant::now();
        let options = MountOptions { write: true, ..MountOptions::default() };
        self.is_taken = loop {
            match image::try_mount(&self.image, &options) {
                Ok(fs) => {
                    fs.unmount().unwrap();
                    break false;
                }
                Err(MountError::InUse { .. }) if begun.elapsed() < Duration::from_secs(5) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(MountError::InUse { .. }) => break true,
                Err(error) => panic!("{error}"),
            }
        };
    }

    /// Checks that everything durable is at `at`. Checks one database only, in turns, because the
    /// check may change it.
    fn check(&mut self, at: &Path, keeper: Option<&str>, tally: &mut Tally) {
        for (index, dir) in DIRS.into_iter().enumerate() {
            let notes = self.notes(dir);
            let found = files::check(&at.join(dir), &self.trees[index], &notes);
            self.trees[index] = found.unwrap_or_else(|why| panic!("{why}"));
            let text = fs::read_to_string(notes).unwrap_or_default();
            tally.steps += text.lines().filter(|line| *line == "durable").count();
        }
        if let Some(keeper) = keeper {
            let text = fs::read_to_string(self.notes(keeper)).unwrap_or_default();
            tally.numbers += text.lines().count() - self.noted;
            let output = self.writer("check", keeper, at).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{text}");
        }
    }
}
