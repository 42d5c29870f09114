//! Walks PRPs, strictly (1.4 §4.3).

use meantime_nvme_spec::status::StatusCode;

use super::outcome::{Checked, Failure, invalid_if, refuse_if, refused};
use crate::hostmem::{HostMemory, PAGE_BYTES, Segment};

const ENTRY_BYTES: u64 = 8;

/// Returns the failure for an address, `iova`, where no host memory is mapped.
#[cold]
pub(super) fn unmapped(iova: u64, rule: &'static str) -> Failure {
    tracing::debug!(iova, "transfer to memory that is not mapped");
    refused(StatusCode::DataTransferError, rule)
}

/// Appends the `len` bytes at `iova` to the segments. If they are not mapped, the failure breaks
/// `rule`.
pub(super) fn add(
    host: &HostMemory,
    to: &mut Vec<Segment>,
    iova: u64,
    len: u64,
    rule: &'static str,
) -> Checked<()> {
    let segment = host.segment(iova, len as u32).ok_or_else(|| unmapped(iova, rule))?;
    if !to.last_mut().is_some_and(|last| last.try_extend(segment)) {
        to.push(segment);
    }
    Ok(())
}

/// Collects the memory of `len` bytes of data at PRP1 and PRP2 into `to`, which is cleared first.
/// It transfers nothing.
pub(super) fn gather(
    host: &HostMemory,
    prp1: u64,
    prp2: u64,
    len: u64,
    to: &mut Vec<Segment>,
) -> Checked<()> {
    const NOT_MAPPED: &str = "PRP entry to memory that is not mapped";
    let aligned = |is_aligned: bool| {
        refuse_if(!is_aligned, StatusCode::PrpOffsetInvalid, "PRP entry with a bad offset")
    };
    let given = |entry| invalid_if(entry == 0, "PRP entry zero where one is needed");
    to.clear();
    // Bits 1:0 of an offset are 00b (1.4 Figure 109).
    aligned(prp1 & 3 == 0)?;
    let first = (PAGE_BYTES - prp1 % PAGE_BYTES).min(len);
    add(host, to, prp1, first, NOT_MAPPED)?;
    let mut left = len - first;
    if left == 0 {
        return Ok(());
    }
    given(prp2)?;
    if left <= PAGE_BYTES {
        // This is the second entry of two, and only the first may have an offset.
        aligned(prp2.is_multiple_of(PAGE_BYTES))?;
        return add(host, to, prp2, left, NOT_MAPPED);
    }
    // This is a pointer to a list. The first list may begin anywhere in its page, at a qword.
    aligned(prp2.is_multiple_of(ENTRY_BYTES))?;
    let mut list = prp2;
    loop {
        // A list ends with its page. If more entries are needed, its last one points to the next
        // list.
        let room = (PAGE_BYTES - list % PAGE_BYTES) / ENTRY_BYTES;
        let needed = left.div_ceil(PAGE_BYTES);
        let entries = needed.min(room);
        let mut bytes = [0; PAGE_BYTES as usize];
        let bytes = &mut bytes[..(entries * ENTRY_BYTES) as usize];
        let listed = host.slice(list, bytes.len());
        listed.ok_or_else(|| unmapped(list, NOT_MAPPED))?.read(bytes);
        for (i, entry) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            given(entry)?;
            // Lists after the first begin at a page too, so that every entry here is page-aligned.
            aligned(entry.is_multiple_of(PAGE_BYTES))?;
            if needed > room && i as u64 == room - 1 {
                list = entry;
                break;
            }
            let part = left.min(PAGE_BYTES);
            add(host, to, entry, part, NOT_MAPPED)?;
            left -= part;
            if left == 0 {
                return Ok(());
            }
        }
    }
}
