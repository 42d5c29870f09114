//! The path of plain reads and writes when completions need no clock. It is one pass over the
//! doorbell, the entries, the data and the completions, without allocation, lock, system call or
//! division.
//!
//! Commands are executed in runs. Every cache line that a run of several commands touches is
//! prefetched before the first is used, so the run waits for memory once. A command that is not
//! plain ends the run and takes the general path ([`execute`](Controller::execute)), which also
//! finds the status of an invalid command.

use meantime_nvme_spec::opcode::io;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;

use super::Controller;
use super::fused::Head;
use super::queues::{Cq, RUN, Sq};
use crate::clock::Clock;
use crate::hostmem::{HostMemory, HostSlice, PAGE_BYTES};
use crate::medium::MediumSpan;
use crate::store::Store;

/// A checked plain read or write. It has at most two pieces of host memory.
#[derive(Clone, Copy)]
struct Plain<'m> {
    first: HostSlice<'m>,
    first_span: MediumSpan<'m>,
    second: Option<(HostSlice<'m>, MediumSpan<'m>)>,
    bytes: u32,
    cid: u16,
    is_write: bool,
}

/// The result of a run.
#[derive(Clone, Copy, Default)]
struct Done {
    commands: u32,
    reads: u32,
    read_bytes: u64,
    written_bytes: u64,
    /// Whether the next command's identifier is already outstanding.
    conflict: bool,
}

impl<'m> Plain<'m> {
    /// Parses `sqe` as a plain read or write. Returns `None` if it is another command, or invalid.
    #[inline(always)]
    fn of(sqe: &Sqe, host: &'m HostMemory, store: &'m Store, mdts_bytes: u32) -> Option<Self> {
        // This tests the low half of CDW0 at once: the opcode, and FUSE, PSDT and the reserved bits
        // between, which are all zero.
        let is_write = match sqe.cdw0.get() & 0xffff {
            // With FUA the command may need a flush first.
            READ if !(sqe.fua() && store.has_cache()) => false,
            WRITE if store.write_through() => true,
            _ => return None,
        };
        let namespace = store.namespace(sqe.nsid.get())?;
        let nlb = sqe.nlb();
        let bytes = nlb << namespace.lba_shift;
        let offset = namespace.locate(sqe.slba(), u64::from(nlb))?;
        let prp1 = sqe.prp1.get();
        if prp1 & 3 != 0 || bytes > mdts_bytes {
            return None;
        }
        let first_len = (PAGE_BYTES as u32 - (prp1 % PAGE_BYTES) as u32).min(bytes);
        let first = host.slice(prp1, first_len as usize)?;
        let first_span = store.span(offset, first_len as usize);
        let left = bytes - first_len;
        let second = if left == 0 {
            None
        } else {
            let prp2 = sqe.prp2.get();
            if left > PAGE_BYTES as u32 || prp2 == 0 || !prp2.is_multiple_of(PAGE_BYTES) {
                return None;
            }
            let span = store.span(offset + u64::from(first_len), left as usize);
            Some((host.slice(prp2, left as usize)?, span))
        };
        Some(Self { first, first_span, second, bytes, cid: sqe.cid(), is_write })
    }

    /// Prefetches everything that the transfer touches.
    #[inline(always)]
    fn prefetch(&self) {
        self.first_span.prefetch();
        if self.is_write {
            self.first.prefetch_read();
        } else {
            self.first.prefetch_write();
        }
    }

    /// Moves the data.
    #[inline(always)]
    fn transfer(&self) {
        if self.is_write {
            self.first.store_to_medium(self.first_span);
            if let Some((slice, span)) = self.second {
                slice.store_to_medium(span);
            }
        } else {
            self.first.fill_from_medium(self.first_span);
            if let Some((slice, span)) = self.second {
                slice.fill_from_medium(span);
            }
        }
    }
}

const READ: u32 = io::READ as u32;
const WRITE: u32 = io::WRITE as u32;

impl Done {
    #[inline(always)]
    fn count(&mut self, plain: &Plain<'_>) {
        self.commands += 1;
        if plain.is_write {
            self.written_bytes += u64::from(plain.bytes);
        } else {
            self.reads += 1;
            self.read_bytes += u64::from(plain.bytes);
        }
    }
}

