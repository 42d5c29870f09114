//! I/O commands of the NVM command set (1.4 §6): the general path.

use meantime_spec::dsm::DsmRange;
use meantime_spec::opcode::{DataTransfer, IoOpcode};
use meantime_spec::sgl::psdt;
use meantime_spec::sqe::{DSM_AD, NSID_BROADCAST, Sqe, fuse};
use meantime_spec::status::{Status, StatusCode};
use zerocopy::FromBytes;

use super::Controller;
use super::complete::Outcome;
use super::error_log::Wrong;
use super::faulty::Marks;
use super::pending::Command;
use super::prp::{self, PrpError};
use super::sgl::{self, SglError};
use crate::clock::Clock;
use crate::hostmem::{PAGE_BYTES, Segment};
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
        let prps = transfers.then(|| data_pointers(sqe));
        Self {
            outcome: Outcome::OK,
            work,
            offset: extent.offset,
            bytes: extent.len,
            prps,
            recorded: None,
        }
    }

    /// Whether the medium was written to, all of and nothing but [`Executed::extent`].
    pub(super) fn writes(&self) -> bool {
        match self.work {
            Work::Write => true,
            // Ranges of a deallocation may lie anywhere.
            Work::Trim => self.prps.is_none(),
            _ => false,
        }
    }

    /// Where on the medium, and how many bytes.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }
}

/// The addresses in a command's DPTR.
fn data_pointers(sqe: &Sqe) -> (u64, u64) {
    // The second half of an SGL descriptor is its length and type.
    (sqe.prp1.get(), if sqe.psdt() == psdt::PRP { sqe.prp2.get() } else { 0 })
}

impl Controller {
    /// Executes an I/O command, data and all.
    pub(super) fn execute(&mut self, qid: u16, sqe: &Sqe) -> Executed {
        self.errors.wrong = Wrong::default();
        self.try_execute(qid, sqe).unwrap_or_else(|status| {
            self.note_error(qid, sqe, status);
            Executed::free(status)
        })
    }

