//! Walking scatter gather lists, strictly (1.4 §4.4).

use meantime_spec::sgl::{DESCRIPTOR_SIZE, SglDescriptor, SglKind, sub_type};
use meantime_spec::status::StatusCode;
use zerocopy::FromBytes;

use super::prp::add;
use crate::hostmem::{HostMemory, PAGE_BYTES, Segment};

/// The most descriptors of a command. A valid list needs at most one for each byte, but a circular
/// list never ends.
const MAX_DESCRIPTORS: u32 = 65_536;

/// Why an SGL was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SglError {
    /// A rule was broken: the status for it, and the rule.
    Rule(StatusCode, &'static str),
    /// Data or a segment lies in memory that is not mapped.
    Unmapped(u64),
}

/// Where a descriptor is, which decides what it may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescriptorPosition {
    /// In the command itself: all of the data, or a pointer to a segment.
    Command,
    /// In a segment whose last one points to a further segment.
    Segment,
    /// In the last segment.
    LastSegment,
}

/// A walk over a list.
struct Walk<'a> {
    host: &'a HostMemory,
    to: &'a mut Vec<Segment>,
    /// Bytes of data not yet covered by descriptors.
    left: u64,
    /// The data goes to the host, so bit buckets may take some of it.
    is_read: bool,
    descriptors: u32,
}

/// A segment that is to be walked next.
struct Next {
    address: u64,
    count: u32,
    position: DescriptorPosition,
}

/// The memory of `len` bytes of data at `sgl1`, into `to`, which is cleared before. Nothing is
/// transferred. What a bit bucket takes (of data to the host only) is a segment without memory.
pub(super) fn gather(
    host: &HostMemory,
    sgl1: SglDescriptor,
    len: u64,
    is_read: bool,
    to: &mut Vec<Segment>,
) -> Result<(), SglError> {
    to.clear();
    let mut walk = Walk { host, to, left: len, is_read, descriptors: 0 };
    let mut next = walk.take(sgl1, DescriptorPosition::Command, true)?;
    while let Some(segment) = next {
        next = walk.segment(&segment)?;
    }
    if walk.left > 0 {
        return Err(SglError::Rule(StatusCode::DataSglLengthInvalid, "SGL shorter than the data"));
    }
    Ok(())
}

impl Walk<'_> {
    fn segment(&mut self, segment: &Next) -> Result<Option<Next>, SglError> {
        const PER_PIECE: u32 = PAGE_BYTES as u32 / DESCRIPTOR_SIZE as u32;
        let whole = self.host.segment(segment.address, segment.count * DESCRIPTOR_SIZE as u32);
        let whole = whole.ok_or(SglError::Unmapped(segment.address))?;
        let mut bytes = [0; PAGE_BYTES as usize];
        let mut at = 0;
        while at < segment.count {
            let count = PER_PIECE.min(segment.count - at);
            let len = count * DESCRIPTOR_SIZE as u32;
            let piece = whole.part(u64::from(at) * DESCRIPTOR_SIZE as u64, len);
            // Each descriptor is copied once, so that later changes by the host have no effect.
            self.host
                .resolve(piece)
                .ok_or(SglError::Unmapped(segment.address))?
                .read(&mut bytes[..len as usize]);
            for (i, raw) in bytes[..len as usize].chunks_exact(DESCRIPTOR_SIZE).enumerate() {
                let Ok(descriptor) = SglDescriptor::read_from_bytes(raw) else { continue };
                let is_last = at + i as u32 == segment.count - 1;
                let next = self.take(descriptor, segment.position, is_last)?;
                if next.is_some() || is_last {
                    return Ok(next);
                }
            }
            at += count;
        }
        Ok(None)
    }

    /// Handles one descriptor; returns the segment that it points to.
    fn take(
        &mut self,
        descriptor: SglDescriptor,
        position: DescriptorPosition,
        is_last: bool,
    ) -> Result<Option<Next>, SglError> {
        use SglError::Rule;
        self.descriptors += 1;
        if self.descriptors > MAX_DESCRIPTORS {
            return Err(Rule(StatusCode::InvalidNumberOfSglDescriptors, "SGL without an end"));
        }
        let kind = descriptor.kind().ok().filter(|_| descriptor.sub_type() == sub_type::ADDRESS);
        let (address, len) = (descriptor.address.get(), descriptor.length.get());
        let points = matches!(kind, Some(SglKind::Segment | SglKind::LastSegment));
        if position == DescriptorPosition::Segment && is_last && !points {
            let reason = "SGL segment that does not end with a pointer to the next";
            return Err(Rule(StatusCode::InvalidSglSegmentDescriptor, reason));
        }
        match kind {
            Some(SglKind::DataBlock) => self.data(address, u64::from(len))?,
            // 1.4 §4.4: ignored in data to the controller.
            Some(SglKind::BitBucket) if !self.is_read => {}
            Some(SglKind::BitBucket) => {
                self.shorten(u64::from(len))?;
                if len > 0 {
                    self.to.push(Segment::hole(len));
                }
            }
            Some(kind @ (SglKind::Segment | SglKind::LastSegment)) => {
                if position == DescriptorPosition::LastSegment {
                    let reason = "SGL last segment with a pointer to a further one";
                    return Err(Rule(StatusCode::InvalidSglSegmentDescriptor, reason));
                }
                if !is_last {
                    let reason = "SGL segment with a pointer that is not its last descriptor";
                    return Err(Rule(StatusCode::InvalidNumberOfSglDescriptors, reason));
                }
                if len == 0
                    || !len.is_multiple_of(DESCRIPTOR_SIZE as u32)
                    || !address.is_multiple_of(8)
                {
                    let reason = "SGL segment of no whole descriptors, or not aligned to a qword";
                    return Err(Rule(StatusCode::InvalidSglSegmentDescriptor, reason));
                }
                let position = if kind == SglKind::Segment {
                    DescriptorPosition::Segment
                } else {
                    DescriptorPosition::LastSegment
                };
                return Ok(Some(Next { address, count: len / DESCRIPTOR_SIZE as u32, position }));
            }
            _ => {
                let reason = "SGL descriptor of a type or sub type that SGLS does not offer";
                return Err(Rule(StatusCode::SglDescriptorTypeInvalid, reason));
            }
        }
        Ok(None)
    }

    fn data(&mut self, address: u64, len: u64) -> Result<(), SglError> {
        self.shorten(len)?;
        if len > 0 {
            add(self.host, self.to, address, len).map_err(|_| SglError::Unmapped(address))?;
        }
        Ok(())
    }

    fn shorten(&mut self, len: u64) -> Result<(), SglError> {
        let reason = "SGL longer than the data, which SGLS does not offer";
        let left = self.left.checked_sub(len);
        self.left = left.ok_or(SglError::Rule(StatusCode::DataSglLengthInvalid, reason))?;
        Ok(())
    }
}
