//! The SSD's path from an entry in a submission queue to one in a completion queue, and what
//! surrounds it: a host that writes arbitrary entries, PRP lists, doorbells and registers, maps and
//! unmaps, cuts the power. Expected: no panic; no access beyond what is mapped; one completion for
//! each command fetched; an end.

mod host;
mod memory;
mod queues;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use crate::Input;
use host::Host;
use meantime_nvme_spec::regs;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{
    Fault, FaultPlan, FaultRule, Medium, Model, NamespaceConfig, PowerState, SsdConfig, SteppedSsd,
    When,
};
use memory::{DATA, MISALIGNED, Memory, PAGE, RINGS, tame};
use queues::{CQ_ENTRIES, SQ_ENTRIES};

/// I/O queues of each kind.
pub const IO_QUEUES: u16 = 4;

const VECTORS: u16 = 4;

/// Operations of one input.
const OPERATIONS: usize = 256;

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::new());
}

fn model(index: u8) -> Model {
    static MODELS: OnceLock<[Model; 4]> = OnceLock::new();
    let models =
        || ["null", "null", "fast12", "nand"].map(|name| Model::named(name).expect("built in"));
    MODELS.get_or_init(models)[usize::from(index & 3)].clone()
}

fn event() -> Arc<OwnedFd> {
    static EVENT: OnceLock<Arc<OwnedFd>> = OnceLock::new();
    let new =
        || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd");
    Arc::clone(EVENT.get_or_init(|| Arc::new(new())))
}

/// The SSD that the first bytes ask for.
fn ssd(input: &mut Input<'_>, flags: u8) -> SteppedSsd {
    let kind = input.u8();
    let large = kind & 0x80 != 0;
    let namespaces = vec![
        NamespaceConfig { bytes: if large { 4 << 20 } else { 192 << 10 }, lba_bytes: 512 },
        NamespaceConfig { bytes: 64 << 10, lba_bytes: 4096 },
    ];
    let config = SsdConfig {
        namespaces,
        model: model(kind),
        volatile_write_cache: kind & 4 != 0,
        write_cache_bytes: if kind & 8 != 0 { 4096 } else { 32 << 20 },
        max_io_queues: IO_QUEUES,
        max_queue_entries: 1024,
        mdts_bytes: [1 << 20, 8192, 0, 1 << 20][usize::from(kind >> 4 & 3)],
        atomic_write_lbas: if kind & 0x40 != 0 { 8 } else { 1 },
        vectors: VECTORS,
        ready_after_ns: if flags & 4 != 0 { 1_500_000 } else { 0 },
        stamps: flags & 8 != 0,
        // What the host keeps account of goes by the rules.
        strict: true,
        // Of queues that go by shadow doorbells no account is kept.
        shadow_doorbells: flags & 17 == 17,
        power_states: power_states(flags & 64 != 0),
        apst_idle_ms: (flags & 192 == 192).then_some(1),
        ..plain_config().clone()
    };
    let medium = Medium::dram(config.total_bytes()).expect("a medium");
    SteppedSsd::new(config, medium, 1).expect("an SSD")
}

/// One state, or one to fall asleep in besides.
fn power_states(sleepy: bool) -> Vec<PowerState> {
    let awake =
        PowerState { max_power_10mw: 800, enlat_us: 0, exlat_us: 0, non_operational: false };
    let asleep =
        PowerState { max_power_10mw: 5, enlat_us: 400, exlat_us: 3000, non_operational: true };
    if sleepy { vec![awake, asleep] } else { vec![awake] }
}

/// The default, once: making it parses a model.
fn plain_config() -> &'static SsdConfig {
    static CONFIG: OnceLock<SsdConfig> = OnceLock::new();
    CONFIG.get_or_init(SsdConfig::default)
}

/// An address for the SSD to reach: mostly one that it can.
fn address(input: &mut Input<'_>, wild: bool) -> u64 {
    let byte = input.u8();
    let page = match byte & 15 {
        n @ 0..=10 => DATA + u64::from(n) * PAGE,
        11 => MISALIGNED,
        12 => MISALIGNED + PAGE,
        13 if wild => RINGS + u64::from(input.u8() % 10) * PAGE,
        13 => DATA + 64 * PAGE,
        14 => 0,
        _ => return tame(input.u64()),
    };
    page + match byte >> 4 {
        0..=6 => 0,
        n @ 7..=11 => [4, 8, 512, 2048, 4092][usize::from(n - 7)],
        12 => 4088,
        13 => 4094,
        _ => u64::from(input.u16()),
    }
}

