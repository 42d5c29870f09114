//! Validated Identify data: no other code uses the device's structures directly.

use meantime_nvme_spec::identify::{
    IdentifyController, IdentifyNamespace, PowerStateDescriptor, apsta, controller_type, fuses,
    lpa, nsfeat, oncs, power_flags,
};
use meantime_nvme_spec::regs::{Cap, Vs};

use super::error::{Error, Result};

/// The properties of a controller that the driver and its users need.
#[derive(Debug, Clone)]
pub struct ControllerInfo {
    /// PCI vendor.
    pub vendor_id: u16,
    /// Serial number, without padding.
    pub serial: String,
    /// Model number, without padding.
    pub model: String,
    /// Firmware revision, without padding.
    pub firmware: String,
    /// Version of the specification.
    pub version: Vs,
    /// Controller capabilities; `None` if another driver has the registers.
    pub cap: Option<Cap>,
    /// The most data per command in bytes.
    pub max_transfer_bytes: u32,
    /// Namespaces that can exist.
    pub namespace_count: u32,
    /// Whether a volatile write cache is present (VWC bit 0).
    pub volatile_write_cache: bool,
    /// Optional NVM commands supported (ONCS).
    pub oncs: u16,
    /// Optional admin commands supported (OACS).
    pub oacs: u16,
    /// The most event requests that the controller keeps.
    pub event_requests: u16,
    /// Command Retry Delay Times 1 to 3, in units of 100 ms.
    pub crdt: [u16; 3],
    /// Whether the device can leave power state 0 by itself (APSTA).
    pub apst: bool,
    /// The power states, 0 first.
    pub power_states: Vec<PowerState>,
    /// Number of entries in the error log.
    pub error_log_entries: u16,
    /// Whether the commands supported and effects log exists.
    pub has_commands_log: bool,
    /// SGL support (SGLS).
    pub sgls: u32,
    /// Atomic Compare & Write Unit, 0's based, if Compare and Write can be fused (FUSES).
    pub compare_write_unit: Option<u16>,
    /// I/O queue pairs granted.
    pub io_queues: u16,
    /// Interrupt vectors.
    pub vectors: u16,
}

impl ControllerInfo {
    /// Validates `raw` against the driver's requirements. The driver has commands of at most
    /// `max_bytes` of data.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] or [`Error::Unsupported`], naming the field.
    pub(crate) fn validate(
        raw: &IdentifyController,
        cap: Option<Cap>,
        version: Vs,
        max_bytes: u64,
    ) -> Result<Self> {
        let invalid = |what: String| Error::Invalid { structure: "Identify Controller data", what };
        // Before 1.4 the field is reserved, and 0.
        if raw.cntrltype == controller_type::DISCOVERY {
            let what = "it is a discovery controller, which has no namespaces: `meantime discover` \
                        lists the subsystems that it knows; open one of those";
            return Err(Error::Unsupported(what.into()));
        }
        // SQES and CQES: the lower half is the required entry size as a power of two (1.4
        // §5.15.2.1).
        if raw.sqes & 0xf != 6 || raw.cqes & 0xf != 4 {
            return Err(invalid(format!(
                "SQES {:#x}, CQES {:#x} where 6 and 4 are required",
                raw.sqes, raw.cqes
            )));
        }
        let nn = raw.nn.get();
        if nn == 0 {
            return Err(invalid("NN is 0: no namespace can exist".into()));
        }
        // MDTS is in units of the minimum page size; 0 means no limit (1.4 §5.15.2.1).
        let unit_shift = 12 + cap.map_or(0, |cap| u32::from(cap.mpsmin()));
        let by_controller = match raw.mdts {
            0 => u64::MAX,
            mdts => 1u64.checked_shl(unit_shift + u32::from(mdts)).unwrap_or(u64::MAX),
        };
        Ok(Self {
            vendor_id: raw.vid.get(),
            serial: ascii(&raw.sn),
            model: ascii(&raw.mn),
            firmware: ascii(&raw.fr),
            version,
            cap,
            max_transfer_bytes: by_controller.min(max_bytes).min(u32::MAX.into()) as u32,
            namespace_count: nn,
            volatile_write_cache: raw.vwc & 1 != 0,
            oncs: raw.oncs.get(),
            oacs: raw.oacs.get(),
            event_requests: u16::from(raw.aerl) + 1,
            crdt: [raw.crdt1.get(), raw.crdt2.get(), raw.crdt3.get()],
            apst: raw.apsta & apsta::SUPPORTED != 0,
            power_states: raw.power_states().map(PowerState::of).collect(),
            error_log_entries: u16::from(raw.elpe) + 1,
            has_commands_log: raw.lpa & lpa::COMMANDS_SUPPORTED != 0,
            sgls: raw.sgls.get(),
            compare_write_unit: (raw.fuses.get() & fuses::COMPARE_AND_WRITE != 0
                && raw.oncs.get() & oncs::COMPARE != 0)
                .then(|| raw.acwu.get()),
            io_queues: 0,
            vectors: 0,
        })
    }
}

