//! Shadow doorbells (1.4 §5.7 and §7.13). Doorbell Buffer Config gives the controller two pages of
//! host memory that have the layout of its doorbell registers. The host writes its queue heads and
//! tails to one page, the *shadow doorbells*. The controller writes to the other, the *event
//! indices*, one value for each doorbell. Once the host's value moves past the event index, the
//! host must write the register too. A controller that polls the shadow doorbells thus needs no
//! register writes, and the host need not make them.

/// Offset of the shadow doorbell, or event index, of submission queue `qid`'s tail, from the start
/// of its page (1.4 §5.7, figure "Shadow Doorbell and EventIdx Buffer"): laid out like the
/// registers, with the same stride.
#[inline]
#[must_use]
pub const fn sq_tail_offset(qid: u16, dstrd: u8) -> u64 {
    (2 * qid as u64) << (2 + (dstrd & 0xf))
}

/// Offset of the shadow doorbell, or event index, of completion queue `qid`'s head.
#[inline]
#[must_use]
pub const fn cq_head_offset(qid: u16, dstrd: u8) -> u64 {
    (2 * qid as u64 + 1) << (2 + (dstrd & 0xf))
}

/// The number of queue identifiers, that of the admin queues included, for which the shadow
/// doorbells of both queues fit into a buffer of one page of 4096 bytes (1.4 §5.7).
#[must_use]
pub const fn queues_per_page(dstrd: u8) -> u16 {
    (crate::prp::PAGE_SIZE >> (3 + (dstrd & 0xf))) as u16
}

/// Returns whether the register must be written too, now that the shadow doorbell went from `old`
/// to `new` (1.4 §7.13). It must if the shadow doorbell moved past `event_index`, the last value
/// that the register need not announce. Values count modulo 2^16: if a controller that polls leaves
/// FFFFh there, the register announces only the doorbell's return to the start of its queue.
///
/// The caller has stored `new` and then made a full fence before it loads `event_index`; the
/// controller stores the event index, makes a full fence, and then loads the shadow doorbell once
/// more. So at least one of them sees the other's store.
#[inline]
#[must_use]
pub const fn must_ring(event_index: u32, new: u32, old: u32) -> bool {
    let passed = (new as u16).wrapping_sub(event_index as u16).wrapping_sub(1);
    passed < (new as u16).wrapping_sub(old as u16)
}