    fn try_execute(&mut self, qid: u16, sqe: &Sqe) -> Result<Executed, Status> {
        let cid = sqe.cid();
        self.check_cdw0(qid, sqe)?;
        let Ok(opcode) = IoOpcode::try_from(sqe.opcode()) else {
            return Err(self.refuse(
                qid,
                cid,
                StatusCode::InvalidCommandOpcode,
                "unknown I/O opcode",
            ));
        };
        if opcode == IoOpcode::Flush {
            return self.flush(qid, sqe);
        }
        let Some(&namespace) = self.store.namespace(sqe.nsid.get()) else {
            return Err(self.refuse(
                qid,
                cid,
                StatusCode::InvalidNamespaceOrFormat,
                "no such namespace",
            ));
        };
        if self.store.write_protected() && changes_blocks(opcode, sqe) {
            let reason = "the namespace is write protected: its medium was opened for reading only";
            return Err(self.refuse(qid, cid, StatusCode::NamespaceIsWriteProtected, reason));
        }
        match opcode {
            IoOpcode::Read => {
                let extent = self.extent(qid, sqe, &namespace, true)?;
                self.gather(qid, sqe, extent.len)?;
                self.readable(qid, sqe, &namespace, extent)?;
                self.force_unit_access(qid, sqe)?;
                self.transfer(extent.offset);
                self.counters.reads.add(1);
                self.counters.read_bytes.add(extent.len);
                Ok(Executed::done(Work::Read, extent, sqe, true))
            }
            IoOpcode::Write => {
                let extent = self.extent(qid, sqe, &namespace, true)?;
                self.gather(qid, sqe, extent.len)?;
                let (segments, host) = (&self.segments, &self.host);
                let stored = self.store.write(extent, sqe.fua(), |medium| {
                    let mut at = extent.offset;
                    for segment in segments {
                        if let Some(slice) = host.resolve(*segment) {
                            slice.store_to_medium(medium.span(at, segment.len()));
                        }
                        at += segment.len() as u64;
                    }
                });
                self.counters.writes.add(1);
                self.counters.written_bytes.add(extent.len);
                self.stored(qid, cid, stored)?;
                let recorded = self.record(&[extent], sqe.fua());
                Ok(Executed { recorded, ..Executed::done(Work::Write, extent, sqe, true) })
            }
            IoOpcode::Compare => {
                let extent = self.extent(qid, sqe, &namespace, true)?;
                self.gather(qid, sqe, extent.len)?;
                self.readable(qid, sqe, &namespace, extent)?;
                self.force_unit_access(qid, sqe)?;
                self.counters.other_io.add(1);
                if let Err(at) = self.equal(extent.offset) {
                    // Not the host's fault, hence not a refusal.
                    self.at_lba(sqe.slba() + (at >> namespace.lba_shift));
                    return Err(Status::from_code(StatusCode::CompareFailure).with_dnr());
                }
                Ok(Executed::done(Work::Read, extent, sqe, true))
            }
            IoOpcode::Verify => {
                let extent = self.extent(qid, sqe, &namespace, false)?;
                self.readable(qid, sqe, &namespace, extent)?;
                self.force_unit_access(qid, sqe)?;
                self.counters.other_io.add(1);
                Ok(Executed::done(Work::Read, extent, sqe, false))
            }
            IoOpcode::WriteZeroes => {
                let extent = self.extent(qid, sqe, &namespace, false)?;
                let stored = self.store.zero(extent, sqe.fua());
                self.counters.other_io.add(1);
                self.stored(qid, cid, stored)?;
                let recorded = self.record(&[extent], sqe.fua());
                Ok(Executed { recorded, ..Executed::done(Work::Trim, extent, sqe, false) })
            }
            IoOpcode::WriteUncorrectable => {
                let extent = self.extent(qid, sqe, &namespace, false)?;
                self.store.mark_uncorrectable(extent);
                self.counters.other_io.add(1);
                self.choose_path();
                Ok(Executed::done(Work::Trim, extent, sqe, false))
            }
            IoOpcode::DatasetManagement => self.dataset_management(qid, sqe, &namespace),
            _ => {
                let reason = "I/O command that Identify Controller does not offer";
                Err(self.refuse(qid, cid, StatusCode::InvalidCommandOpcode, reason))
            }
        }
    }

    /// What holds for CDW0 of every command: SGLs only for I/O commands, and none for metadata (1.4
    /// §4.2); half a fused operation is none.
    pub(super) fn check_cdw0(&mut self, qid: u16, sqe: &Sqe) -> Result<(), Status> {
        if qid != 0 && matches!(sqe.fuse(), fuse::FIRST | fuse::SECOND) {
            let reason = "one command of a fused operation, without the other next to it";
            let missing = StatusCode::CommandAbortedMissingFused;
            return Err(self.at(1, 0).refuse(qid, sqe.cid(), missing, reason));
        }
        let (bit, reason) = if sqe.fuse() != fuse::NONE {
            (0, "fused operation of admin commands, or FUSE with a reserved value")
        } else if sqe.psdt() == psdt::PRP || (sqe.psdt() == psdt::SGL && qid != 0) {
            return Ok(());
        } else if qid == 0 {
            (6, "SGL in an admin command")
        } else {
            (6, "PSDT: an SGL for metadata, though SGLS does not offer it, or a reserved value")
        };
        Err(self.at(1, bit).refuse(qid, sqe.cid(), StatusCode::InvalidFieldInCommand, reason))
    }

    /// The blocks of a command, checked against the namespace and, if it transfers them, against
    /// MDTS.
    fn extent(
        &mut self,
        qid: u16,
        sqe: &Sqe,
        ns: &Namespace,
        transfers: bool,
    ) -> Result<Extent, Status> {
        let len = u64::from(sqe.nlb()) << ns.lba_shift;
        let mdts = u64::from(self.config.mdts_bytes);
        if transfers && mdts != 0 && len > mdts {
            let code = StatusCode::InvalidFieldInCommand;
            return Err(self.at(48, 0).refuse(qid, sqe.cid(), code, "transfer beyond MDTS"));
        }
        match ns.locate(sqe.slba(), u64::from(sqe.nlb())) {
            Some(offset) => Ok(Extent { offset, len, block_bytes: ns.block_bytes() }),
            None => Err(self.refuse(
                qid,
                sqe.cid(),
                StatusCode::LbaOutOfRange,
                "blocks beyond the namespace's end",
            )),
        }
    }

