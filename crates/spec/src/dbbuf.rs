//! Shadow doorbells (1.4 §5.7 and §7.13): Doorbell Buffer Config gives the controller two pages of
//! host memory that mirror its doorbell registers, at the same distances. The host writes its queue
//! heads and tails to the one, the *shadow doorbells*; into the other, the *event indices*, the
//! controller writes the value that, once passed, it wants announced by the register. A controller
//! that looks at the shadow doorbells by itself is thus spared being interrupted by registers, and
//! the host is spared writing them.

/// Offset of the shadow doorbell, or event index, of submission queue `qid`'s tail, from the start
/// of its page (1.4 §5.7, figure "Shadow Doorbell and EventIdx Buffer"): as of the register, with
/// the same stride.
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

/// How many queue identifiers, that of the admin queues included, have both their shadow doorbells
/// within the one page of 4096 bytes that each buffer is (1.4 §5.7).
#[must_use]
pub const fn queues_per_page(dstrd: u8) -> u16 {
    (crate::prp::PAGE_SIZE >> (3 + (dstrd & 0xf))) as u16
}

/// Whether the register must be written too, now that the shadow doorbell went from `old` to `new`
/// (1.4 §7.13): whether it moved past `event_index`, the last value that the register need not
/// announce. Counted modulo 2^16: if a controller that polls leaves FFFFh there, the register
/// announces only the doorbell's return to the start of its queue.
///
/// The caller has stored `new` and then made a full fence before it loads `event_index`; the
/// controller, having stored the event index and made one, looks at the shadow doorbell once more.
/// One of them sees the other's store.
#[inline]
#[must_use]
pub const fn must_ring(event_index: u32, new: u32, old: u32) -> bool {
    let passed = (new as u16).wrapping_sub(event_index as u16).wrapping_sub(1);
    passed < (new as u16).wrapping_sub(old as u16)
}