/// Executes plain commands from the head of `sq`, at most `n`, and stops at the first one that is
/// not plain.
#[inline(always)]
fn run(
    sq: &mut Sq,
    cq: &mut Cq,
    host: &HostMemory,
    store: &Store,
    mdts_bytes: u32,
    n: u32,
) -> Done {
    let mut done = Done::default();
    if n == 1 {
        // At depth 1 there is as little work as possible between the doorbell and the completion.
        // Prefetching costs more than it gains here (measured: 80 ns of 4 KiB), because the copy
        // itself keeps enough misses in flight, and a host that polls the completion entry takes
        // its line back at once.
        let sqe = sq.ring.read_sqe(sq.head);
        if sq.outstanding > 0 && sq.cids.contains(sqe.cid()) {
            done.conflict = true;
            return done;
        }
        if let Some(plain) = Plain::of(&sqe, host, store, mdts_bytes) {
            plain.transfer();
            sq.advance(1);
            cq.post(0, sq.head as u16, sq.qid, plain.cid, Status::SUCCESS);
            done.count(&plain);
        }
        return done;
    }
    cq.prefetch();
    for i in 1..n {
        sq.ring.prefetch_sqe(sq.index(i));
    }
    let mut plains: [Option<Plain<'_>>; RUN] = [None; RUN];
    let mut taken = 0;
    while taken < n as usize {
        let sqe = sq.ring.read_sqe(sq.index(taken as u32));
        let Some(plain) = Plain::of(&sqe, host, store, mdts_bytes) else { break };
        if !sq.cids.insert(plain.cid) {
            done.conflict = true;
            break;
        }
        plain.prefetch();
        plains[taken] = Some(plain);
        taken += 1;
    }
    sq.advance(taken as u32);
    let (sqhd, qid) = (sq.head as u16, sq.qid);
    for plain in plains[..taken].iter().flatten() {
        plain.transfer();
        sq.cids.remove(plain.cid);
        cq.post(0, sqhd, qid, plain.cid, Status::SUCCESS);
        done.count(plain);
    }
    done
}

impl Controller {
    /// Serves one turn's commands of an I/O queue when every command completes at once.
    #[inline(always)]
    pub(super) fn serve_at_once<C: Clock>(
        &mut self,
        index: usize,
        tail: u32,
        burst: u32,
        clock: &C,
    ) -> bool {
        let mdts_bytes =
            if self.config.mdts_bytes == 0 { u32::MAX } else { self.config.mdts_bytes };
        let mut budget = self.sqs[index].available(tail).min(burst).min(RUN as u32);
        let mut worked = false;
        while budget > 0 {
            let room = self.room(index, budget);
            if room == 0 {
                break;
            }
            let sq = &mut self.sqs[index];
            let Some(cq) = self.cqs[usize::from(sq.cqid)].as_mut() else { break };
            let done = run(sq, cq, &self.host, &self.store, mdts_bytes, budget.min(room));
            if done.commands > 0 {
                self.counters.reads.add(u64::from(done.reads));
                self.counters.writes.add(u64::from(done.commands - done.reads));
                self.counters.read_bytes.add(done.read_bytes);
                self.counters.written_bytes.add(done.written_bytes);
                self.counters.cqes.add(u64::from(done.commands));
                budget -= done.commands;
                worked = true;
                if budget == 0 {
                    break;
                }
                if !done.conflict {
                    continue;
                }
            }
            let taken = self.serve_one(index, tail, done.conflict);
            if taken == 0 {
                break;
            }
            budget = budget.saturating_sub(taken);
            worked = true;
        }
        if worked {
            self.announce(index, clock);
        }
        worked
    }

    /// Executes the command at the head, which is not plain, or a fused pair. There is room for one
    /// completion. Returns the number of commands taken, which is 0 if a pair lacks room for its
    /// second completion.
    #[cold]
    fn serve_one(&mut self, index: usize, tail: u32, conflict: bool) -> u32 {
        match self.head_of(index, tail) {
            Head::One => {}
            Head::NoRoom => return 0,
            Head::Pair(first, second) => {
                self.sqs[index].advance(2);
                self.pair_at_once(index, &first, &second);
                return 2;
            }
        }
        let sq = &mut self.sqs[index];
        let (qid, sqe) = (sq.qid, sq.ring.read_sqe(sq.head));
        sq.advance(1);
        let ended = conflict.then(|| self.cid_conflict(qid, sqe.cid()));
        self.end_at_once(index, &sqe, ended);
        1
    }
}
