//! Shared by the benchmarks of files: images, the software SSDs that hold them, and statistics.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use meantime_block::{
    self as block, BlockChannel, BlockDevice, ChannelOptions, Device, OpenOptions,
};
use meantime_completion::Policy;
use meantime_hw::cpu;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) const PAGE: u64 = 4096;

/// How often each measurement is repeated.
pub(crate) fn turns() -> usize {
    std::env::var("MEANTIME_TURNS").ok().and_then(|text| text.parse().ok()).unwrap_or(9)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The requested `benches`, in order, and the other arguments: device models.
pub(crate) fn arguments(benches: &[&str]) -> (Vec<String>, Vec<String>) {
    // (cargo adds `--bench`.)
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    arguments.partition(|argument| benches.contains(&argument.as_str()))
}

/// The CPU of the software SSD's thread: the last that this process could use at the first call.
fn last_cpu() -> usize {
    static LAST: OnceLock<usize> = OnceLock::new();
    *LAST.get_or_init(|| cpu::allowed().last().copied().unwrap_or_default())
}

/// Leaves the last CPU to the software SSD, and binds this thread to the first. Returns all CPUs.
pub(crate) fn bind() -> Result<Vec<usize>> {
    let cpus = cpu::allowed();
    last_cpu();
    cpu::bind(&cpus[..1])?;
    Ok(cpus)
}

/// An image of `megabytes` made by mkfs.ext4 in `dir`, with blocks of a page and with `options`.
pub(crate) fn image(dir: &Path, megabytes: u32, options: &[&str]) -> Result<Vec<u8>> {
    let path = std::env::var("PATH").unwrap_or_default();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096"])
        .args(options)
        .arg(dir.join("image"))
        .arg(format!("{megabytes}M"))
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .status()?;
    if !made.success() {
        return Err("mkfs.ext4 failed".into());
    }
    Ok(std::fs::read(dir.join("image"))?)
}

/// A device of `model`, with a volatile cache if `cache`, that holds `image`.
pub(crate) fn device(image: &[u8], model: &str, cache: bool) -> Result<Device> {
    let vwc = if cache { "&vwc=1" } else { "" };
    let uri = format!("mem:{}?model={model}&cpu={}{vwc}", image.len(), last_cpu());
    let device = block::open(&uri, &OpenOptions::default())?;
    let mut channel = device
        .channel(&ChannelOptions { policy: Some(Policy::Poll), ..ChannelOptions::default() })?;
    let mut buf = channel.alloc(1 << 20)?;
    for (n, part) in image.chunks(1 << 20).enumerate() {
        buf.set_len(part.len());
        buf.copy_from_slice(part);
        buf = channel.write(n as u64 * (1 << 20) / u64::from(channel.info().block_bytes), buf)?;
    }
    channel.flush()?;
    Ok(device)
}
