//! Asynchronous I/O Stack.
//!
//! Its idea: what a kernel does before and after the device's work, it can do during it. Every
//! experiment compares our file system with its steps in their classic places (`overlap=none`,
//! `commit_overlap=none`) and with all of them overlapped, by the same code.

mod read;
mod rocksdb;
mod stack;
mod write;

use crate::experiment::Experiment;
use crate::runner::{Bench, RunError};

/// The experiments.
pub(super) fn experiments() -> Vec<Experiment> {
    [stack::experiments(), read::experiments(), write::experiments(), rocksdb::experiments()]
        .concat()
}

/// Random reads that find nothing in the page cache.
const READS: [&str; 6] = ["--rw", "randread", "--cache", "8m", "--bs", "4k"];

/// An image with an ext4 file system, in memory.
struct Image(String);

impl Image {
    /// Makes one of `size`.
    fn make(bench: &mut Bench<'_>, name: &str, size: &str) -> Result<Self, RunError> {
        let path = bench.memory(&format!("{name}.img"));
        bench.text(&["fs", "mkfs", "-b", "4K", &format!("file:{path}?create={size}")])?;
        Ok(Self(path))
    }

    /// Makes one with the file `/data` of 128 MiB.
    fn with_data(bench: &mut Bench<'_>, name: &str) -> Result<Self, RunError> {
        let image = Self::make(bench, name, "256M")?;
        image.write(bench, &["--rw", "write", "--bs", "1m", "--size", "128m"])?;
        Ok(image)
    }

    /// Writes `/data` before anything is measured, as a job of `args`.
    fn write(&self, bench: &mut Bench<'_>, args: &[&str]) -> Result<(), RunError> {
        let device = self.file("null", "data");
        let all = ["bench", "--no-control", "--device", &device, "--completion", "poll"];
        bench.json(&[&all[..], args].concat()).map(drop)
    }

    /// The device, a software SSD that loses no write at a power cut, as the document's.
    fn device(&self, model: &str) -> String {
        format!("file:{}?model={model}&vwc=0", self.0)
    }

    /// A file on it.
    fn file(&self, model: &str, name: &str) -> String {
        format!("{}:/{name}", self.device(model))
    }
}

/// Adds how much longer `one` takes than `other`.
fn add_over(bench: &mut Bench<'_>, name: &str, one: &str, other: &str) {
    if let Some((one, other)) = bench.last(one).zip(bench.last(other)) {
        bench.add(name, one - other);
    }
}

/// Adds by how much `one` is more than `other`, as a part of `other`.
fn add_gain(bench: &mut Bench<'_>, name: &str, one: &str, other: &str) {
    if let Some((one, other)) = bench.last(one).zip(bench.last(other)).filter(|(_, n)| *n > 0.0) {
        bench.add(name, one / other - 1.0);
    }
}