/// An entry: opcode, and a byte that says which fields follow.
fn entry(input: &mut Input<'_>, host: &mut Host<'_>, wild: bool) -> Sqe {
    let (opcode, fields) = (input.u8(), input.u8());
    let nsid = if fields & 0x40 != 0 { input.pick(&[0, 2, 3, u32::MAX, u32::MAX - 1]) } else { 1 };
    let cid = if fields & 0x80 != 0 { u16::from(input.u8()) } else { host.cid() };
    let mut sqe = Sqe::new(opcode, cid, nsid);
    if fields & 0x80 != 0 {
        // Fused operations, SGLs, and what is reserved between them.
        sqe.cdw0.set(sqe.cdw0.get() | u32::from(input.u8()) << 8);
    }
    if fields & 1 != 0 {
        sqe.prp1.set(address(input, wild));
    }
    if fields & 2 != 0 {
        sqe.prp2.set(address(input, wild));
    }
    for (bit, field) in [(4, &mut sqe.cdw10), (8, &mut sqe.cdw11), (16, &mut sqe.cdw12)] {
        if fields & bit != 0 {
            field.set(input.u32());
        }
    }
    if fields & 32 != 0 {
        sqe.cdw13.set(input.u32());
        sqe.cdw14.set(input.u32());
        sqe.cdw15.set(input.u32());
    }
    sqe
}

/// A register, and a value for it.
fn register(input: &mut Input<'_>, host: &mut Host<'_>) {
    const OFFSETS: [u32; 18] = [
        regs::CC,
        regs::CSTS,
        regs::AQA,
        regs::ASQ,
        regs::ACQ,
        regs::CAP,
        regs::VS,
        regs::INTMS,
        regs::INTMC,
        regs::NSSR,
        regs::CMBLOC,
        regs::CMBMSC,
        regs::CMBMSC + 4,
        regs::CMBSTS,
        regs::ASQ + 4,
        regs::ACQ + 4,
        regs::DOORBELLS,
        u32::MAX,
    ];
    let byte = input.u8();
    let offset = match OFFSETS[usize::from(byte & 0x7f) % OFFSETS.len()] {
        regs::DOORBELLS => regs::DOORBELLS + u32::from(input.u8()) * 64,
        u32::MAX => input.u32(),
        offset => offset,
    };
    let wide = byte & 0x80 != 0;
    let value = if wide { tame(input.u64()) } else { tame(u64::from(input.u32())) };
    // Which nobody finds by chance.
    let value =
        if offset == regs::NSSR && value & 1 != 0 { u64::from(regs::NSSR_RESET) } else { value };
    host.write_register(offset, value, wide);
}

fn faults(input: &mut Input<'_>) -> FaultPlan {
    let bits = input.u8();
    let rare = input.u8();
    let mut plan = FaultPlan { seed: u64::from(input.u8()), ..FaultPlan::NONE };
    let often = When { probability_ppm: 250_000, ..When::ALWAYS };
    let late = When { from: u64::from(rare >> 4) + 1, ..When::ALWAYS };
    let error = Status::from_code(StatusCode::InternalError);
    for (wanted, fault, when) in [
        (bits & 1, Fault::Status(error), often),
        (bits & 1, Fault::Status(error.with_dnr()), often),
        (bits & 2, Fault::LostCompletion, often),
        (bits & 4, Fault::LateCompletion(u64::from(rare) << 20), often),
        (bits & 8, Fault::StrayCqe, often),
        (bits & 16, Fault::DuplicateCqe, often),
        (bits & 32, Fault::CorruptRead(1), often),
        (bits & 64, Fault::StuckAdmin, When::ALWAYS),
        (bits & 128, Fault::NeverReady, When::ALWAYS),
        (rare & 1, Fault::FatalStatus, late),
        (rare & 2, Fault::SurpriseRemoval, late),
    ] {
        if wanted != 0 {
            plan = plan.with(FaultRule::new(fault, when));
        }
    }
    plan
}

