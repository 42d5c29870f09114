//! Receives the data of reads into their buffers before it is known what comes.
//!
//! A receiving call has to say where bytes go before it has seen their header. If only reads are in
//! flight, the answer to the oldest most likely comes next, and then the answer to the next one:
//! one call gets a header, a buffer, a header, the next buffer. Bytes that came otherwise are moved
//! to where the parser takes them, and for a while nothing is guessed.

use std::io;
use std::os::fd::AsFd;

use meantime_nvme_spec::tcp::{DIGEST_BYTES, PduType, dgst};

use crate::command::Direction;
use crate::connection::{Connection, Reading, load, received};
use crate::memory::{Mapped, NotMapped, RANGES_MAX, Ranges};

/// The most data that one call receives in this way: bytes placed wrongly have to fit the buffer.
const DATA_MAX_BYTES: u32 = 28 << 10;

/// The most commands of one guess: seven ranges with contiguous buffers. For more than eight ranges
/// the kernel would allocate memory in each call.
const COMMANDS_MAX: usize = 3;

/// Bytes of a header with its digest.
const HEADER_MAX_BYTES: usize = 24 + DIGEST_BYTES;

/// The number of receiving calls without a guess after a wrong one.
const PAUSE_CALLS: u32 = 64;

/// The slots whose answers are expected, in order.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Guess {
    slots: [u16; COMMANDS_MAX],
    count: usize,
}

impl Guess {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn slots(&self) -> &[u16] {
        &self.slots[..self.count]
    }
}

impl Connection {
    /// The answers expected next: none if other commands than reads are in flight.
    #[inline]
    pub(crate) fn guess(&mut self) -> Guess {
        let mut guess = Guess::default();
        if self.reads.len() != usize::from(self.in_flight) || self.is_own_busy() {
            return guess;
        }
        if self.no_guesses > 0 && self.in_flight > 1 {
            self.no_guesses -= 1;
            return guess;
        }
        // A data digest follows its data: only one fits between two headers.
        let most = if self.agreed.dgst & dgst::DATA != 0 { 1 } else { COMMANDS_MAX };
        let (mut bytes, mut ranges) = (0, 1);
        for &slot in self.reads.iter().take(most) {
            let command = &self.commands[usize::from(slot)];
            debug_assert!(command.is_busy && command.direction == Direction::In);
            bytes += command.bytes;
            ranges += command.pieces.len() + 1;
            if command.moved > 0 || bytes > DATA_MAX_BYTES || ranges > RANGES_MAX {
                break;
            }
            guess.slots[guess.count] = slot;
            guess.count += 1;
        }
        guess
    }

    /// Receives as guessed. Returns false if nothing more has come.
    pub(crate) fn receive_guessed(
        &mut self,
        mapped: &Mapped<'_>,
        guess: &Guess,
    ) -> io::Result<bool> {
        let header = 24 + self.header_digest_bytes();
        let mut ranges = Ranges::new(mapped);
        let (heads, tail) = self.input.split(header, guess.count);
        for (head, &slot) in heads.zip(guess.slots()) {
            ranges.buffer(head);
            let command = &self.commands[usize::from(slot)];
            for piece in command.part(0, command.bytes) {
                ranges
                    .piece(piece)
                    .map_err(|NotMapped| io::Error::other("a buffer is not mapped"))?;
            }
        }
        ranges.buffer(tail);
        let wanted = ranges.bytes();
        let came = received(ranges.receive(self.socket.as_fd()))?;
        let Some(came) = came else { return Ok(false) };
        self.sort(mapped, guess, header, came);
        self.parse(mapped);
        Ok(came == wanted)
    }

    /// Takes the bytes that were placed rightly. The rest is left to the parser, in order.
    fn sort(&mut self, mapped: &Mapped<'_>, guess: &Guess, header: usize, came: usize) {
        let mut heads = [0; COMMANDS_MAX * HEADER_MAX_BYTES];
        let heads = &mut heads[..header * guess.count];
        heads.copy_from_slice(self.input.heads(header * guess.count));
        let mut left = came;
        for (at, &slot) in guess.slots().iter().enumerate() {
            if left == 0 {
                return;
            }
            let head = &heads[header * at..][..header];
            let is_data = head[0] == PduType::C2hData as u8;
            if left < header || !is_data {
                self.no_guesses = if left < header { 0 } else { PAUSE_CALLS };
                return self.leave(mapped, guess, (at, 0), heads, left);
            }
            left -= header;
            self.take_header(mapped, head);
            let Reading::Data { slot: begun, left: bytes, .. } = self.reading else { return };
            let placed = left.min(self.commands[usize::from(slot)].bytes as usize);
            let in_place = if begun == slot { placed.min(bytes as usize) } else { 0 };
            left -= in_place;
            // Bytes that were placed wrongly are moved before the command ends.
            let is_whole = in_place == self.commands[usize::from(slot)].bytes as usize;
            if !is_whole {
                self.no_guesses = if left > 0 { PAUSE_CALLS } else { 0 };
                self.leave(mapped, guess, (at, header + in_place), heads, left);
            }
            if in_place > 0 {
                self.data_came(mapped, in_place as u32);
            }
            if !is_whole {
                return;
            }
        }
        self.input.fill(0, left, |_| {});
    }

    /// Leaves the last `left` bytes to the parser. They begin at byte `from.1` of what was meant
    /// for the command `from.0`, its header included.
    fn leave(
        &mut self,
        mapped: &Mapped<'_>,
        guess: &Guess,
        from: (usize, usize),
        heads: &[u8],
        left: usize,
    ) {
        let header = heads.len() / guess.count;
        let lengths = |at: usize| self.commands[usize::from(guess.slots[at])].bytes as usize;
        let room: usize = (from.0..guess.count).map(|at| header + lengths(at)).sum::<usize>();
        let gap = left.min(room - from.1);
        let Self { input, commands, .. } = self;
        input.fill(gap, left - gap, |to| {
            let (mut skip, mut done) = (from.1, 0);
            for at in from.0..guess.count {
                let head = &heads[header * at..][..header];
                let part = &head[skip.min(header)..];
                let len = part.len().min(gap - done);
                to[done..done + len].copy_from_slice(&part[..len]);
                done += len;
                skip = skip.saturating_sub(header);
                let command = &commands[usize::from(guess.slots[at])];
                let len = (command.bytes as usize - skip).min(gap - done);
                let mut pieces = command.part(skip as u32, len as u32);
                load(mapped, &mut pieces, &mut to[done..done + len]);
                done += len;
                skip = 0;
            }
        });
    }
}