/// A power state (1.4 §5.15.2.2, figure "Power State Descriptor").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerState {
    /// Maximum power, in units of 100 µW; 0: unknown.
    pub max_power_100uw: u32,
    /// Maximum entry latency, in µs.
    pub entry_us: u32,
    /// Maximum exit latency, in µs.
    pub exit_us: u32,
    /// Whether I/O is processed in it.
    pub operational: bool,
}

impl PowerState {
    fn of(raw: &PowerStateDescriptor) -> Self {
        // In units of 0.01 W unless MXPS says 0.0001 W.
        let scale = if raw.flags & power_flags::MXPS != 0 { 1 } else { 100 };
        Self {
            max_power_100uw: u32::from(raw.mp.get()) * scale,
            entry_us: raw.enlat.get(),
            exit_us: raw.exlat.get(),
            operational: raw.flags & power_flags::NOPS == 0,
        }
    }
}

/// A namespace that the driver can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace identifier.
    pub nsid: u32,
    /// The first logical block of the range that is in use: 0 unless it is a
    /// [part](Self::part_of) of the namespace. Addresses of commands count from block 0.
    pub first_lba: u64,
    /// Size in logical blocks.
    pub blocks: u64,
    /// log2 of the logical block size in bytes: 9 or 12.
    pub block_shift: u8,
    /// The most logical blocks per command.
    pub max_blocks: u32,
    /// I/O should not cross a multiple of this many blocks; 0 if there is no such boundary.
    pub optimal_boundary_blocks: u32,
    /// Capacity in use, in logical blocks.
    pub used_blocks: u64,
    /// The most logical blocks of a fused Compare and Write; 0 if unsupported.
    pub compare_write_blocks: u32,
}

impl NamespaceInfo {
    /// Checks `raw`; the error says why the namespace cannot be used.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the structure contradicts itself, [`Error::Unsupported`] for
    /// an unsupported format.
    pub(crate) fn validate(
        nsid: u32,
        raw: &IdentifyNamespace,
        controller: &ControllerInfo,
    ) -> Result<Self> {
        let max_transfer_bytes = controller.max_transfer_bytes;
        let invalid = |what: String| Error::Invalid { structure: "Identify Namespace data", what };
        let unsupported = |what: String| Error::Unsupported(format!("namespace {nsid} {what}"));
        let format = raw.lba_format_in_use().ok_or_else(|| {
            invalid(format!("FLBAS {:#x} names a format beyond NLBAF {}", raw.flbas, raw.nlbaf))
        })?;
        let (shift, metadata) = (format.lbads, format.ms.get());
        if metadata != 0 {
            return Err(unsupported(format!(
                "is formatted with {metadata} bytes of metadata a block"
            )));
        }
        if shift != 9 && shift != 12 {
            return Err(unsupported(format!(
                "has blocks of 2^{shift} bytes; 512 and 4096 are supported"
            )));
        }
        let blocks = raw.nsze.get();
        if blocks == 0 || blocks > u64::MAX >> shift {
            return Err(invalid(format!("NSZE is {blocks}")));
        }
        // NLB is 16 bits, 0's based.
        let max_blocks = (max_transfer_bytes >> shift).min(1 << 16);
        if max_blocks == 0 {
            return Err(invalid(format!(
                "MDTS of {max_transfer_bytes} bytes is less than a block"
            )));
        }
        Ok(Self {
            nsid,
            first_lba: 0,
            blocks,
            block_shift: shift,
            max_blocks,
            optimal_boundary_blocks: u32::from(raw.noiob.get()),
            used_blocks: raw.nuse.get(),
            compare_write_blocks: compare_write_blocks(raw, controller).min(max_blocks),
        })
    }