    /// Whether all of `extent` can be read.
    fn readable(
        &mut self,
        qid: u16,
        sqe: &Sqe,
        ns: &Namespace,
        extent: Extent,
    ) -> Result<(), Status> {
        let Some(at) = self.store.first_uncorrectable(extent) else { return Ok(()) };
        // Caused by the host, but no broken rule, hence not a refusal.
        let lba = sqe.slba() + ((at - extent.offset) >> ns.lba_shift);
        tracing::debug!(
            qid,
            cid = sqe.cid(),
            lba,
            "read of a block that was marked by Write Uncorrectable"
        );
        self.at_lba(lba);
        self.counters.media_errors.add(1);
        Err(Status::from_code(StatusCode::UnrecoveredReadError).with_dnr())
    }

    /// Finds the memory of a command's data, into `segments`.
    pub(super) fn gather(&mut self, qid: u16, sqe: &Sqe, len: u64) -> Result<(), Status> {
        if sqe.psdt() != psdt::PRP {
            return self.gather_sgl(qid, sqe, len);
        }
        let gathered =
            prp::gather(&self.host, sqe.prp1.get(), sqe.prp2.get(), len, &mut self.segments);
        gathered.map_err(|error| match error {
            PrpError::Offset => self.refuse(
                qid,
                sqe.cid(),
                StatusCode::PrpOffsetInvalid,
                "PRP entry with a bad offset",
            ),
            PrpError::Missing => {
                let reason = "PRP entry zero where one is needed";
                self.at(32, 0).refuse(qid, sqe.cid(), StatusCode::InvalidFieldInCommand, reason)
            }
            PrpError::Unmapped(iova) => {
                self.not_mapped(qid, sqe, iova, "PRP entry to memory that is not mapped")
            }
        })
    }

    fn gather_sgl(&mut self, qid: u16, sqe: &Sqe, len: u64) -> Result<(), Status> {
        let is_read = DataTransfer::of(sqe.opcode()) == DataTransfer::ControllerToHost;
        let gathered = sgl::gather(&self.host, sqe.sgl1(), len, is_read, &mut self.segments);
        gathered.map_err(|error| match error {
            SglError::Rule(code, reason) => self.refuse(qid, sqe.cid(), code, reason),
            SglError::Unmapped(iova) => {
                self.not_mapped(qid, sqe, iova, "SGL descriptor to memory that is not mapped")
            }
        })
    }

    fn not_mapped(&mut self, qid: u16, sqe: &Sqe, iova: u64, reason: &'static str) -> Status {
        if self.host.is_controller_memory(iova) {
            let reason =
                "data or lists in the controller memory buffer, which is for submission queues";
            return self.refuse(
                qid,
                sqe.cid(),
                StatusCode::InvalidUseOfControllerMemoryBuffer,
                reason,
            );
        }
        self.counters.dma_errors.add(1);
        tracing::debug!(iova, "transfer to memory that is not mapped");
        self.refuse(qid, sqe.cid(), StatusCode::DataTransferError, reason)
    }

    /// Copies from the medium at `offset` to `segments`.
    pub(super) fn transfer(&self, offset: u64) {
        let mut at = offset;
        for segment in &self.segments {
            if let Some(slice) = self.host.resolve(*segment) {
                slice.fill_from_medium(self.store.span(at, segment.len()));
            }
            at += segment.len() as u64;
        }
    }

    /// Whether `segments` hold what the medium does at `offset`; else how many bytes of it.
    fn equal(&self, offset: u64) -> Result<(), u64> {
        let mut at = offset;
        let (mut host, mut medium) = ([0; PAGE_BYTES as usize], [0; PAGE_BYTES as usize]);
        for segment in &self.segments {
            for part in segment.parts(PAGE_BYTES as u32) {
                let len = part.len();
                let Some(slice) = self.host.resolve(part) else { return Err(at - offset) };
                slice.read(&mut host[..len]);
                self.store.span(at, len).read(&mut medium[..len]);
                let same =
                    host[..len].iter().zip(&medium[..len]).take_while(|(a, b)| a == b).count();
                if same < len {
                    return Err(at - offset + same as u64);
                }
                at += len as u64;
            }
        }
        Ok(())
    }

