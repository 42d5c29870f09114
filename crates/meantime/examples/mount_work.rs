//! What programs do with files, timed in a directory: `mount_work DIR [KIND...]`.
//!
//! Whatever is mounted at `DIR` does the work. Prints a JSON object: for each kind of work the time
//! of one operation in µs, as the mean of all (some print several). Without a kind, all are done.
//! `scripts/bench-mount.sh` puts several mounts side by side.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
/// Directories with files, and files in each: few enough for who looks at every name before one.
const DIRECTORIES: usize = 40;
const FILES: usize = 500;
/// Names in a directory that has many.
const LARGE: usize = 100_000;
/// Longer than a FUSE server's peers let the kernel keep a name.
const FORGOTTEN: Duration = Duration::from_millis(1200);
/// Size of the file that is read and written, and of a piece of it.
const BIG_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;
/// How long the kinds last that have no size.
const TIME: Duration = Duration::from_millis(500);

/// Memory that begins a page, as O_DIRECT needs it.
#[repr(align(4096))]
struct Aligned([u8; PAGE]);

/// Results, as members of a JSON object.
#[derive(Default)]
struct Results(Vec<String>);

impl Results {
    fn add(&mut self, name: &str, time: Duration, count: usize) {
        let micros = time.as_secs_f64() * 1e6 / count as f64;
        self.0.push(format!(r#""{name}": {micros:.3}"#));
    }
}

/// Does `once` until `TIME` is over: how long that took, and how often.
fn repeat(mut once: impl FnMut(usize) -> Result<()>) -> Result<(Duration, usize)> {
    let began = Instant::now();
    let mut count = 0;
    loop {
        once(count)?;
        count += 1;
        let time = began.elapsed();
        if time >= TIME {
            return Ok((time, count));
        }
    }
}

fn each_file(dir: &Path, mut once: impl FnMut(&Path) -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            once(&dir.join(format!("many-{directory}/name-{file}")))?;
        }
    }
    Ok(began.elapsed())
}

fn files(dir: &Path, results: &mut Results) -> Result<()> {
    for directory in 0..DIRECTORIES {
        fs::create_dir(dir.join(format!("many-{directory}")))?;
    }
    let count = DIRECTORIES * FILES;
    let time = each_file(dir, |path| {
        OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(())
    })?;
    results.add("create", time, count);
    std::thread::sleep(FORGOTTEN);
    // (As C programs do it: the standard library asks for the time of birth, too.)
    let time = each_file(dir, |path| match rustix::fs::stat(path)?.st_size {
        0 => Ok(()),
        _ => Err("a new file has a size".into()),
    })?;
    results.add("stat", time, count);
    std::thread::sleep(FORGOTTEN);
    let time = each_file(dir, |path| Ok(fs::remove_file(path)?))?;
    results.add("unlink", time, count);
    for directory in 0..DIRECTORIES {
        fs::remove_dir(dir.join(format!("many-{directory}")))?;
    }
    Ok(())
}

/// Names in a directory that has many.
fn large_directory(dir: &Path, results: &mut Results) -> Result<()> {
    let large = dir.join("large");
    fs::create_dir(&large)?;
    let create = |number: usize| -> Result<()> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(large.join(format!("name-{number}")))?;
        Ok(())
    };
    (0..LARGE).try_for_each(create)?;
    let began = Instant::now();
    (LARGE..LARGE + FILES).try_for_each(create)?;
    results.add("create in 10^5", began.elapsed(), FILES);
    let began = Instant::now();
    for number in LARGE..LARGE + FILES {
        fs::remove_file(large.join(format!("name-{number}")))?;
    }
    results.add("unlink in 10^5", began.elapsed(), FILES);
    Ok(fs::remove_dir_all(large)?)
}

/// The big file, written if there is none.
fn big(dir: &Path) -> Result<std::path::PathBuf> {
    let path = dir.join("big");
    if !path.exists() {
        let mut file = File::create(&path)?;
        for piece in 0..BIG_BYTES / PIECE_BYTES {
            file.write_all(&vec![piece as u8; PIECE_BYTES])?;
        }
        file.sync_all()?;
    }
    Ok(path)
}

fn random_reads(path: &Path, flags: i32) -> Result<(Duration, usize)> {
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut page = Aligned([0; PAGE]);
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    repeat(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = state % (BIG_BYTES / PAGE) as u64 * PAGE as u64;
        file.read_exact_at(&mut page.0, at)?;
        if page.0[0] == (at / PIECE_BYTES as u64) as u8 { Ok(()) } else { Err("wrong data".into()) }
    })
}

fn read_cached(dir: &Path, results: &mut Results) -> Result<()> {
    let path = big(dir)?;
    fs::read(&path)?;
    let (time, count) = random_reads(&path, 0)?;
    results.add("read 4k cached", time, count);
    Ok(())
}

fn read_direct(dir: &Path, results: &mut Results) -> Result<()> {
    // (Any server without O_DIRECT says so: EINVAL.)
    let (time, count) = random_reads(&big(dir)?, libc::O_DIRECT)?;
    results.add("read 4k direct", time, count);
    Ok(())
}

/// Reads the big file twice. The first time is cold only after a remount.
fn read_sequential(dir: &Path, results: &mut Results) -> Result<()> {
    let path = big(dir)?;
    let mut piece = vec![0; PIECE_BYTES];
    for name in ["read 1m", "read 1m warm"] {
        let mut file = File::open(&path)?;
        let began = Instant::now();
        for _ in 0..BIG_BYTES / PIECE_BYTES {
            file.read_exact(&mut piece)?;
        }
        results.add(name, began.elapsed(), BIG_BYTES / PIECE_BYTES);
    }
    Ok(())
}

fn write_sequential(dir: &Path, results: &mut Results) -> Result<()> {
    let path = dir.join("written");
    let piece = vec![0x5A; PIECE_BYTES];
    // The second time is measured: a hypervisor that has taken free huge pages back gives them
    // again for milliseconds each.
    for is_measured in [false, true] {
        let began = Instant::now();
        let mut file = File::create(&path)?;
        for _ in 0..BIG_BYTES / PIECE_BYTES {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        if is_measured {
            results.add("write 1m", began.elapsed(), BIG_BYTES / PIECE_BYTES);
        }
        fs::remove_file(&path)?;
    }
    Ok(())
}

fn append(dir: &Path, results: &mut Results) -> Result<()> {
    let path = dir.join("appended");
    let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
    let (time, count) = repeat(|_| {
        file.write_all(&[0x5A; PAGE])?;
        Ok(file.sync_all()?)
    })?;
    results.add("append+fsync", time, count);
    Ok(fs::remove_file(path)?)
}

fn main() -> Result<()> {
    type Kind = fn(&Path, &mut Results) -> Result<()>;
    let kinds: [(&str, Kind); 7] = [
        ("files", files),
        ("large", large_directory),
        ("cached", read_cached),
        ("direct", read_direct),
        ("read", read_sequential),
        ("write", write_sequential),
        ("append", append),
    ];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, chosen @ ..] = &arguments[..] else {
        return Err("usage: mount_work DIR [files|large|cached|direct|read|write|append]...".into());
    };
    if let Some(unknown) = chosen.iter().find(|name| kinds.iter().all(|(kind, _)| kind != name)) {
        return Err(format!("{unknown}: no such kind of work").into());
    }
    let mut results = Results::default();
    for (name, kind) in kinds {
        if chosen.is_empty() || chosen.iter().any(|other| other == name) {
            kind(Path::new(dir), &mut results)?;
        }
    }
    Ok(writeln!(std::io::stdout(), "{{{}}}", results.0.join(", "))?)
}
