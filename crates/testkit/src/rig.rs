//! A stepped SSD with a driver, and the means to make single commands fail and to verify data.

use std::ops::Range;
use std::sync::Arc;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, Done, IoErrorKind, NvmeChannel, NvmeDevice, Request,
    Ticket,
};
use meantime_completion::Policy;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions, Error};
use meantime_ssd::{Fault, FaultPlan, Medium, Model, SsdConfig, SteppedSsd};

use crate::faults::always;
use crate::port::{Meddling, MeddlingPort};
use crate::{Rng, device, quick, quick_once};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// An SSD of 4 MiB with blocks of 512 bytes and the service times of `model`.
pub fn ssd(model: &str) -> SsdConfig {
    let model = Model::named(model).expect("a built-in model");
    SsdConfig { model, ..SsdConfig::with_namespace(4 << 20, 512) }
}

/// Deadlines as in [`quick`], except for that of an I/O.
pub fn rig_options(io_timeout_ns: u64) -> ControllerOptions {
    ControllerOptions { io_timeout_ns, ..quick() }
}

pub struct Rig {
    pub ssd: SteppedSsd,
    pub controller: Arc<Controller>,
    pub device: NvmeDevice,
    pub meddling: Arc<Meddling>,
}

impl Rig {
    pub fn new(config: SsdConfig) -> Self {
        Self::with(config, quick())
    }

    /// The same without retries.
    pub fn once(config: SsdConfig) -> Self {
        Self::with(config, quick_once())
    }

    pub fn with(config: SsdConfig, options: ControllerOptions) -> Self {
        let (ssd, meddling, opened) = open(config, options, |_| {});
        let controller = opened.expect("the controller comes up");
        let device = device(&controller);
        Self { ssd, controller, device, meddling }
    }

    /// A polling channel with an interrupt queue.
    pub fn channel(&self, depth: u16) -> NvmeChannel {
        let options = ChannelOptions {
            depth,
            policy: Some(Policy::Poll),
            interrupt: Some(true),
            ..ChannelOptions::default()
        };
        self.device.channel(&options).expect("a channel")
    }

    /// Starts `request`; the faults of `plan` affect only its commands.
    pub fn submit_with_faults(
        &self,
        plan: FaultPlan,
        channel: &mut NvmeChannel,
        request: Request,
    ) -> Ticket {
        self.ssd.set_faults(plan);
        let ticket = channel.submit(request).expect("room");
        // Fetches them now, at the current time.
        self.ssd.run_until_idle();
        self.ssd.set_faults(FaultPlan::NONE);
        ticket
    }

    /// The result of `action`, and the virtual time that it took in ns.
    pub fn timed<T>(&self, action: impl FnOnce() -> T) -> (T, u64) {
        let start_ns = self.ssd.peek_ns();
        let result = action();
        (result, self.ssd.peek_ns() - start_ns)
    }
}

/// A stepped SSD, prepared by `prepare`, and the result of enabling it.
pub fn open(
    config: SsdConfig,
    options: ControllerOptions,
    prepare: impl FnOnce(&SteppedSsd),
) -> (SteppedSsd, Arc<Meddling>, Result<Arc<Controller>, Error>) {
    let medium = Medium::dram(config.total_bytes()).expect("memory for the medium");
    let ssd = SteppedSsd::new(config, medium, 1).expect("a valid configuration");
    prepare(&ssd);
    let (port, meddling) = MeddlingPort::new(ssd.port());
    // SAFETY: the port has no other user.
    let opened = Controller::enable(
        Arc::new(unsafe { SoftTransport::new(port, "rig".into(), None) }),
        options,
    );
    (ssd, meddling, opened)
}

/// Completions that never come.
pub const LOST: FaultPlan = always(Fault::LostCompletion);

/// Completions that come `late_by_ns` late.
pub const fn late(late_by_ns: u64) -> FaultPlan {
    always(Fault::LateCompletion(late_by_ns))
}

