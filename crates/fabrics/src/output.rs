//! The bytes that wait to be sent on a connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use meantime_nvme_spec::tcp::{CommonHeader, dgst, flags};
use zerocopy::IntoBytes;

use crate::memory::{Mapped, NotMapped, Piece, Ranges};

/// The longest list of sent headers that is kept.
const SENT_MAX_BYTES: usize = 64 << 10;

/// A part of the bytes that wait.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Bytes of `bytes`, by position.
    Own { at: usize, len: usize },
    /// The driver's memory, for the command in a slot.
    Piece { piece: Piece, slot: u16 },
}

/// PDUs that wait to be sent: headers, and the driver's data by reference.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
    /// The digests that were agreed on.
    dgst: u8,
}

impl Output {
    pub(crate) fn new(dgst: u8) -> Self {
        Self { dgst, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
    }

    fn own(&mut self, bytes: &[u8]) {
        let (at, len) = (self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        match self.parts.back_mut() {
            Some(Part::Own { at: last, len: before }) if *last + *before == at => *before += len,
            _ => self.parts.push_back(Part::Own { at, len }),
        }
    }

    /// Whether data of the command in `slot` wait.
    pub(crate) fn has_data_of(&self, slot: u16) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Piece { slot: of, .. } if *of == slot))
    }

    /// Adds a PDU: `header`, which begins with its common header, without digests; further bytes;
    /// and data of the command in `slot`.
    pub(crate) fn pdu(
        &mut self,
        mapped: &Mapped<'_>,
        header: &mut [u8],
        own: &[u8],
        slot: u16,
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<(), NotMapped> {
        let dgst = self.dgst;
        let has_data = header[3] != 0;
        if dgst != 0 {
            let common = CommonHeader {
                kind: header[0],
                flags: header[1],
                hlen: header[2],
                pdo: header[3],
                plen: u32::from_le_bytes([header[4], header[5], header[6], header[7]]).into(),
            };
            header[..8].copy_from_slice(common.with_digests(dgst).as_bytes());
        }
        self.own(header);
        if header[1] & flags::HDGST != 0 {
            self.own(&crc32c::crc32c(header).to_le_bytes());
        }
        let digests = has_data && dgst & dgst::DATA != 0;
        let mut crc = 0;
        if !own.is_empty() {
            self.own(own);
            crc = crc32c::crc32c(own);
        }
        for piece in pieces {
            if digests {
                crc = mapped.crc(crc, piece)?;
            }
            self.parts.push_back(Part::Piece { piece, slot });
        }
        if digests {
            self.own(&crc.to_le_bytes());
        }
        Ok(())
    }

    /// Sends what the socket takes, without blocking.
    pub(crate) fn send(&mut self, mapped: &Mapped<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.parts.is_empty() {
            let mut ranges = Ranges::new(mapped);
            for part in &self.parts {
                if ranges.is_full() {
                    break;
                }
                match *part {
                    Part::Own { at, len } => ranges.bytes_to_send(&self.bytes[at..at + len]),
                    Part::Piece { piece, .. } => ranges.piece(piece).map_err(|NotMapped| {
                        io::Error::other("data of a command is no longer mapped")
                    })?,
                }
            }
            let wanted = ranges.bytes();
            let sent = match ranges.send(socket) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.remove(sent);
            self.shrink();
            if sent < wanted {
                return Ok(());
            }
        }
        self.bytes.clear();
        Ok(())
    }

    /// Drops headers that were sent, in case something always waits.
    fn shrink(&mut self) {
        let first = self.parts.iter().find_map(|part| match part {
            Part::Own { at, .. } => Some(*at),
            Part::Piece { .. } => None,
        });
        if let Some(first) = first.filter(|first| *first >= SENT_MAX_BYTES) {
            self.bytes.drain(..first);
            for part in &mut self.parts {
                if let Part::Own { at, .. } = part {
                    *at -= first;
                }
            }
        }
    }

    fn remove(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(part) = self.parts.front_mut() else { return };
            let len = match part {
                Part::Own { len, .. } => *len,
                Part::Piece { piece, .. } => piece.len as usize,
            };
            if sent >= len {
                sent -= len;
                self.parts.pop_front();
                continue;
            }
            match part {
                Part::Own { at, len } => (*at, *len) = (*at + sent, *len - sent),
                Part::Piece { piece, .. } => {
                    (piece.iova, piece.len) = (piece.iova + sent as u64, piece.len - sent as u32);
                }
            }
            return;
        }
    }
}
