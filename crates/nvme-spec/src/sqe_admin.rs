//! Admin commands (1.4 §5, 2.0 §5): constructors, and the fields of their command dwords.

use zerocopy::little_endian::U32;

use crate::opcode::admin;
use crate::sqe::Sqe;

/// Create I/O Completion and Submission Queue, CDW11: Physically Contiguous.
const PC: u32 = 1 << 0;
/// Create I/O Completion Queue, CDW11: Interrupts Enabled.
const IEN: u32 = 1 << 1;
/// Get Log Page, CDW10: Retain Asynchronous Event.
const RAE: u32 = 1 << 15;
/// Set Features, CDW10: Save.
const SV: u32 = 1 << 31;

/// QPRIO of Create I/O Submission Queue, its class under weighted round robin with urgent (1.4
/// §5.4).
pub mod qprio {
    /// Urgent: before every other class.
    pub const URGENT: u8 = 0;
    /// High.
    pub const HIGH: u8 = 1;
    /// Medium.
    pub const MEDIUM: u8 = 2;
    /// Low.
    pub const LOW: u8 = 3;
}

/// Two 16-bit fields of one dword.
const fn halves(high: u16, low: u16) -> u32 {
    (high as u32) << 16 | low as u32
}

/// QSIZE (0's based) and QID.
const fn queue(qid: u16, entries: u32) -> u32 {
    assert!(entries >= 2 && entries <= 0x1_0000, "queue size out of range");
    halves((entries - 1) as u16, qid)
}

impl Sqe {
    const fn admin(opcode: u8, cid: u16, nsid: u32, cdw10: u32, cdw11: u32) -> Self {
        let mut sqe = Self::new(opcode, cid, nsid);
        sqe.cdw10 = U32::new(cdw10);
        sqe.cdw11 = U32::new(cdw11);
        sqe
    }

    /// Identify (1.4 §5.15): 4096 bytes of the structure `cns`, one of
    /// [`identify::cns`](crate::identify::cns).
    #[must_use]
    pub const fn identify(cid: u16, nsid: u32, cns: u8, cntid: u16, prp1: u64, prp2: u64) -> Self {
        Self::admin(admin::IDENTIFY, cid, nsid, halves(cntid, cns as u16), 0).with_prps(prp1, prp2)
    }

    /// Create I/O Completion Queue (1.4 §5.3), physically contiguous; interrupts on if there is a
    /// `vector`.
    #[must_use]
    pub const fn create_io_cq(
        cid: u16,
        qid: u16,
        entries: u32,
        prp1: u64,
        vector: Option<u16>,
    ) -> Self {
        let cdw11 = match vector {
            Some(vector) => halves(vector, 0) | IEN | PC,
            None => PC,
        };
        Self::admin(admin::CREATE_IO_CQ, cid, 0, queue(qid, entries), cdw11).with_prps(prp1, 0)
    }

    /// Create I/O Submission Queue (1.4 §5.4), physically contiguous. `qprio` (0 urgent to 3 low)
    /// counts only under weighted round robin arbitration.
    #[must_use]
    pub const fn create_io_sq(
        cid: u16,
        qid: u16,
        entries: u32,
        prp1: u64,
        cqid: u16,
        qprio: u8,
    ) -> Self {
        assert!(qprio <= 3, "queue priority out of range");
        let cdw11 = halves(cqid, (qprio as u16) << 1) | PC;
        Self::admin(admin::CREATE_IO_SQ, cid, 0, queue(qid, entries), cdw11).with_prps(prp1, 0)
    }

    /// Delete I/O Submission Queue (1.4 §5.6).
    #[must_use]
    pub const fn delete_io_sq(cid: u16, qid: u16) -> Self {
        Self::admin(admin::DELETE_IO_SQ, cid, 0, qid as u32, 0)
    }

    /// Delete I/O Completion Queue (1.4 §5.5); its submission queues must be gone before.
    #[must_use]
    pub const fn delete_io_cq(cid: u16, qid: u16) -> Self {
        Self::admin(admin::DELETE_IO_CQ, cid, 0, qid as u32, 0)
    }

    /// Get Features (1.4 §5.13); `sel`: 0 current, 1 default, 2 saved, 3 supported capabilities.
    #[must_use]
    pub const fn get_features(cid: u16, nsid: u32, fid: u8, sel: u8, cdw11: u32) -> Self {
        assert!(sel <= 7, "select out of range");
        Self::admin(admin::GET_FEATURES, cid, nsid, (sel as u32) << 8 | fid as u32, cdw11)
    }

    /// Set Features (1.4 §5.21); `save` makes the value survive power cycles and resets.
    #[must_use]
    pub const fn set_features(cid: u16, nsid: u32, fid: u8, save: bool, cdw11: u32) -> Self {
        let cdw10 = if save { SV } else { 0 } | fid as u32;
        Self::admin(admin::SET_FEATURES, cid, nsid, cdw10, cdw11)
    }