/// The kind of its error.
pub fn kind(done: &Done) -> IoErrorKind {
    done.result.expect_err("it should have failed").kind
}

/// Fills `buf` with version `version` of the blocks from `lba` on; each block is different.
pub fn fill(buf: &mut [u8], block_bytes: usize, lba: u64, version: u64) {
    for (lba, block) in (lba..).zip(buf.chunks_exact_mut(block_bytes)) {
        let mut rng = Rng::new(lba << 32 ^ version);
        block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next().to_le_bytes()));
    }
}

fn block_bytes(channel: &impl BlockChannel) -> usize {
    channel.info().block_bytes as usize
}

/// A request that writes version `version` to `lbas`.
pub fn write_of(channel: &impl BlockChannel, lbas: Range<u64>, version: u64) -> Request {
    let block_bytes = block_bytes(channel);
    let mut buf = channel.alloc((lbas.end - lbas.start) as usize * block_bytes).expect("memory");
    fill(&mut buf, block_bytes, lbas.start, version);
    Request::write(lbas.start, buf)
}

/// A request that reads `lbas`.
pub fn read_of(channel: &impl BlockChannel, lbas: Range<u64>) -> Request {
    let bytes = (lbas.end - lbas.start) as usize * block_bytes(channel);
    let mut buf = channel.alloc(bytes).expect("memory");
    // No block has this content, so blocks that were not read are detected.
    buf.fill(0xa5);
    Request::read(lbas.start, buf)
}

pub fn put(channel: &mut impl BlockChannel, lbas: Range<u64>, version: u64) {
    let request = write_of(channel, lbas, version);
    let ticket = channel.submit(request).expect("room");
    channel.wait(ticket).result.expect("written");
}

/// Panics unless `lbas` hold version `version`; version 0 is zeroes.
pub fn verify(channel: &mut impl BlockChannel, lbas: Range<u64>, version: u64) {
    let request = read_of(channel, lbas.clone());
    let ticket = channel.submit(request).expect("room");
    let done = channel.wait(ticket);
    done.result.expect("read");
    holds(&done.buf.expect("the buffer"), block_bytes(channel), lbas.start, version);
}

/// Panics unless `buf` is version `version` of the blocks from `lba` on.
pub fn holds(buf: &[u8], block_bytes: usize, lba: u64, version: u64) {
    let mut expected = vec![0; buf.len()];
    if version > 0 {
        fill(&mut expected, block_bytes, lba, version);
    }
    let wrong = expected.chunks(block_bytes).zip(buf.chunks(block_bytes)).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "the first block that does not hold version {version}, from {lba} on");
}

/// Time by which an overdue command is detected: its deadline, counted from a first check; checks
/// are an eighth of it apart.
pub const OVERDUE_NS: u64 = 2 * MS + MS / 2;
/// `abort_grace`, and the time to notice its end.
pub const GRACE_NS: u64 = MS / 4;

pub fn in_flight_lost(rig: &Rig, channel: &mut NvmeChannel, lba: u64) -> Ticket {
    let request = read_of(channel, lba..lba + 1);
    rig.submit_with_faults(LOST, channel, request)
}

pub fn in_flight_late(rig: &Rig, channel: &mut NvmeChannel, lba: u64, late_by_ns: u64) -> Ticket {
    let request = read_of(channel, lba..lba + 1);
    rig.submit_with_faults(late(late_by_ns), channel, request)
}

/// Checks that all memory was returned, except for the channels' own rings.
pub fn nothing_leaks(rig: Rig, channels: Vec<NvmeChannel>, allocated_before: usize) {
    drop(channels);
    // If the controller was given up, its admin queue is gone as well.
    assert!(rig.device.heap().allocated_bytes() <= allocated_before);
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
    let Rig { controller, device, meddling, .. } = rig;
    drop((controller, device));
    assert_eq!(meddling.mappings_alive(), 0, "memory of the heap was never unmapped");
}