    /// Copies `segments` to `data`, which is as long.
    pub(super) fn collect(&self, data: &mut [u8]) {
        let mut rest = data;
        for segment in &self.segments {
            let (now, later) = rest.split_at_mut(segment.len().min(rest.len()));
            if let Some(slice) = self.host.resolve(*segment).filter(|_| now.len() == segment.len())
            {
                slice.read(now);
            }
            rest = later;
        }
    }

    /// Copies `data` to `segments`, which are as long.
    pub(super) fn scatter(&self, data: &[u8]) {
        let mut rest = data;
        for segment in &self.segments {
            let (now, later) = rest.split_at(segment.len().min(rest.len()));
            if let Some(slice) = self.host.resolve(*segment) {
                slice.write(now);
            }
            rest = later;
        }
    }

    /// Records that `extents` were written just now, if there is a record.
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

    /// Records a write that is answered with an error: the medium does not have it, but after a
    /// power cut it may.
    fn record_failing(&mut self, qid: u16, sqe: &Sqe) -> Option<Recorded> {
        self.recorder.as_ref()?;
        if IoOpcode::try_from(sqe.opcode()) != Ok(IoOpcode::Write) {
            return None;
        }
        let namespace = *self.store.namespace(sqe.nsid.get())?;
        let len = u64::from(sqe.nlb()) << namespace.lba_shift;
        let offset = namespace.locate(sqe.slba(), u64::from(sqe.nlb()))?;
        self.gather(qid, sqe, len).ok()?;
        let mut data = vec![0; len as usize];
        self.collect(&mut data);
        let number = self.recorder.as_ref()?.write(offset, data.into(), sqe.fua());
        Some(Recorded::Writes(number, 1))
    }