/// Writes a PRP list, the ranges of a deallocation, or an SGL segment.
fn list(input: &mut Input<'_>, host: &Host<'_>, wild: bool) {
    let (at, count) = (address(input, wild), input.u8());
    let words: Vec<u64> = (0..count & 0x1f)
        .map(|n| match n % 2 {
            // The length and type of an SGL descriptor, the segments' among them.
            1 if count & 0x20 != 0 => u64::from(input.u16()) | u64::from(input.u8() & 7) << 60,
            _ if count & 0x80 != 0 => tame(input.u64()),
            _ => address(input, wild),
        })
        .collect();
    // Repeated, for transfers beyond a list's page.
    let times = if count & 0x40 != 0 { 32 } else { 1 };
    for (n, word) in words.iter().cycle().take(words.len() * times).enumerate() {
        host.memory.store(at.wrapping_add(n as u64 * 8), &[*word]);
    }
}

fn operate(input: &mut Input<'_>, host: &mut Host<'_>, wild: bool) {
    let byte = input.u8();
    // Which queue, by position: mostly the first I/O queue.
    let queue = [1, 0, 2, 3, 4][usize::from(byte >> 5) % 5];
    match byte & 31 {
        0..=3 => {
            let sqe = entry(input, host, wild);
            host.put(queue, sqe);
        }
        4 | 5 => {
            let sqe = entry(input, host, wild);
            host.put(queue, sqe);
            host.ring(queue);
        }
        6 => host.ring(queue),
        7 => host.ack(queue, u32::MAX),
        8 => host.ack(queue, u32::from(input.u8())),
        9 => host.doorbell(usize::from(input.u8()) % (2 * usize::from(IO_QUEUES) + 2), input.u32()),
        10 => host.doorbell(queue * 2, u32::from(input.u8())),
        11 => host.doorbell(queue * 2 + 1, u32::from(input.u8())),
        12 | 13 => host.turn(),
        14 | 15 => host.run_until_idle(),
        16 => host.advance(u64::from(input.u16()) << 8),
        17 => host.advance(u64::from(input.u16()) << 16),
        18 | 19 => list(input, host, wild),
        20 => register(input, host),
        21 => host.enable(
            2 + u32::from(input.u8()) % (SQ_ENTRIES - 1),
            2 + u32::from(input.u8()) % (CQ_ENTRIES - 1),
        ),
        22 | 23 => {
            let (sizes, how) = (input.u16(), input.u8());
            let qid = queue as u16 % IO_QUEUES + 1;
            let cqid = if how & 1 != 0 { 1 } else { qid };
            let vector = (how & 2 != 0).then_some(u16::from(how >> 2) % VECTORS);
            let sq_entries = 2 + u32::from(sizes) % (SQ_ENTRIES - 1);
            host.create_queues(
                qid,
                cqid,
                sq_entries,
                2 + u32::from(sizes >> 8) % (CQ_ENTRIES - 1),
                vector,
            );
        }
        24 => host.unmap(usize::from(input.u8()) % memory::REGIONS),
        25 => host.map(usize::from(input.u8()) % memory::REGIONS),
        26 => host.set_faults(faults(input)),
        27 => host.set_faults(FaultPlan::NONE),
        28 => host.power_cut(u64::from(input.u8())),
        29 => host.set_vector(u16::from(input.u8()), (byte & 32 != 0).then(event)),
        30 if byte >> 5 == 7 => host.unplug(),
        _ => host.ring(0),
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.u8();
    let ssd = ssd(&mut input, flags);
    let wild = flags & 1 != 0;
    MEMORY.with_borrow_mut(|memory| {
        let mut host = Host::new(ssd, memory, wild);
        if flags & 2 == 0 {
            host.enable(16, 16);
            host.create_queues(1, 1, 8, 8, Some(1));
        }
        for _ in 0..OPERATIONS {
            if input.is_empty() || host.exhausted() {
                break;
            }
            operate(&mut input, &mut host, wild);
        }
        host.finish();
    });
}
