//! Identify Controller and Identify Namespace against the specification's rules.

use meantime_nvme::AdminQueries as _;
use meantime_nvme_spec::identify::{IdentifyController, IdentifyNamespace, cns};
use meantime_nvme_spec::regs::Vs;
use zerocopy::FromBytes;

use crate::notes::{Notes, Outcome, Stop};
use crate::subject::Subject;

const CONTROLLER: &str = "1.4 §5.15.2.2";
const NAMESPACE: &str = "1.4 §5.15.2.1";

/// Whether the version is `major`.`minor` or a later one.
pub(crate) fn is_at_least(version: Vs, major: u16, minor: u8) -> bool {
    (version.major(), version.minor()) >= (major, minor)
}

/// Whether a text field has only printable ASCII, with blanks after it.
fn is_text(field: &[u8]) -> bool {
    field.iter().all(|byte| (0x20..0x7f).contains(byte))
}

/// Reads a data structure of Identify.
pub(crate) fn read<T: FromBytes>(subject: &Subject<'_>, cns: u8, nsid: u32) -> Outcome<T> {
    let data = subject.device()?.controller().identify_data(cns, nsid)?;
    let read = T::read_from_prefix(&data);
    read.map(|(value, _)| value)
        .map_err(|_| Stop::Failed("Identify returned too little".to_owned()))
}

