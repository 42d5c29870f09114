//! I/O commands of the NVM command set (1.4 §6): the general path.

use meantime_nvme_spec::dsm::DsmRange;
use meantime_nvme_spec::opcode::{IoOpcode, io};
use meantime_nvme_spec::sgl::psdt;
use meantime_nvme_spec::sqe::{DSM_AD, NSID_BROADCAST, Sqe, fuse};
use meantime_nvme_spec::status::{Status, StatusCode};
use zerocopy::FromBytes;

use super::faulty::late_data;
use super::outcome::{
    Checked, Outcome, invalid_field, invalid_if, no_such_namespace, refuse_if, refused,
};
use super::pending::Command;
use super::{Controller, prp, sgl};
use crate::clock::Clock;
use crate::hostmem::{HostMemory, HostSlice, Segment};
use crate::record::{Recorded, Recorder};
use crate::service::Work;
use crate::store::Namespace;
use crate::vwc::Extent;

/// The result of an executed command: its completion, and its cost.
pub(super) struct Executed {
    pub(super) outcome: Outcome,
    work: Work,
    offset: u64,
    bytes: u64,
    prps: Option<(u64, u64)>,
    recorded: Option<Recorded>,
}

impl Executed {
    fn free(outcome: impl Into<Outcome>) -> Self {
        Self {
            outcome: outcome.into(),
            work: Work::None,
            offset: 0,
            bytes: 0,
            prps: None,
            recorded: None,
        }
    }

    fn done(work: Work, extent: Extent, sqe: &Sqe, transfers: bool) -> Self {
        let Extent { offset, len: bytes, .. } = extent;
        let prps = transfers.then(|| data_pointers(sqe));
        Self { work, offset, bytes, prps, ..Self::free(Outcome::OK) }
    }

    /// Returns whether the command wrote to the medium: all of [`Executed::extent`], and nothing
    /// else.
    pub(super) fn writes(&self) -> bool {
        match self.work {
            Work::Write => true,
            // The ranges of a deallocation may lie anywhere.
            Work::Trim => self.prps.is_none(),
            _ => false,
        }
    }

    /// Returns the offset on the medium and the length, in bytes.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }
}

/// Returns the addresses in a command's DPTR.
fn data_pointers(sqe: &Sqe) -> (u64, u64) {
    // The second half of an SGL descriptor is its length and type.
    (sqe.prp1.get(), if sqe.psdt() == psdt::PRP { sqe.prp2.get() } else { 0 })
}

/// Checks CDW0 of every command: SGLs are only for I/O commands and not for metadata (1.4 §4.2),
/// and FUSE is clear: half of a pair that comes here is alone.
pub(super) fn check_cdw0(qid: u16, sqe: &Sqe) -> Checked<()> {
    if qid != 0 && matches!(sqe.fuse(), fuse::FIRST | fuse::SECOND) {
        let rule = "one command of a fused operation, without the other next to it";
        return Err(refused(StatusCode::CommandAbortedMissingFused, rule));
    }
    let rule = if sqe.fuse() != fuse::NONE {
        "fused operation of admin commands, or FUSE with a reserved value"
    } else if sqe.psdt() == psdt::PRP || (sqe.psdt() == psdt::SGL && qid != 0) {
        return Ok(());
    } else if qid == 0 {
        "SGL in an admin command"
    } else {
        "PSDT: an SGL for metadata, though SGLS does not offer it, or a reserved value"
    };
    Err(invalid_field(rule))
}

/// Returns a write fault if the medium failed.
pub(super) fn check_stored(sqe: &Sqe, stored: bool) -> Checked<()> {
    if stored {
        return Ok(());
    }
    let (cid, nsid) = (sqe.cid(), sqe.nsid.get());
    tracing::warn!(cid, nsid, "the medium's file could not be written back");
    Err(StatusCode::WriteFault.into())
}

