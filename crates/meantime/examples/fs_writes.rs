//! How fast files are written, created and removed: `fs_writes (--device URI | --dir PATH)
//! [SECONDS]`.
//!
//! With a device it uses Meantime's ext4; with a directory, the file system mounted there. Prints a
//! JSON object: for each kind of work its rate per second, and the median, 99th and 99.9th
//! percentile of its latency in µs. `scripts/bench-fs-writes.sh` compares several.

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meantime::block::{self, OpenOptions};
use meantime::ext4::{self, FileSystem, MountOptions, NewNode, Node};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
/// Size of the file that is overwritten.
const FILE_PAGES: u64 = 4096;
/// Size at which the appended file is truncated.
const APPENDED_PAGES: u64 = 4096;

/// The file system under test.
trait Place {
    type File;
    fn make(&self, name: &str) -> Result<Self::File>;
    fn remove(&self, name: &str) -> Result<()>;
    fn write(&self, file: &Self::File, bytes: &[u8], offset: u64) -> Result<()>;
    fn shorten(&self, file: &Self::File) -> Result<()>;
    fn sync(&self, file: &Self::File, data_only: bool) -> Result<()>;
}

struct Ours {
    fs: FileSystem,
    root: Node,
}

impl Place for Ours {
    type File = ext4::File;

    fn make(&self, name: &str) -> Result<ext4::File> {
        let new = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };
        let node = self.fs.create(&self.root, OsStr::new(name), &new)?;
        let options = ext4::OpenOptions { read: true, write: true, ..ext4::OpenOptions::default() };
        Ok(self.fs.open_node_with(&node, &options)?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(self.fs.unlink(&self.root, OsStr::new(name))?)
    }

    fn write(&self, file: &ext4::File, bytes: &[u8], offset: u64) -> Result<()> {
        let written = file.write_at(bytes, offset)?;
        if written == bytes.len() { Ok(()) } else { Err("a short write".into()) }
    }

    fn shorten(&self, file: &ext4::File) -> Result<()> {
        Ok(file.set_len(0)?)
    }

    fn sync(&self, file: &ext4::File, data_only: bool) -> Result<()> {
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }
}

struct Mounted(PathBuf);

impl Place for Mounted {
    type File = std::fs::File;

    fn make(&self, name: &str) -> Result<std::fs::File> {
        Ok(std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.0.join(name))?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.0.join(name))?)
    }

    fn write(&self, file: &std::fs::File, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(file.write_all_at(bytes, offset)?)
    }

    fn shorten(&self, file: &std::fs::File) -> Result<()> {
        Ok(file.set_len(0)?)
    }

    fn sync(&self, file: &std::fs::File, data_only: bool) -> Result<()> {
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }
}

/// Repeats `once` for `seconds`. Returns the result as a JSON member.
fn measured(name: &str, seconds: f64, mut once: impl FnMut(u64) -> Result<()>) -> Result<String> {
    let mut micros = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs_f64(seconds) || micros.is_empty() {
        let before = Instant::now();
        once(micros.len() as u64)?;
        micros.push(before.elapsed().as_secs_f64() * 1e6);
    }
    let rate = micros.len() as f64 / began.elapsed().as_secs_f64();
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() as f64 * share) as usize).min(micros.len() - 1)];
    let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
    Ok(format!(
        r#""{name}": {{"rate": {rate:.1}, "p50_us": {p50:.2}, "p99_us": {p99:.2}, "p99.9_us": {p999:.2}}}"#
    ))
}

fn work<P: Place>(place: &P, seconds: f64) -> Result<String> {
    let mut results = Vec::new();
    let page = [0x5A; PAGE];
    let file = place.make("appended")?;
    results.push(measured("append+fsync", seconds, |turn| {
        let at = turn % APPENDED_PAGES;
        if at == 0 && turn > 0 {
            place.shorten(&file)?;
        }
        place.write(&file, &page, at * PAGE as u64)?;
        place.sync(&file, false)
    })?);
    let file = place.make("overwritten")?;
    for at in 0..FILE_PAGES {
        place.write(&file, &page, at * PAGE as u64)?;
    }
    place.sync(&file, false)?;
    for (name, data_only) in [("overwrite+fsync", false), ("overwrite+fdatasync", true)] {
        results.push(measured(name, seconds, |turn| {
            let at = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            place.write(&file, &page, at % FILE_PAGES * PAGE as u64)?;
            place.sync(&file, data_only)
        })?);
    }
    // In order, into pages that the cache has; nothing waits for the device.
    let bytes = vec![0xA5; 1 << 20];
    for (name, size) in
        [("write 4 KiB", 4 << 10), ("write 64 KiB", 64 << 10), ("write 1 MiB", 1 << 20)]
    {
        let turns = FILE_PAGES * PAGE as u64 / size as u64;
        results.push(measured(name, seconds, |turn| {
            place.write(&file, &bytes[..size], turn % turns * size as u64)
        })?);
    }
    place.sync(&file, false)?;
    // A hundred names at a time, so that the directory has several blocks.
    results.push(measured("create+unlink", seconds, |turn| {
        drop(place.make(&format!("name-{turn}"))?);
        if turn >= 100 { place.remove(&format!("name-{}", turn - 100)) } else { Ok(()) }
    })?);
    Ok(format!("{{{}}}", results.join(", ")))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, place, rest @ ..] = &arguments[..] else {
        return Err("usage: fs_writes (--device URI | --dir PATH) [SECONDS]".into());
    };
    let seconds = rest.first().map_or(Ok(1.0), |text| text.parse())?;
    let results = match &kind[..] {
        "--device" => {
            let device = block::open(place, &OpenOptions::default())?;
            let fs = FileSystem::mount(
                device,
                &MountOptions { write: true, ..MountOptions::default() },
            )?;
            let root = fs.root()?;
            let ours = Ours { fs, root };
            let results = work(&ours, seconds)?;
            let Ours { fs, root } = ours;
            drop(root);
            fs.unmount()?;
            results
        }
        "--dir" => work(&Mounted(Path::new(place).to_path_buf()), seconds)?,
        other => return Err(format!("{other}: --device or --dir").into()),
    };
    Ok(writeln!(std::io::stdout(), "{results}")?)
}