/// Checks Identify Controller.
pub(crate) fn controller(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let raw: IdentifyController = read(subject, cns::CONTROLLER, 0)?;
    let info = subject.device()?.controller().info().clone();
    let version = info.version;
    let at_least = |major, minor| is_at_least(version, major, minor);
    for (name, field) in [("SN", &raw.sn[..]), ("MN", &raw.mn[..]), ("FR", &raw.fr[..])] {
        notes.require(is_text(field), CONTROLLER, || {
            format!("{name} has bytes that are no printable ASCII: {field:02x?}")
        });
        notes.require(field.first() != Some(&b' '), CONTROLLER, || {
            format!("{name} is not left justified, or empty")
        });
    }
    // Before 1.2 the field was reserved.
    notes.require(!at_least(1, 2) || raw.ver.get() == version.0, CONTROLLER, || {
        format!("VER is {:#x}, and the version property {:#x}", raw.ver.get(), version.0)
    });
    for (name, sizes, least) in [("SQES", raw.sqes, 6), ("CQES", raw.cqes, 4)] {
        notes.require(sizes & 0xf == least && sizes >> 4 >= least, CONTROLLER, || {
            format!("{name} is {sizes:02x}h: the lower half has to be {least}, the upper no less")
        });
    }
    notes.require(raw.npss <= 31, CONTROLLER, || format!("NPSS is {}: 31 at most", raw.npss));
    power_states(&raw, notes);
    let (warning, critical) = (raw.wctemp.get(), raw.cctemp.get());
    notes.require(warning == 0 || critical == 0 || warning <= critical, CONTROLLER, || {
        format!("WCTEMP {warning} K is above CCTEMP {critical} K")
    });
    notes.require(raw.awupf.get() <= raw.awun.get(), CONTROLLER, || {
        format!("AWUPF {} is above AWUN {}", raw.awupf.get(), raw.awun.get())
    });
    let has_compare_and_write = raw.fuses.get() & 1 != 0;
    notes.require(has_compare_and_write || raw.acwu.get() == 0, CONTROLLER, || {
        format!("ACWU is {}, but FUSES has no Compare and Write", raw.acwu.get())
    });
    let flush_all = raw.vwc >> 1 & 3;
    notes.require(flush_all != 1, CONTROLLER, || "VWC bits 2:1 are 01b, reserved".to_owned());
    notes.require(!at_least(1, 4) || raw.vwc & 1 == 0 || flush_all != 0, CONTROLLER, || {
        "VWC bits 2:1 are 00b, which 1.4 forbids".to_owned()
    });
    notes.require(raw.sgls.get() & 3 != 3, CONTROLLER, || "SGLS bits 1:0 are 11b".to_owned());
    notes.require(!at_least(1, 4) || raw.cntrltype == 1, CONTROLLER, || {
        format!("CNTRLTYPE is {}: an I/O controller of 1.4 reports 1", raw.cntrltype)
    });
    // The field came with 1.2.1.
    if at_least(1, 3) {
        let nqn = raw.subnqn.split(|&byte| byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(nqn);
        notes.require(text.is_ok_and(|nqn| nqn.starts_with("nqn.")), CONTROLLER, || {
            format!("SUBNQN is no NQN: {:?}", String::from_utf8_lossy(nqn))
        });
        notes.require(nqn.len() <= 223, "1.4 §7.9", || {
            format!("SUBNQN has {} bytes: 223 at most", nqn.len())
        });
    }
    notes.fact("optional commands (ONCS)", format!("{:#06x}", raw.oncs.get()));
    notes.fact("optional admin commands (OACS)", format!("{:#06x}", raw.oacs.get()));
    notes.fact("volatile write cache", if raw.vwc & 1 != 0 { "yes" } else { "no" });
    notes.fact("power states", info.power_states.len().to_string());
    Ok(())
}

/// Each power state takes no more than the one before it, and the first is operational.
fn power_states(raw: &IdentifyController, notes: &mut Notes) {
    let states: Vec<_> = raw.power_states().collect();
    notes.require(
        states.first().is_some_and(|state| !state.non_operational()),
        "1.4 §8.4",
        || "power state 0 is not operational".to_owned(),
    );
    for (at, pair) in states.windows(2).enumerate() {
        let [more, less] = [pair[0], pair[1]].map(|state| state.max_power_100uw());
        // 0 is not reported.
        notes.require(more == 0 || less <= more, "1.4 §8.4", || {
            format!("power state {} takes more than power state {at}", at + 1)
        });
    }
}

/// Checks Identify Namespace.
pub(crate) fn namespace(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let nsid = subject.device()?.namespace().nsid;
    let raw: IdentifyNamespace = read(subject, cns::NAMESPACE, nsid)?;
    let controller: IdentifyController = read(subject, cns::CONTROLLER, 0)?;
    let (size, capacity, used) = (raw.nsze.get(), raw.ncap.get(), raw.nuse.get());
    notes.require(size >= capacity, NAMESPACE, || format!("NCAP {capacity} is above NSZE {size}"));
    notes.require(capacity >= used, NAMESPACE, || format!("NUSE {used} is above NCAP {capacity}"));
    notes.require(raw.nlbaf < 64, NAMESPACE, || format!("NLBAF is {}: 63 at most", raw.nlbaf));
    let formats = raw.lbaf.iter().take(usize::from(raw.nlbaf) + 1);
    for (at, format) in formats.clone().enumerate() {
        notes.require(format.lbads == 0 || format.lbads >= 9, NAMESPACE, || {
            format!("LBA format {at} has blocks of 2^{} bytes: 2^9 is the least", format.lbads)
        });
        notes.require(format.rp < 4, NAMESPACE, || {
            format!("LBA format {at} sets reserved bits beside RP: {:#x}", format.rp)
        });
    }
    notes.require(raw.lba_format_in_use().is_some(), NAMESPACE, || {
        format!("FLBAS {:#x} names a format beyond NLBAF {}", raw.flbas, raw.nlbaf)
    });
    let boundaries = [
        ("NABSN", raw.nabsn.get(), "AWUN", controller.awun.get()),
        ("NABSPF", raw.nabspf.get(), "AWUPF", controller.awupf.get()),
    ];
    for (name, boundary, unit_name, unit) in boundaries {
        // The namespace's own units (NSFEAT bit 1) may be less than the controller's.
        let own = raw.nsfeat & 2 != 0;
        notes.require(boundary == 0 || own || boundary >= unit, "1.4 §6.4", || {
            format!("{name} {boundary} is below {unit_name} {unit}")
        });
        notes.require(boundary == 0 || raw.nabo.get() <= boundary, "1.4 §6.4", || {
            format!("NABO {} is above {name} {boundary}", raw.nabo.get())
        });
    }
    notes.require(raw.dlfeat & 7 <= 2, NAMESPACE, || {
        format!("DLFEAT bits 2:0 are {}, reserved", raw.dlfeat & 7)
    });
    notes.require(raw.fpi & 0x80 != 0 || raw.fpi == 0, NAMESPACE, || {
        format!("FPI is {:#x}, although it is not supported", raw.fpi)
    });
    let formats: Vec<String> = formats
        .enumerate()
        .filter(|(_, format)| format.lbads >= 9)
        .map(|(at, format)| match format.ms.get() {
            0 => format!("{at}: {}", 1u64 << format.lbads.min(63)),
            metadata => format!("{at}: {} + {metadata}", 1u64 << format.lbads.min(63)),
        })
        .collect();
    notes.fact("LBA formats", formats.join(", "));
    notes.fact("in use", raw.lba_format_index().to_string());
    Ok(())
}
