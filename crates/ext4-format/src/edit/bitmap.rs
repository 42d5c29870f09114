//! Edits of block and inode bitmaps. Bit `n` is bit `n % 8` of byte `n / 8`, and is set if the
//! block or inode is in use.

use std::ops::Range;

use super::super::checksum::{Patch, crc32c};

const WORD: u32 = u64::BITS;

/// Returns the 64 bits from bit `64 * index` on. Missing bits count as set.
fn word(bits: &[u8], index: u32) -> u64 {
    let rest = bits.get(index as usize * 8..).unwrap_or(&[]);
    let bytes = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0xFF; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        bytes
    });
    u64::from_le_bytes(bytes)
}

/// Returns the first bit in `range` that is set after xor with `turn`, or the end of `range`.
fn first(bits: &[u8], range: Range<u32>, turn: u64) -> u32 {
    if range.is_empty() {
        return range.end;
    }
    let mut index = range.start / WORD;
    let mut found = (word(bits, index) ^ turn) & (!0 << (range.start % WORD));
    while found == 0 {
        index += 1;
        if index * WORD >= range.end {
            return range.end;
        }
        found = word(bits, index) ^ turn;
    }
    (index * WORD + found.trailing_zeros()).min(range.end)
}

/// Returns the first free bit in `range`, or its end if there is none.
pub fn first_free(bits: &[u8], range: Range<u32>) -> u32 {
    first(bits, range, !0)
}

/// Returns the first bit in use in `range`, or its end if there is none.
pub fn first_used(bits: &[u8], range: Range<u32>) -> u32 {
    first(bits, range, 0)
}

/// Returns the first run of free bits in `range`, which is empty if there is none.
pub fn free_run(bits: &[u8], range: Range<u32>) -> Range<u32> {
    let start = first_free(bits, range.clone());
    start..first_used(bits, start..range.end)
}

/// Returns the number of free bits in `range`.
pub fn count_free(bits: &[u8], range: Range<u32>) -> u32 {
    if range.is_empty() {
        return 0;
    }
    let mut free = 0;
    for index in range.start / WORD..range.end.div_ceil(WORD) {
        let mut mask = !0;
        if index == range.start / WORD {
            mask &= !0 << (range.start % WORD);
        }
        if index == range.end / WORD {
            mask &= !(!0 << (range.end % WORD));
        }
        free += (!word(bits, index) & mask).count_ones();
    }
    free
}

/// Sets or clears the bits of `range`, which `bits` has.
fn change(bits: &mut [u8], range: Range<u32>, used: bool) {
    let mut at = range.start;
    while at < range.end {
        let byte = at as usize / 8;
        let end = range.end.min((at / 8 + 1) * 8);
        let mask = (0xFFu8 >> (8 - (end - at))) << (at % 8);
        if let Some(byte) = bits.get_mut(byte) {
            *byte = if used { *byte | mask } else { *byte & !mask };
        }
        at = end;
    }
}

/// Marks the bits of `range` as in use.
pub fn set(bits: &mut [u8], range: Range<u32>) {
    change(bits, range, true);
}

/// Marks the bits of `range` as free.
pub fn clear(bits: &mut [u8], range: Range<u32>) {
    change(bits, range, false);
}

/// Returns the checksum of a bitmap of `count` bits (`ext4_block_bitmap_csum_set`,
/// `ext4_inode_bitmap_csum_set`), which the descriptor stores.
pub fn checksum(seed: u32, bits: &[u8], count: u32) -> u32 {
    crc32c(seed, bits.get(..count as usize / 8).unwrap_or(bits))
}

/// The maximum number of changed bytes for which a bitmap's checksum is patched.
const PATCHED_BYTES: usize = 64;

/// Returns the value to xor to the [checksum] of a bitmap of `count` bits if those of `range` are
/// inverted, or `None` if they are too many for a patch to pay off.
pub fn checksum_patch(patch: &Patch, count: u32, range: Range<u32>) -> Option<u32> {
    let (first, end) = (range.start as usize / 8, range.end.div_ceil(8) as usize);
    let covered = count as usize / 8;
    if end > covered || end - first > PATCHED_BYTES {
        return None;
    }
    let mut difference = [0; PATCHED_BYTES];
    let base = first as u32 * 8;
    set(&mut difference, range.start - base..range.end - base);
    patch.of(&difference[..end - first], covered - end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_checksum_is_patched() {
        let patch = Patch::new(512);
        let mut bits: Vec<u8> = (0..512u32).map(|at| (at * 7) as u8).collect();
        clear(&mut bits, 1000..2000);
        let before = checksum(7, &bits, 4096);
        for (range, is) in
            [(1000..1001, true), (1003..1300, true), (1000..2000, false), (1999..2000, true)]
        {
            let mut changed = bits.clone();
            set(&mut changed, range.clone());
            let patched = checksum_patch(&patch, 4096, range);
            assert_eq!(patched.is_some(), is);
            assert!(patched.is_none_or(|patched| before ^ patched == checksum(7, &changed, 4096)));
        }
    }

    proptest! {
        #[test]
        fn words_do_what_bits_do(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), any::<u8>()], 1..40),
            a in 0u32..320, b in 0u32..320,
        ) {
            let count = bytes.len() as u32 * 8;
            let (start, end) = (a.min(b).min(count), a.max(b).min(count));
            let used = |at: u32| bytes[at as usize / 8] >> (at % 8) & 1 == 1;
            let first = (start..end).find(|at| !used(*at)).unwrap_or(end);
            prop_assert_eq!(first_free(&bytes, start..end), first);
            let first_in_use = (start..end).find(|at| used(*at)).unwrap_or(end);
            prop_assert_eq!(first_used(&bytes, start..end), first_in_use);
            let free = (start..end).filter(|at| !used(*at)).count() as u32;
            prop_assert_eq!(count_free(&bytes, start..end), free);
            let run_end = (first..end).find(|at| used(*at)).unwrap_or(end);
            prop_assert_eq!(free_run(&bytes, start..end), first..run_end);
            for value in [true, false] {
                let mut changed = bytes.clone();
                change(&mut changed, start..end, value);
                for at in 0..count {
                    let is = changed[at as usize / 8] >> (at % 8) & 1 == 1;
                    prop_assert_eq!(is, if (start..end).contains(&at) { value } else { used(at) });
                }
            }
        }
    }
}
