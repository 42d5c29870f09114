//! Damaged ext4 file systems: whatever is on the disk, every question has an answer or an error
//! that says what is wrong and where, within bounds of reads.
//!
//! The input damages an image that is made at the start by `mkfs.ext4` and `debugfs`, so that no
//! image has to be kept: which image, how it is opened, and then pieces of three numbers
//! (structure, place in it, length) and bytes. Checksums are put right after, unless the input says
//! otherwise.

use std::sync::LazyLock;

use crate::Input;
use meantime_ext4::format::VolumeOptions;
use meantime_testkit::damage::memory::Memory;
use meantime_testkit::damage::regions::Base;
use meantime_testkit::damage::{base, sums, walk};

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("meantime-fuzz-ext4-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let bases = base::all(&directory);
    let _ = std::fs::remove_dir_all(&directory);
    bases.unwrap_or_else(|why| {
        panic!("the images cannot be made (e2fsprogs has to be installed): {why}")
    })
});

/// The most that an input may change.
const PIECES_MAX: usize = 32;

/// Checks what comes of one input.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let base = &BASES[usize::from(input.u8()) % BASES.len()];
    let how = input.u8();
    let mut image = base.image.clone();
    let mut touched = Vec::new();
    for _ in 0..PIECES_MAX {
        if input.is_empty() {
            break;
        }
        let region = base.regions[usize::from(input.u16()) % base.regions.len()];
        let at = usize::from(input.u16()) % region.bytes;
        let length = usize::from(input.u8() % 32).min(region.bytes - at);
        let start = region.offset + at;
        image[start..start + length].fill_with(|| input.u8());
        touched.push(region);
    }
    if how & 1 == 0 {
        for region in &touched {
            sums::fix(&base.seeds, region, &mut image[region.offset..region.offset + region.bytes]);
        }
    }
    let options = VolumeOptions { ignore_checksums: how & 2 != 0, superblock: None };
    let owners: Vec<u32> = touched.iter().filter_map(|region| region.ino).collect();
    // All of it takes as long as a hundred of what the damage is in.
    let all = how & 12 == 12 || owners.is_empty();
    let memory = Memory::new(&image, base.device_bytes);
    walk::walk(&memory, options, (!all).then_some(&owners[..]));
}
