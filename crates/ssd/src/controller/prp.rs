//! Walking PRPs, strictly (1.4 §4.3).

use crate::hostmem::{HostMemory, PAGE_BYTES, Segment};

/// Why a data pointer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrpError {
    /// PRP1 not dword-aligned, or a further entry with an offset within its page.
    Offset,
    /// PRP2 or a list entry is zero where one is needed.
    Missing,
    /// An entry points to memory that is not mapped.
    Unmapped(u64),
}

const ENTRY_BYTES: u64 = 8;

/// Appends the `len` bytes at `iova` to the segments.
pub(super) fn add(
    host: &HostMemory,
    to: &mut Vec<Segment>,
    iova: u64,
    len: u64,
) -> Result<(), PrpError> {
    let segment = host.segment(iova, len as u32).ok_or(PrpError::Unmapped(iova))?;
    if !to.last_mut().is_some_and(|last| last.try_extend(segment)) {
        to.push(segment);
    }
    Ok(())
}

/// The memory of `len` bytes of data at PRP1 and PRP2, into `to`, which is cleared before. Nothing
/// is transferred.
pub(super) fn gather(
    host: &HostMemory,
    prp1: u64,
    prp2: u64,
    len: u64,
    to: &mut Vec<Segment>,
) -> Result<(), PrpError> {
    to.clear();
    // 1.4 Figure 109: bits 1:0 of an offset are 00b.
    if prp1 & 3 != 0 {
        return Err(PrpError::Offset);
    }
    let first = (PAGE_BYTES - prp1 % PAGE_BYTES).min(len);
    add(host, to, prp1, first)?;
    let mut left = len - first;
    if left == 0 {
        return Ok(());
    }
    if prp2 == 0 {
        return Err(PrpError::Missing);
    }
    if left <= PAGE_BYTES {
        // The second entry of two: only the first may have an offset.
        if !prp2.is_multiple_of(PAGE_BYTES) {
            return Err(PrpError::Offset);
        }
        return add(host, to, prp2, left);
    }
    // A pointer to a list; the first list may begin anywhere in its page, at a qword.
    if !prp2.is_multiple_of(ENTRY_BYTES) {
        return Err(PrpError::Offset);
    }
    let mut list = prp2;
    loop {
        // A list ends with its page; if more entries are needed then, its last one points to the
        // next list.
        let room = (PAGE_BYTES - list % PAGE_BYTES) / ENTRY_BYTES;
        let needed = left.div_ceil(PAGE_BYTES);
        let entries = if needed > room { room } else { needed };
        let mut bytes = [0; PAGE_BYTES as usize];
        let bytes = &mut bytes[..(entries * ENTRY_BYTES) as usize];
        host.slice(list, bytes.len()).ok_or(PrpError::Unmapped(list))?.read(bytes);
        for (i, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if entry == 0 {
                return Err(PrpError::Missing);
            }
            // Lists after the first begin at a page too, so that every entry here is page-aligned.
            if !entry.is_multiple_of(PAGE_BYTES) {
                return Err(PrpError::Offset);
            }
            if needed > room && i as u64 == room - 1 {
                list = entry;
                break;
            }
            let part = left.min(PAGE_BYTES);
            add(host, to, entry, part)?;
            left -= part;
            if left == 0 {
                return Ok(());
            }
        }
    }
}