    /// A command that was recorded is complete.
    pub(super) fn record_done(&mut self, command: &Command) {
        let Some((recorder, recorded)) = self.recorder.clone().zip(command.recorded) else {
            return;
        };
        if !command.status.is_success() {
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

    /// A medium that failed is a write fault.
    fn stored(&mut self, qid: u16, cid: u16, stored: bool) -> Result<(), Status> {
        if stored {
            return Ok(());
        }
        tracing::warn!(qid, cid, "the medium's file could not be written back");
        Err(Status::from_code(StatusCode::WriteFault))
    }

    /// With FUA, what is read or compared has to be on the medium (1.4 §6.9).
    fn force_unit_access(&mut self, qid: u16, sqe: &Sqe) -> Result<(), Status> {
        let stored = !sqe.fua() || self.store.flush_for_read();
        self.stored(qid, sqe.cid(), stored)
    }

    fn flush(&mut self, qid: u16, sqe: &Sqe) -> Result<Executed, Status> {
        let nsid = sqe.nsid.get();
        if nsid != NSID_BROADCAST && self.store.namespace(nsid).is_none() {
            return Err(self.refuse(
                qid,
                sqe.cid(),
                StatusCode::InvalidNamespaceOrFormat,
                "no such namespace",
            ));
        }
        let stored = self.store.flush();
        self.counters.flushes.add(1);
        self.stored(qid, sqe.cid(), stored)?;
        let recorded = self.recorder.as_ref().map(Recorder::flush);
        Ok(Executed { work: Work::Flush, recorded, ..Executed::free(Outcome::OK) })
    }

    fn dataset_management(
        &mut self,
        qid: u16,
        sqe: &Sqe,
        ns: &Namespace,
    ) -> Result<Executed, Status> {
        const RANGE_BYTES: usize = size_of::<DsmRange>();
        let count = sqe.nr() as usize;
        self.gather(qid, sqe, (count * RANGE_BYTES) as u64)?;
        let mut data = [0; 256 * RANGE_BYTES];
        self.collect(&mut data[..count * RANGE_BYTES]);
        let ranges = data[..count * RANGE_BYTES].chunks_exact(RANGE_BYTES);
        let ranges = ranges.filter_map(|bytes| DsmRange::read_from_bytes(bytes).ok());
        // All are checked before the first is touched.
        for range in ranges.clone() {
            if ns.locate(range.slba.get(), u64::from(range.length.get())).is_none() {
                self.at_lba(range.slba.get());
                let reason = "range beyond the namespace";
                // The data is invalid: report the data pointer, not a field of the entry.
                return Err(self.at(24, 0).refuse(
                    qid,
                    sqe.cid(),
                    StatusCode::LbaOutOfRange,
                    reason,
                ));
            }
        }
        let mut first = 0;
        let mut bytes = 0;
        let mut zeroed = Vec::new();
        if sqe.cdw11.get() & DSM_AD != 0 {
            for range in ranges {
                let blocks = u64::from(range.length.get());
                let Some(offset) = ns.locate(range.slba.get(), blocks).filter(|_| blocks > 0)
                else {
                    continue;
                };
                let extent =
                    Extent { offset, len: blocks << ns.lba_shift, block_bytes: ns.block_bytes() };
                let stored = self.store.zero(extent, false);
                self.stored(qid, sqe.cid(), stored)?;
                if bytes == 0 {
                    first = offset;
                }
                bytes += extent.len;
                zeroed.push(extent);
            }
        }
        self.counters.other_io.add(1);
        // Without the deallocate attribute the command is advice, and costs nothing.
        let work = if bytes == 0 { Work::None } else { Work::Trim };
        let prps = Some(data_pointers(sqe));
        let recorded = self.record(&zeroed, false);
        Ok(Executed { outcome: Outcome::OK, work, offset: first, bytes, prps, recorded })
    }

    /// Executes a command of `sqs[index]` fetched at `seen_ns`, unless it is `ended` already, and
    /// completes it when its time has come. Returns the result; `None` if a fault has removed the
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
                Executed { recorded: self.record_failing(qid, sqe), ..Executed::free(status) }
            }
            None => self.execute(qid, sqe),
        };
        if !verdict.is_none() {
            self.spoil(&verdict, sqe, &executed);
        }
        self.take_in(index, cid);
        if verdict.lose {
            self.lose(index);
            return Some(executed.outcome.status);
        }
        // First, the time to leave a power state.
        let awake_ns = self.power.awake_at_ns(seen_ns, !self.pending.is_empty());
        let slot = self.service.occupy(executed.work, executed.offset, executed.bytes, awake_ns);
        let mut due_ns = slot.done_ns;
        if verdict.late_by_ns > 0 {
            self.counters.injected_late.add(1);
            due_ns = due_ns.saturating_add(verdict.late_by_ns);
        }
        let Outcome { status, dw0 } = executed.outcome;
        let command = Command {
            qid,
            cid,
            nsid: sqe.nsid.get(),
            dw0,
            status,
            seen_ns,
            begun_ns: slot.begun_ns,
            prps: executed.prps,
            recorded: executed.recorded,
            marks: Marks::of_io(&verdict, sqe, &executed),
        };
        if due_ns <= seen_ns {
            // Executing it took time, which a stamp must include.
            let now_ns = if self.stamps.is_some() { clock.now_ns() } else { seen_ns };
            self.finish(command, now_ns);
        } else {
            self.pending.push(due_ns, command);
            self.timed = true;
        }
        Some(status)
    }
}

/// Whether the command would change what is stored.
fn changes_blocks(opcode: IoOpcode, sqe: &Sqe) -> bool {
    match opcode {
        IoOpcode::Write | IoOpcode::WriteZeroes | IoOpcode::WriteUncorrectable => true,
        // Without the deallocate attribute it is advice.
        IoOpcode::DatasetManagement => sqe.cdw11.get() & DSM_AD != 0,
        _ => false,
    }
}

impl Segment {
    /// The segment in pieces of at most `max` bytes.
    fn parts(self, max: u32) -> impl Iterator<Item = Self> {
        (0..self.len())
            .step_by(max as usize)
            .map(move |at| self.part(at as u64, max.min((self.len() - at) as u32)))
    }
}
