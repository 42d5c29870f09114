//! Partition tables and signatures: whatever is on the disk, there is a list or an error, within
//! bounds of reads.
//!
//! The input damages a disk that is made here: which disk, how it is opened, and then pieces of
//! three numbers (place, offset in it, length) and bytes. Checksums are put right after, unless
//! the input says otherwise. Or it is the disk.

use std::ops::Range;

use meantime_partitions::Size;
use meantime_testkit::disk::{Entry, check as check_disk, fix_sums, write_gpt, write_record};

use crate::Input;

/// The most that an input may change.
const PIECES_MAX: usize = 32;
/// The blocks of a disk.
const BLOCKS: usize = 80;

/// A disk with a GPT, an MBR with logical partitions, both, or nothing; and where its tables are.
fn base(what: u8, block: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut disk = vec![0; block * BLOCKS];
    let entry = |kind, first, last| Entry { kind, first, last };
    let record = 440..512;
    let mut places = vec![record];
    if what & 1 != 0 {
        write_gpt(&mut disk, block, &[entry(1, 40, 42), entry(1, 43, 45)]);
        let backup = (BLOCKS - 1) * block;
        for (header, array) in [(block, 2 * block), (backup, backup - 16_384)] {
            places.extend([header..header + 92, array..array + 512]);
        }
    }
    if what & 2 != 0 {
        let protective = entry(if what & 1 != 0 { 0xEE } else { 0x83 }, 1, 9);
        write_record(&mut disk, 0, 7, &[protective, entry(0x83, 10, 12), entry(5, 40, 45)]);
    }
    if what & 3 == 2 {
        for at in [40, 42, 44] {
            let link = entry(5, at - 38, at - 37);
            let records = [entry(0x83, 1, 1), link];
            let at = at as usize * block;
            write_record(&mut disk, at, 0, &records[..if at == 44 * block { 1 } else { 2 }]);
            places.push(at + 446..at + 512);
        }
    }
    (disk, places)
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (what, how) = (input.u8(), input.u8());
    let block = if how & 1 == 0 { 512 } else { 4096 };
    let block_bytes = block as u32;
    if what & 0x80 != 0 {
        let size = Size { block_bytes, blocks: input.u64() };
        check_disk(bytes.get(10..).unwrap_or_default(), size);
        return;
    }
    let (mut disk, places) = base(what, block);
    for _ in 0..PIECES_MAX {
        if input.is_empty() {
            break;
        }
        let place = places[usize::from(input.u8()) % places.len()].clone();
        let at = place.start + usize::from(input.u16()) % place.len();
        let length = usize::from(input.u8() % 32).min(place.end - at);
        disk[at..at + length].fill_with(|| input.u8());
    }
    if how & 2 == 0 {
        fix_sums(&mut disk, block);
    }
    let blocks = match how >> 2 & 3 {
        0 | 1 => BLOCKS as u64,
        2 => BLOCKS as u64 / 2,
        _ => u64::MAX,
    };
    check_disk(&disk, Size { block_bytes, blocks });
}
