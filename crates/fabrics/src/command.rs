//! The commands in flight on a connection: what their data is, and how much of it has moved.

use meantime_nvme_spec::opcode::{admin, io};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};

use crate::identified::BlockShifts;
use crate::memory::{Mapped, Piece};

/// The page size that the driver sets (CC.MPS = 0).
const PAGE_BYTES: u64 = 4096;

/// The most bytes of one command: more than MDTS of any controller and PRP lists of the driver.
const DATA_MAX_BYTES: u64 = 64 << 20;

/// Which way the data of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Direction {
    #[default]
    None,
    /// Host to controller.
    Out,
    /// Controller to host.
    In,
}

/// A command in flight.
#[derive(Debug, Default)]
pub(crate) struct Command {
    pub(crate) is_busy: bool,
    pub(crate) cid: u16,
    /// Opcode, and the fields that its end needs: NSID and CNS of Identify.
    pub(crate) opcode: u8,
    pub(crate) nsid: u32,
    pub(crate) cns: u8,
    pub(crate) direction: Direction,
    /// Bytes of its data, and of these the bytes received, or requested by R2T.
    pub(crate) bytes: u32,
    pub(crate) moved: u32,
    /// Whether the data went with the command.
    pub(crate) in_capsule: bool,
    /// Whether a data digest was wrong.
    pub(crate) bad_digest: bool,
    /// Where its data is, in order. The memory is kept, so that nothing is allocated.
    pub(crate) pieces: Vec<Piece>,
}

impl Command {
    /// The pieces of `len` bytes at `offset` of the data.
    pub(crate) fn part(&self, offset: u32, len: u32) -> impl Iterator<Item = Piece> {
        let (mut skip, mut left) = (offset, len);
        self.pieces.iter().filter_map(move |piece| {
            let skipped = skip.min(piece.len);
            skip -= skipped;
            let len = (piece.len - skipped).min(left);
            left -= len;
            (len > 0).then_some(Piece { iova: piece.iova + u64::from(skipped), len })
        })
    }
}

/// Direction and length of the data of an I/O command, or the status that it gets.
pub(crate) fn io_data(sqe: &Sqe, shifts: &mut BlockShifts) -> Result<(Direction, u64), Status> {
    let blocks = |shifts: &mut BlockShifts| {
        let blocks = u64::from(sqe.cdw12.get() & 0xffff) + 1;
        shifts.get(sqe.nsid.get()).map(|shift| blocks << shift)
    };
    Ok(match sqe.opcode() {
        io::WRITE | io::COMPARE => (Direction::Out, blocks(shifts)?),
        io::READ => (Direction::In, blocks(shifts)?),
        io::DATASET_MANAGEMENT => (Direction::Out, (u64::from(sqe.cdw10.get() & 0xff) + 1) * 16),
        opcode if opcode & 3 == 0 => (Direction::None, 0),
        _ => return Err(Status::from_code(StatusCode::InvalidCommandOpcode).with_dnr()),
    })
}

/// Direction and length of the data of an admin command, or the status that it gets.
pub(crate) fn admin_data(sqe: &Sqe) -> Result<(Direction, u64), Status> {
    use meantime_nvme_spec::features::fid;
    let feature = match (sqe.cdw10.get() & 0xff) as u8 {
        fid::AUTONOMOUS_POWER_STATE_TRANSITION => 256,
        fid::TIMESTAMP => 8,
        fid::HOST_BEHAVIOR_SUPPORT => 512,
        _ => 0,
    };
    let by_length = |direction, bytes| match bytes {
        0 => (Direction::None, 0),
        _ => (direction, bytes),
    };
    Ok(match sqe.opcode() {
        admin::IDENTIFY => (Direction::In, 4096),
        admin::GET_LOG_PAGE => (Direction::In, sqe.numd_dwords().saturating_mul(4)),
        admin::SET_FEATURES => by_length(Direction::Out, feature),
        // The capabilities of a feature are returned in the completion.
        admin::GET_FEATURES if sqe.cdw10.get() >> 8 & 7 == 3 => (Direction::None, 0),
        admin::GET_FEATURES => by_length(Direction::In, feature),
        opcode if opcode & 3 == 0 => (Direction::None, 0),
        _ => return Err(Status::from_code(StatusCode::InvalidCommandOpcode).with_dnr()),
    })
}

/// Finds the pieces of `bytes` of data that PRP1 and PRP2 describe (1.4 §4.3).
pub(crate) fn walk_prps(
    mapped: &Mapped<'_>,
    sqe: &Sqe,
    bytes: u64,
    pieces: &mut Vec<Piece>,
) -> Result<(), Status> {
    pieces.clear();
    if bytes > DATA_MAX_BYTES {
        return Err(Status::from_code(StatusCode::InvalidFieldInCommand).with_dnr());
    }
    let mut left = bytes;
    let mut add = |iova: u64, left: &mut u64| {
        let len = (PAGE_BYTES - iova % PAGE_BYTES).min(*left) as u32;
        *left -= u64::from(len);
        match pieces.last_mut() {
            Some(last) if last.iova + u64::from(last.len) == iova => last.len += len,
            _ => pieces.push(Piece { iova, len }),
        }
    };
    add(sqe.prp1.get(), &mut left);
    if left == 0 {
        return Ok(());
    }
    let second = sqe.prp2.get();
    if left <= PAGE_BYTES {
        add(second, &mut left);
        return Ok(());
    }
    // PRP2 points to a list. Its last entry in a page, if more are needed, points to the next page
    // of the list.
    let mut entry = second;
    while left > 0 {
        let error = |_| Status::from_code(StatusCode::DataTransferError);
        let word = mapped.word(entry).map_err(error)?;
        if entry % PAGE_BYTES == PAGE_BYTES - 8 && left > PAGE_BYTES {
            entry = word;
            continue;
        }
        add(word, &mut left);
        entry += 8;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_pieces() {
        let command = Command {
            pieces: vec![Piece { iova: 100, len: 10 }, Piece { iova: 500, len: 20 }],
            ..Command::default()
        };
        let part = |offset, len| command.part(offset, len).collect::<Vec<_>>();
        assert_eq!(part(0, 30), command.pieces);
        assert_eq!(part(8, 4), [Piece { iova: 108, len: 2 }, Piece { iova: 500, len: 2 }]);
        assert_eq!(part(10, 5), [Piece { iova: 500, len: 5 }]);
        assert_eq!(part(30, 0), []);
    }
}