/// Calls `f` with the memory of each of `segments` that has any, and its offset in the data.
fn for_each_slice(
    host: &HostMemory,
    segments: &[Segment],
    mut f: impl FnMut(HostSlice<'_>, std::ops::Range<usize>),
) {
    let mut at = 0;
    for segment in segments {
        let place = at..at + segment.len();
        at = place.end;
        if let Some(slice) = host.resolve(*segment) {
            f(slice, place);
        }
    }
}

impl Controller {
    /// Executes an I/O command, including its data transfer.
    pub(super) fn execute(&mut self, qid: u16, sqe: &Sqe) -> Executed {
        let executed = self.try_execute(qid, sqe);
        executed.unwrap_or_else(|failure| Executed::free(self.fail(qid, sqe.cid(), failure)))
    }

    fn try_execute(&mut self, qid: u16, sqe: &Sqe) -> Checked<Executed> {
        check_cdw0(qid, sqe)?;
        let opcode = IoOpcode::try_from(sqe.opcode())
            .map_err(|_| refused(StatusCode::InvalidCommandOpcode, "unknown I/O opcode"))?;
        if opcode == IoOpcode::Flush {
            return self.flush(sqe);
        }
        let namespace = *self.store.namespace(sqe.nsid.get()).ok_or_else(no_such_namespace)?;
        let protected = self.store.write_protected() && changes_blocks(opcode, sqe);
        let rule = "the namespace is write protected: its medium was opened for reading only";
        refuse_if(protected, StatusCode::NamespaceIsWriteProtected, rule)?;
        match opcode {
            IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify => {
                self.read(opcode, sqe, &namespace)
            }
            IoOpcode::Write => {
                let extent = self.extent(sqe, &namespace, true)?;
                self.gather(sqe, extent.len)?;
                let (segments, host) = (&self.segments, &self.host);
                let stored = self.store.write(extent, sqe.fua(), |medium| {
                    for_each_slice(host, segments, |slice, place| {
                        let offset = extent.offset + place.start as u64;
                        slice.store_to_medium(medium.span(offset, place.len()));
                    });
                });
                self.counters.writes.add(1);
                self.counters.written_bytes.add(extent.len);
                check_stored(sqe, stored)?;
                let recorded = self.record(&[extent], sqe.fua());
                Ok(Executed { recorded, ..Executed::done(Work::Write, extent, sqe, true) })
            }
            IoOpcode::WriteZeroes => {
                let extent = self.extent(sqe, &namespace, false)?;
                let stored = self.store.zero(extent, sqe.fua());
                self.counters.other_io.add(1);
                check_stored(sqe, stored)?;
                let recorded = self.record(&[extent], sqe.fua());
                Ok(Executed { recorded, ..Executed::done(Work::Trim, extent, sqe, false) })
            }
            IoOpcode::WriteUncorrectable => {
                let extent = self.extent(sqe, &namespace, false)?;
                self.store.mark_uncorrectable(extent);
                self.counters.other_io.add(1);
                self.choose_path();
                Ok(Executed::done(Work::Trim, extent, sqe, false))
            }
            IoOpcode::DatasetManagement => self.dataset_management(sqe, &namespace),
            _ => {
                let rule = "I/O command that Identify Controller does not offer";
                Err(refused(StatusCode::InvalidCommandOpcode, rule))
            }
        }
    }

    /// Read, Compare and Verify.
    fn read(&mut self, opcode: IoOpcode, sqe: &Sqe, ns: &Namespace) -> Checked<Executed> {
        let transfers = opcode != IoOpcode::Verify;
        let extent = self.extent(sqe, ns, transfers)?;
        if transfers {
            self.gather(sqe, extent.len)?;
        }
        if let Some(at) = self.store.first_uncorrectable(extent) {
            // The host caused this, but broke no rule, so it is not counted as a refusal.
            let (cid, lba) = (sqe.cid(), sqe.slba() + ((at - extent.offset) >> ns.lba_shift));
            tracing::debug!(cid, lba, "read of a block that Write Uncorrectable has marked");
            self.counters.media_errors.add(1);
            return Err(Status::from_code(StatusCode::UnrecoveredReadError).with_dnr().into());
        }
        // With FUA, data read or compared has to be on the medium (1.4 §6.9).
        check_stored(sqe, !sqe.fua() || self.store.flush_for_read())?;
        if opcode == IoOpcode::Read {
            self.transfer(extent.offset);
            self.counters.reads.add(1);
            self.counters.read_bytes.add(extent.len);
        } else {
            self.counters.other_io.add(1);
        }
        if opcode == IoOpcode::Compare && !self.compares_equal(extent) {
            // This is not the host's fault, so it is not counted as a refusal.
            return Err(Status::from_code(StatusCode::CompareFailure).with_dnr().into());
        }
        Ok(Executed::done(Work::Read, extent, sqe, transfers))
    }

    /// Returns the blocks of a command, checked against the namespace and, if it transfers data,
    /// against MDTS.
    fn extent(&self, sqe: &Sqe, ns: &Namespace, transfers: bool) -> Checked<Extent> {
        let mdts_bytes = self.config.mdts_bytes;
        let len = u64::from(sqe.nlb()) << ns.lba_shift;
        let beyond = transfers && mdts_bytes != 0 && len > u64::from(mdts_bytes);
        invalid_if(beyond, "transfer beyond MDTS")?;
        let beyond = || refused(StatusCode::LbaOutOfRange, "blocks beyond the namespace's end");
        ns.extent(sqe.slba(), sqe.nlb()).ok_or_else(beyond)
    }

    /// Finds the memory of a command's data, and stores it in `segments`.
    pub(super) fn gather(&mut self, sqe: &Sqe, len: u64) -> Checked<()> {
        let (host, to) = (&self.host, &mut self.segments);
        if sqe.psdt() == psdt::PRP {
            return prp::gather(host, sqe.prp1.get(), sqe.prp2.get(), len, to);
        }
        sgl::gather(host, sqe.sgl1(), len, to)
    }

    /// Copies from the medium at `offset` to `segments`.
    pub(super) fn transfer(&self, offset: u64) {
        for_each_slice(&self.host, &self.segments, |slice, place| {
            slice.fill_from_medium(self.store.span(offset + place.start as u64, place.len()));
        });
    }

    /// Compares `segments` with the medium's `extent`.
    fn compares_equal(&self, extent: Extent) -> bool {
        let (mut host, mut medium) = (vec![0; extent.len as usize], vec![0; extent.len as usize]);
        self.collect(&mut host);
        self.store.span(extent.offset, medium.len()).read(&mut medium);
        host == medium
    }

    /// Copies `segments` to `data`, which has the same length.
    pub(super) fn collect(&self, data: &mut [u8]) {
        for_each_slice(&self.host, &self.segments, |slice, place| slice.read(&mut data[place]));
    }

    /// Copies `data` to `segments`, which have the same length.
    pub(super) fn scatter(&self, data: &[u8]) {
        for_each_slice(&self.host, &self.segments, |slice, place| slice.write(&data[place]));
    }

    /// Records that `extents` were just written, if recording is on.
    fn record(&mut self, extents: &[Extent], fua: bool) -> Option<Recorded> {
        let recorder = self.recorder.as_ref()?;
        let mut first = None;
        for extent in extents {
            let mut data = vec![0; extent.len as usize];
            self.store.span(extent.offset, data.len()).read(&mut data);
            let number = recorder.write(extent.offset, data.into(), fua);
            first.get_or_insert(number);
        }
        Some(Recorded::Writes(first?, extents.len()))
    }

    /// Records a write that is answered with an error. The medium does not have it, but may have it
    /// after a power cut.
    fn record_failing(&mut self, sqe: &Sqe) -> Option<Recorded> {
        self.recorder.as_ref()?;
        if sqe.opcode() != io::WRITE {
            return None;
        }
        let namespace = self.store.namespace(sqe.nsid.get())?;
        let extent = namespace.extent(sqe.slba(), sqe.nlb())?;
        self.gather(sqe, extent.len).ok()?;
        let mut data = vec![0; extent.len as usize];
        self.collect(&mut data);
        let number = self.recorder.as_ref()?.write(extent.offset, data.into(), sqe.fua());
        Some(Recorded::Writes(number, 1))
    }

    /// Records the completion of a command.
    pub(super) fn record_done(&mut self, command: &Command) {
        let Some((recorder, recorded)) = self.recorder.clone().zip(command.recorded) else {
            return;
        };
        if !command.outcome.status.is_success() {
            return recorder.failed(recorded);
        }
        if let (Recorded::Writes(number, 1), Some((prp1, prp2))) = (recorded, command.prps)
            && let Some(then) = recorder.data(number)
            && prp::gather(&self.host, prp1, prp2, then.len() as u64, &mut self.segments).is_ok()
        {
            let mut now = vec![0; then.len()];
            self.collect(&mut now);
            if *now != *then {
                recorder.changed(number, now.into());
            }
        }
        recorder.done(recorded);
    }

    fn flush(&mut self, sqe: &Sqe) -> Checked<Executed> {
        let nsid = sqe.nsid.get();
        if nsid != NSID_BROADCAST && self.store.namespace(nsid).is_none() {
            return Err(no_such_namespace());
        }
        let stored = self.store.flush();
        self.counters.flushes.add(1);
        check_stored(sqe, stored)?;
        let recorded = self.recorder.as_ref().map(Recorder::flush);
        Ok(Executed { work: Work::Flush, recorded, ..Executed::free(Outcome::OK) })
    }

    fn dataset_management(&mut self, sqe: &Sqe, ns: &Namespace) -> Checked<Executed> {
        const RANGE_BYTES: usize = size_of::<DsmRange>();
        let mut data = [0; 256 * RANGE_BYTES];
        let data = &mut data[..sqe.nr() as usize * RANGE_BYTES];
        self.gather(sqe, data.len() as u64)?;
        self.collect(data);
        // All ranges are checked before the first is changed.
        let mut extents = Vec::new();
        for bytes in data.chunks_exact(RANGE_BYTES) {
            let Ok(range) = DsmRange::read_from_bytes(bytes) else { continue };
            let beyond = || refused(StatusCode::LbaOutOfRange, "range beyond the namespace");
            extents.push(ns.extent(range.slba.get(), range.length.get()).ok_or_else(beyond)?);
        }
        // Without the deallocate attribute the command is only advice, and has no cost.
        let deallocates = sqe.cdw11.get() & DSM_AD != 0;
        extents.retain(|extent| deallocates && extent.len > 0);
        for extent in &extents {
            let stored = self.store.zero(*extent, false);
            check_stored(sqe, stored)?;
        }
        self.counters.other_io.add(1);
        // The data pointer refers to a list of ranges, not to the new content of the blocks.
        let recorded = self.record(&extents, false).map(|recorded| match recorded {
            Recorded::Writes(first, count) => Recorded::Deallocations(first, count),
            other => other,
        });
        let prps = Some(data_pointers(sqe));
        let bytes = extents.iter().map(|extent| extent.len).sum();
        let (work, offset) = match extents.first() {
            Some(first) => (Work::Trim, first.offset),
            None => (Work::None, 0),
        };
        Ok(Executed { outcome: Outcome::OK, work, offset, bytes, prps, recorded })
    }

    /// Executes a command of `sqs[index]` fetched at `seen_ns`, unless it is `ended` already, and
    /// completes it when it is due. Returns the result, or `None` if a fault has removed the
    /// queues.
    pub(super) fn start_timed<C: Clock>(
        &mut self,
        index: usize,
        sqe: &Sqe,
        ended: Option<Status>,
        seen_ns: u64,
        clock: &C,
    ) -> Option<Status> {
        let (qid, cid) = (self.sqs[index].qid, sqe.cid());
        if self.sqs[index].cids.contains(cid) {
            let status = self.cid_conflict(qid, cid);
            self.post(index, cid, Outcome::from(status));
            return Some(status);
        }
        let verdict = self.judge(qid, sqe, seen_ns)?;
        let ended = ended.filter(|_| !verdict.unfused);
        let executed = match ended.or(verdict.status) {
            Some(status) if ended.is_some() => Executed::free(status),
            Some(status) => {
                Executed { recorded: self.record_failing(sqe), ..Executed::free(status) }
            }
            None => self.execute(qid, sqe),
        };
        if !verdict.is_none() {
            self.corrupt(&verdict, sqe, &executed);
        }
        self.take_in(index, cid);
        if verdict.lose {
            self.lose(index);
            return Some(executed.outcome.status);
        }
        // The time to leave a power state comes first.
        let awake_ns = self.power.awake_at_ns(seen_ns, !self.pending.is_empty());
        let slot = self.service.occupy(executed.work, executed.offset, executed.bytes, awake_ns);
        let command = Command {
            qid,
            cid,
            outcome: executed.outcome,
            seen_ns,
            begun_ns: slot.begun_ns,
            prps: executed.prps,
            recorded: executed.recorded,
            faults: verdict.cqe,
            late_data: late_data(&verdict, sqe, &executed),
        };
        // Executing the command took time, which a stamp must include.
        let stamped = self.stamps.is_some();
        let now_ns = || if stamped { clock.now_ns() } else { seen_ns };
        self.complete_at(command, slot.done_ns, verdict.late_by_ns, now_ns);
        Some(executed.outcome.status)
    }
}

/// Returns whether the command would change what is stored.
fn changes_blocks(opcode: IoOpcode, sqe: &Sqe) -> bool {
    match opcode {
        IoOpcode::Write | IoOpcode::WriteZeroes | IoOpcode::WriteUncorrectable => true,
        // Without the deallocate attribute the command is only advice.
        IoOpcode::DatasetManagement => sqe.cdw11.get() & DSM_AD != 0,
        _ => false,
    }
}