    /// The `blocks` from `first_lba` on, as a namespace of that size; `None` if they are not all
    /// within it. Limits and boundaries of commands stay the namespace's own.
    pub fn part_of(&self, first_lba: u64, blocks: u64) -> Option<Self> {
        let is_within = first_lba <= self.blocks && blocks <= self.blocks - first_lba;
        (is_within && blocks > 0).then(|| Self {
            first_lba: self.first_lba + first_lba,
            blocks,
            ..*self
        })
    }

    /// Logical block size in bytes.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// The number of the `left` blocks from `slba` on that the next command may cover: at most the
    /// device's limit, and not across its preferred boundary (NOIOB). `has_data` is false for
    /// commands that MDTS does not limit.
    #[inline(always)]
    pub fn next_span(&self, slba: u64, left: u64, has_data: bool) -> u32 {
        let most = if has_data { self.max_blocks } else { 1 << 16 };
        let mut span = left.min(u64::from(most)) as u32;
        if self.optimal_boundary_blocks != 0 && has_data {
            let boundary = u64::from(self.optimal_boundary_blocks);
            span = span.min((boundary - slba % boundary) as u32);
        }
        span
    }
}

/// The number of blocks compared and written atomically: ACWU, or NACWU if the namespace has its
/// own values (1.4 §6.4). One block if atomic writes have boundaries, which a pair might cross.
fn compare_write_blocks(raw: &IdentifyNamespace, controller: &ControllerInfo) -> u32 {
    let Some(acwu) = controller.compare_write_unit else { return 0 };
    if raw.nsfeat & nsfeat::ATOMICITY == 0 {
        return u32::from(acwu) + 1;
    }
    let bounded = raw.nabsn.get() != 0 || raw.nabspf.get() != 0;
    if bounded { 1 } else { u32::from(raw.nacwu.get().max(acwu)) + 1 }
}

/// Printable ASCII without trailing blanks; anything else becomes `?`.
fn ascii(field: &[u8]) -> String {
    let text: String = field
        .iter()
        .map(|&b| if b == b' ' || b.is_ascii_graphic() { char::from(b) } else { '?' })
        .collect();
    text.trim_end_matches([' ', '?']).trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: NamespaceInfo = NamespaceInfo {
        nsid: 1,
        first_lba: 0,
        blocks: 1 << 20,
        block_shift: 9,
        max_blocks: 256,
        optimal_boundary_blocks: 0,
        used_blocks: 0,
        compare_write_blocks: 0,
    };

    #[test]
    fn spans_stop_at_mdts() {
        assert_eq!(NS.next_span(7, 8, true), 8);
        assert_eq!(NS.next_span(7, 1000, true), 256);
        assert_eq!(NS.next_span(7, 1 << 40, false), 65536);
    }

    #[test]
    fn spans_stop_at_the_boundary() {
        let ns = NamespaceInfo { optimal_boundary_blocks: 64, ..NS };
        assert_eq!(ns.next_span(0, 1000, true), 64);
        assert_eq!(ns.next_span(63, 1000, true), 1);
        assert_eq!(ns.next_span(60, 2, true), 2);
    }

    #[test]
    fn a_part_is_within_its_namespace() {
        let part = NS.part_of(100, 50).unwrap();
        assert_eq!((part.first_lba, part.blocks), (100, 50));
        let inner = part.part_of(49, 1).unwrap();
        assert_eq!((inner.first_lba, inner.blocks), (149, 1));
        for (first, blocks) in [(0, 0), (50, 1), (49, 2), (0, 51), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(part.part_of(first, blocks), None, "{first} {blocks}");
        }
    }

    #[test]
    fn text_fields_are_made_printable() {
        assert_eq!(ascii(b"  MT-1\x07x   "), "MT-1?x");
        assert_eq!(ascii(&[0; 8]), "");
    }
}