    /// Get Log Page (1.4 §5.14): `numd_dwords` dwords (from 1, on the wire 0's based) at byte
    /// `offset`.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "the command has as many fields")]
    pub const fn get_log_page(
        cid: u16,
        nsid: u32,
        lid: u8,
        lsp: u8,
        rae: bool,
        numd_dwords: u32,
        offset: u64,
        prp1: u64,
        prp2: u64,
    ) -> Self {
        assert!(lsp <= 0x7f, "log specific field out of range");
        assert!(numd_dwords >= 1, "a log page transfer of no dwords");
        let numd = numd_dwords - 1;
        let cdw10 = numd << 16 | if rae { RAE } else { 0 } | (lsp as u32) << 8 | lid as u32;
        let mut sqe =
            Self::admin(admin::GET_LOG_PAGE, cid, nsid, cdw10, numd >> 16).with_prps(prp1, prp2);
        sqe.cdw12 = U32::new(offset as u32);
        sqe.cdw13 = U32::new((offset >> 32) as u32);
        sqe
    }

    /// Abort (1.4 §5.1) the command `victim_cid` of submission queue `sqid`.
    #[must_use]
    pub const fn abort(cid: u16, sqid: u16, victim_cid: u16) -> Self {
        Self::admin(admin::ABORT, cid, 0, halves(victim_cid, sqid), 0)
    }

    /// Asynchronous Event Request (1.4 §5.2); completes when there is an event.
    #[must_use]
    pub const fn async_event_request(cid: u16) -> Self {
        Self::new(admin::ASYNC_EVENT_REQUEST, cid, 0)
    }

    /// Doorbell Buffer Config (1.4 §5.7): the pages of shadow doorbells (`prp1`) and event indices
    /// (`prp2`).
    #[must_use]
    pub const fn doorbell_buffer_config(cid: u16, prp1: u64, prp2: u64) -> Self {
        Self::new(admin::DOORBELL_BUFFER_CONFIG, cid, 0).with_prps(prp1, prp2)
    }

    /// Keep Alive (1.4 §5.16).
    #[must_use]
    pub const fn keep_alive(cid: u16) -> Self {
        Self::new(admin::KEEP_ALIVE, cid, 0)
    }

    /// Queue Size of a command that creates a queue (CDW10 31:16), in entries, counted from 1.
    #[must_use]
    pub const fn queue_entries(&self) -> u32 {
        (self.cdw10.get() >> 16) + 1
    }

    /// Number of Dwords of Get Log Page (NUMDL and NUMDU), counted from 1.
    #[must_use]
    pub const fn numd_dwords(&self) -> u64 {
        (self.cdw10.get() >> 16 | self.cdw11.get() << 16) as u64 + 1
    }

    /// Log Page Offset of Get Log Page (CDW12, CDW13), in bytes.
    #[must_use]
    pub const fn log_page_offset(&self) -> u64 {
        self.cdw12.get() as u64 | (self.cdw13.get() as u64) << 32
    }
}

command_fields! {
    /// Queue Identifier of a command that creates or deletes a queue.
    cdw10 [15:0] qid: u16,
    /// Physically Contiguous, of a command that creates a queue.
    cdw11 [0] pc: bool,
    /// Interrupts Enabled, of Create I/O Completion Queue.
    cdw11 [1] ien: bool,
    /// Interrupt Vector of Create I/O Completion Queue.
    cdw11 [31:16] iv: u16,
    /// Completion Queue Identifier of Create I/O Submission Queue.
    cdw11 [31:16] cqid: u16,
    /// Queue Priority of Create I/O Submission Queue.
    cdw11 [2:1] qprio: u8,
    /// Command Set Identifier of Identify (2.0).
    cdw11 [31:24] csi: u8,
    /// Controller or Namespace Structure of Identify.
    cdw10 [7:0] cns: u8,
    /// Controller Identifier of Identify.
    cdw10 [31:16] cntid: u16,
    /// Feature Identifier of Get and Set Features.
    cdw10 [7:0] fid: u8,
    /// Select of Get Features.
    cdw10 [10:8] sel: u8,
    /// Save of Set Features.
    cdw10 [31] sv: bool,
    /// Log Page Identifier of Get Log Page.
    cdw10 [7:0] lid: u8,
    /// Log Specific Field of Get Log Page (11:8 in 1.4).
    cdw10 [14:8] lsp: u8,
    /// Retain Asynchronous Event of Get Log Page.
    cdw10 [15] rae: bool,
    /// Submission Queue Identifier of Abort.
    cdw10 [15:0] abort_sqid: u16,
    /// Command Identifier of the command to abort, of Abort.
    cdw10 [31:16] abort_cid: u16,
}
