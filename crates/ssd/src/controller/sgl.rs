//! Walks scatter gather lists, strictly (1.4 §4.4).

use meantime_nvme_spec::sgl::{DESCRIPTOR_SIZE, SglDescriptor, SglKind, sub_type};
use meantime_nvme_spec::status::StatusCode;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::outcome::{Checked, refuse_if, refused};
use super::prp::{add, unmapped};
use crate::hostmem::{HostMemory, Segment};

/// The maximum number of descriptors of a command. A valid list needs at most one for each byte,
/// but a circular list never ends.
const MAX_DESCRIPTORS: u32 = 65_536;

const NOT_MAPPED: &str = "SGL descriptor to memory that is not mapped";

/// A walk over a list.
struct Walk<'a> {
    host: &'a HostMemory,
    to: &'a mut Vec<Segment>,
    /// Bytes of data not yet covered by descriptors.
    left: u64,
    descriptors: u32,
}

/// The segment to walk next.
struct Next {
    address: u64,
    count: u32,
    /// The kind: `Segment` or `LastSegment`.
    kind: SglKind,
}

/// Collects the memory of `len` bytes of data at `sgl1` into `to`, which is cleared first. It
/// transfers nothing.
pub(super) fn gather(
    host: &HostMemory,
    sgl1: SglDescriptor,
    len: u64,
    to: &mut Vec<Segment>,
) -> Checked<()> {
    to.clear();
    let mut walk = Walk { host, to, left: len, descriptors: 0 };
    let mut next = walk.take(sgl1, None, true)?;
    while let Some(segment) = next {
        next = walk.segment(&segment)?;
    }
    refuse_if(walk.left > 0, StatusCode::DataSglLengthInvalid, "SGL shorter than the data")
}

impl Walk<'_> {
    fn segment(&mut self, segment: &Next) -> Checked<Option<Next>> {
        let unmapped = || unmapped(segment.address, NOT_MAPPED);
        let bytes = segment.count * DESCRIPTOR_SIZE as u32;
        let whole = self.host.segment(segment.address, bytes).ok_or_else(unmapped)?;
        for at in 0..segment.count {
            let piece = whole.part(u64::from(at) * DESCRIPTOR_SIZE as u64, DESCRIPTOR_SIZE as u32);
            // Each descriptor is copied once, so that later changes by the host have no effect.
            let mut descriptor = SglDescriptor::new_zeroed();
            let slice = self.host.resolve(piece).ok_or_else(unmapped)?;
            slice.read(descriptor.as_mut_bytes());
            let is_last = at == segment.count - 1;
            let next = self.take(descriptor, Some(segment.kind), is_last)?;
            if next.is_some() || is_last {
                return Ok(next);
            }
        }
        Ok(None)
    }

    /// Handles one descriptor. Returns the segment that it points to. The kind of the segment that
    /// contains it decides its allowed types. Without such a segment, it is in the command itself.
    fn take(
        &mut self,
        descriptor: SglDescriptor,
        within: Option<SglKind>,
        is_last: bool,
    ) -> Checked<Option<Next>> {
        self.descriptors += 1;
        let endless = self.descriptors > MAX_DESCRIPTORS;
        refuse_if(endless, StatusCode::InvalidNumberOfSglDescriptors, "SGL without an end")?;
        let kind = descriptor.kind().ok().filter(|_| descriptor.sub_type() == sub_type::ADDRESS);
        let (address, len) = (descriptor.address.get(), descriptor.length.get());
        let points = matches!(kind, Some(SglKind::Segment | SglKind::LastSegment));
        let unended = within == Some(SglKind::Segment) && is_last && !points;
        let rule = "SGL segment that does not end with a pointer to the next";
        refuse_if(unended, StatusCode::InvalidSglSegmentDescriptor, rule)?;
        match kind {
            Some(SglKind::DataBlock) => self.data(address, u64::from(len))?,
            Some(kind @ (SglKind::Segment | SglKind::LastSegment)) => {
                let further = within == Some(SglKind::LastSegment);
                let rule = "SGL last segment with a pointer to a further one";
                refuse_if(further, StatusCode::InvalidSglSegmentDescriptor, rule)?;
                let rule = "SGL segment with a pointer that is not its last descriptor";
                refuse_if(!is_last, StatusCode::InvalidNumberOfSglDescriptors, rule)?;
                let whole = len > 0 && len.is_multiple_of(DESCRIPTOR_SIZE as u32);
                let rule = "SGL segment of no whole descriptors, or not aligned to a qword";
                let bad = !whole || !address.is_multiple_of(8);
                refuse_if(bad, StatusCode::InvalidSglSegmentDescriptor, rule)?;
                return Ok(Some(Next { address, count: len / DESCRIPTOR_SIZE as u32, kind }));
            }
            _ => {
                let rule = "SGL descriptor of a type or sub type that SGLS does not offer";
                return Err(refused(StatusCode::SglDescriptorTypeInvalid, rule));
            }
        }
        Ok(None)
    }

    fn data(&mut self, address: u64, len: u64) -> Checked<()> {
        let rule = "SGL longer than the data, which SGLS does not offer";
        let left = self.left.checked_sub(len);
        self.left = left.ok_or_else(|| refused(StatusCode::DataSglLengthInvalid, rule))?;
        if len > 0 {
            add(self.host, self.to, address, len, NOT_MAPPED)?;
        }
        Ok(())
    }
}
