//! The output of a connection. Headers are in a buffer of its own, and payload is in its slots.

use std::collections::VecDeque;
use std::io::IoSlice;

use meantime_nvme_spec::tcp::{CommonHeader, DIGEST_BYTES, DataHeader, PduType, dgst, flags};
use zerocopy::IntoBytes;

use super::backend::Backend;

/// The maximum number of pieces of one `sendmsg`.
pub(super) const PIECES: usize = 64;

/// The maximum number of sent bytes that are kept, if others wait behind them.
const SENT_BYTES: usize = 64 << 10;

enum Piece {
    /// The next bytes of `bytes`.
    Bytes(usize),
    /// This number of bytes of a slot's buffer. Then the slot is free.
    Slot { slot: u16, len: usize },
}

/// Whether a PDU gets wrong digests. This injects a fault.
#[derive(Clone, Copy, Default)]
pub(super) struct Corrupted {
    pub(super) header: bool,
    pub(super) data: bool,
}

#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// The number of bytes of `bytes` that were sent.
    sent_bytes: usize,
    /// The number of bytes of the first piece that were sent.
    sent: usize,
    /// The number of bytes that are left to send.
    left: usize,
}

impl Output {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Returns the number of those that are in no slot.
    pub(super) fn left_of_own(&self) -> usize {
        self.bytes.len() - self.sent_bytes
    }

    #[inline(always)]
    fn grew(&mut self, by: usize) {
        self.left += by;
        match self.pieces.back_mut() {
            Some(Piece::Bytes(len)) => *len += by,
            _ => self.pieces.push_back(Piece::Bytes(by)),
        }
    }

    /// Adds a PDU without data. `header` already has its flags and length.
    #[inline(always)]
    pub(super) fn pdu(&mut self, header: &[u8], digests: u8, corrupted: Corrupted) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(header);
        if digests & dgst::HEADER != 0 {
            let crc = crc32c::crc32c(&self.bytes[before..]) ^ u32::from(corrupted.header);
            self.bytes.extend_from_slice(&crc.to_le_bytes());
        }
        self.grew(self.bytes.len() - before);
    }

    /// Adds C2HData with all `len` bytes of a slot, which is free once they are sent. The data
    /// begins at a multiple of `align`.
    pub(super) fn data(
        &mut self,
        backend: &Backend,
        (slot, cid, len): (u16, u16, u32),
        (digests, align): (u8, usize),
        success: bool,
        corrupted: Corrupted,
    ) {
        let mut header = DataHeader::default();
        let common = CommonHeader::new(PduType::C2hData, size_of::<DataHeader>() as u8, len);
        header.common = common.with_digests(digests);
        header.common.flags |= flags::LAST | if success { flags::SUCCESS } else { 0 };
        let begin = usize::from(header.common.pdo);
        let padding = begin.next_multiple_of(align) - begin;
        header.common.pdo += padding as u8;
        header.common.plen.set(header.common.plen.get() + padding as u32);
        header.cccid.set(cid);
        header.datal.set(len);
        self.pdu(header.as_bytes(), digests, corrupted);
        self.bytes.resize(self.bytes.len() + padding, 0);
        self.grew(padding);
        let len = len as usize;
        self.pieces.push_back(Piece::Slot { slot, len });
        self.left += len;
        if digests & dgst::DATA != 0 {
            let data = backend.machine().data(usize::from(slot), 0..len);
            let crc = crc32c::crc32c(data) ^ u32::from(corrupted.data);
            self.bytes.extend_from_slice(&crc.to_le_bytes());
            self.grew(DIGEST_BYTES);
        }
    }

    /// Collects the next pieces to send. Returns how many there are.
    pub(super) fn gather<'a>(
        &'a self,
        backend: &'a Backend,
        to: &mut [IoSlice<'a>; PIECES],
        limit: usize,
    ) -> usize {
        let (mut bytes_at, mut skip, mut count, mut left) = (self.sent_bytes, self.sent, 0, limit);
        for piece in &self.pieces {
            if count == PIECES || left == 0 {
                break;
            }
            let all = match *piece {
                Piece::Bytes(len) => {
                    let begin = bytes_at - skip;
                    bytes_at = begin + len;
                    &self.bytes[begin..bytes_at]
                }
                Piece::Slot { slot, len } => backend.machine().data(usize::from(slot), 0..len),
            };
            let rest = &all[skip..];
            let rest = &rest[..rest.len().min(left)];
            left -= rest.len();
            to[count] = IoSlice::new(rest);
            count += 1;
            skip = 0;
        }
        count
    }

    /// Notes that `count` bytes have been sent.
    pub(super) fn advance(&mut self, mut count: usize, backend: &mut Backend) {
        self.left -= count;
        while count > 0 {
            let Some(piece) = self.pieces.front() else { break };
            let (len, slot) = match *piece {
                Piece::Bytes(len) => (len, None),
                Piece::Slot { slot, len } => (len, Some(slot)),
            };
            let now = count.min(len - self.sent);
            count -= now;
            self.sent += now;
            if slot.is_none() {
                self.sent_bytes += now;
            }
            if self.sent == len {
                self.sent = 0;
                self.pieces.pop_front();
                if let Some(slot) = slot {
                    backend.release(slot);
                }
            }
        }
        if self.left == 0 {
            self.bytes.clear();
            self.sent_bytes = 0;
        } else if self.sent_bytes > SENT_BYTES {
            if let Some(Piece::Bytes(len)) = self.pieces.front_mut() {
                *len -= self.sent;
                self.sent = 0;
            }
            self.bytes.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
    }

    /// Drops everything that is not sent yet. Slots return to the backend.
    pub(super) fn drop_all(&mut self, backend: &mut Backend) {
        for piece in self.pieces.drain(..) {
            if let Piece::Slot { slot, .. } = piece {
                backend.release(slot);
            }
        }
        self.bytes.clear();
        (self.sent_bytes, self.sent, self.left) = (0, 0, 0);
    }
}
