//! The device that is qualified: attached, detached, attached anew.

use std::time::{Duration, Instant};

use meantime_block::{
    Access, BlockChannel, BlockDevice, BlockInfo, ChannelOptions, NvmeChannel, NvmeDevice,
    OpenError, OpenOptions, Request, Uri, open_nvme,
};
use meantime_completion::Policy;
use meantime_nvme::ControllerOptions;
use meantime_random::Rng;
use meantime_report::figures::bytes;

use crate::notes::{Notes, Outcome, Stop};
use crate::plan::Plan;

/// A page, the least piece that the places of a namespace are compared by.
pub(crate) const PAGE: usize = 4096;

/// Blocks that small reads go to.
const READ_BLOCKS: u64 = 64;

/// A device with what is known of it.
pub(crate) struct Subject<'a> {
    pub(crate) plan: &'a Plan<'a>,
    device: Option<NvmeDevice>,
    info: BlockInfo,
    description: Vec<(String, String)>,
    model: String,
    /// Whether what was written is still there when the device is attached anew.
    pub(crate) keeps_data: bool,
    /// Whether it is behind a network: it has no interrupts, and data without PRPs.
    pub(crate) is_fabric: bool,
    /// The median latency of a polled read in ns, once measured.
    pub(crate) read_ns: Option<u64>,
}

impl<'a> Subject<'a> {
    pub(crate) fn open(plan: &'a Plan<'a>, uri: &Uri) -> Result<Self, OpenError> {
        let device = open(plan, plan.destroy, &controller_options(plan))?;
        let controller = device.controller().info();
        let info = device.info().clone();
        let description = [
            ("model", controller.model.clone()),
            ("firmware", controller.firmware.clone()),
            ("vendor", format!("{:04x}h", controller.vendor_id)),
            ("version", controller.version.to_string()),
            ("namespace", device.namespace().nsid.to_string()),
            ("size", bytes(info.bytes())),
            ("block", bytes(u64::from(info.block_bytes))),
            ("most a command", bytes(u64::from(info.max_transfer_bytes))),
            ("I/O queue pairs", controller.io_queues.to_string()),
            ("interrupt vectors", controller.vectors.to_string()),
        ];
        Ok(Self {
            plan,
            model: controller.model.clone(),
            description: description.map(|(name, words)| (name.to_owned(), words)).to_vec(),
            info,
            device: Some(device),
            keeps_data: !matches!(uri, Uri::Mem { .. }),
            is_fabric: matches!(uri, Uri::Tcp { .. }),
            read_ns: None,
        })
    }

    pub(crate) fn description(&self) -> Vec<(String, String)> {
        self.description.clone()
    }

    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    pub(crate) fn info(&self) -> &BlockInfo {
        &self.info
    }

    /// The device, if it is attached.
    pub(crate) fn device(&self) -> Outcome<&NvmeDevice> {
        self.device
            .as_ref()
            .ok_or_else(|| Stop::NotTested("the device could not be attached again".to_owned()))
    }

    /// A polled channel of `depth`, without an interrupt.
    pub(crate) fn polled(&self, depth: u16) -> Outcome<NvmeChannel> {
        let device = self.device()?;
        let depth = depth.min(device.max_depth());
        let options = ChannelOptions {
            depth,
            policy: Some(Policy::Poll),
            interrupt: Some(false),
            class: None,
        };
        Ok(device.channel(&options)?)
    }

    /// Detaches the device, and attaches it with `options`. Returns how long that took.
    pub(crate) fn attach_with(
        &mut self,
        change: impl FnOnce(&mut ControllerOptions),
    ) -> Outcome<Duration> {
        self.device = None;
        let mut options = controller_options(self.plan);
        change(&mut options);
        let start = Instant::now();
        self.device = Some(open(self.plan, self.plan.destroy, &options)?);
        Ok(start.elapsed())
    }

    /// Ends the check if the end of the run was requested.
    pub(crate) fn go_on(&self) -> Outcome {
        match self.plan.stopped() {
            true => Err(Stop::NotTested("interrupted".to_owned())),
            false => Ok(()),
        }
    }

    /// The number of blocks at the start of the namespace that small reads go to, and their content.
    pub(crate) fn content(&self, channel: &mut NvmeChannel) -> Outcome<(u64, Vec<u8>)> {
        let blocks = READ_BLOCKS.min(self.info.blocks);
        let bytes = blocks as usize * self.info.block_bytes as usize;
        Ok((blocks, read_by_pages(channel, 0, bytes)?))
    }

    /// Detaches the device, so that another process can have it.
    pub(crate) fn detach(&mut self) {
        self.device = None;
    }

    /// How often the controller failed since it was attached.
    pub(crate) fn fatal_resets(&self) -> u32 {
        self.device.as_ref().map_or(0, |device| device.controller().fatal_resets())
    }

    /// Whether the controller is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.device.as_ref().is_none_or(|device| device.controller().gone().is_some())
    }

    /// Attaches the device anew, if that is possible.
    pub(crate) fn reopen_after_failure(&mut self) {
        let _ = self.attach_with(|_| {});
    }

    /// Places for `blocks` blocks: at the start, near the middle and at the end of the namespace,
    /// as far as they do not overlap.
    pub(crate) fn places(&self, blocks: u64) -> Vec<u64> {
        let size = self.info.blocks;
        let page = (PAGE as u64 / u64::from(self.info.block_bytes)).max(1);
        let mut places = vec![0, size / 2 / page * page, size.saturating_sub(blocks)];
        places.retain(|place| place + blocks <= size);
        places.dedup_by(|next, last| *next < *last + blocks);
        places
    }
}

fn controller_options(plan: &Plan<'_>) -> ControllerOptions {
    ControllerOptions {
        io_timeout_ns: plan.timeout.as_nanos() as u64,
        ..ControllerOptions::default()
    }
}

fn open(
    plan: &Plan<'_>,
    write: bool,
    controller: &ControllerOptions,
) -> Result<NvmeDevice, OpenError> {
    let access = if write { Access::ReadWrite } else { Access::Read };
    let options =
        OpenOptions { access, controller: *controller, protect: write, ..OpenOptions::default() };
    open_nvme(plan.uri, &options)
}

/// Reads `bytes` at `lba` in pieces of at most a page.
pub(crate) fn read_by_pages(channel: &mut NvmeChannel, lba: u64, bytes: usize) -> Outcome<Vec<u8>> {
    let block_bytes = channel.info().block_bytes as usize;
    let mut data = Vec::with_capacity(bytes);
    while data.len() < bytes {
        let piece = (bytes - data.len()).min(PAGE.max(block_bytes));
        let buf = channel.alloc(piece)?;
        let at = lba + (data.len() / block_bytes) as u64;
        data.extend_from_slice(&channel.read(at, buf)?[..piece]);
    }
    Ok(data)
}

/// Reads all of `lbas`, a block each, with as many in flight as the channel takes, and requires
/// what `expected` has of them (of block 0 first).
pub(crate) fn read_scattered(
    channel: &mut NvmeChannel,
    lbas: impl Iterator<Item = u64>,
    expected: &[u8],
    notes: &mut Notes,
    disturb: &mut dyn FnMut(),
) -> Outcome {
    let block_bytes = channel.info().block_bytes as usize;
    let mut lbas = lbas.peekable();
    let mut wrong = 0u64;
    let mut first_wrong = None;
    let mut bufs = Vec::new();
    // Those whose results were not taken yet count, too.
    let mut outstanding = 0;
    while lbas.peek().is_some() || outstanding > 0 {
        channel.plug();
        while outstanding < channel.depth() {
            let Some(lba) = lbas.next() else { break };
            let mut buf = match bufs.pop() {
                Some(buf) => buf,
                None => channel.alloc(block_bytes)?,
            };
            // What the device does not write must not look right.
            buf.fill(0xee);
            let request = Request::read(lba, buf).user_data(lba);
            channel.enqueue(request).map_err(|rejected| Stop::from(rejected.error))?;
            outstanding += 1;
        }
        channel.unplug();
        disturb();
        while let Some(done) = channel.wait_done() {
            outstanding -= 1;
            let lba = done.user_data;
            let buf = done.into_buf()?;
            let at = lba as usize * block_bytes;
            if buf[..block_bytes] != expected[at..at + block_bytes] {
                wrong += 1;
                first_wrong.get_or_insert(lba);
            }
            bufs.push(buf);
            if lbas.peek().is_some() {
                break;
            }
        }
    }
    notes.require(wrong == 0, "1.4 §6.9", || {
        format!(
            "{wrong} reads gave other data than before, the first at LBA {}",
            first_wrong.unwrap_or_default()
        )
    });
    Ok(())
}

/// The content of block `lba` for `seed`.
pub(crate) fn pattern(seed: u64, lba: u64, block: &mut [u8]) {
    Rng::new(seed ^ lba.wrapping_mul(0x9e37_79b9_7f4a_7c15)).fill(block);
    block[..8].copy_from_slice(&lba.to_le_bytes());
}

/// The content of the blocks from `lba` on for `seed`, `bytes` in all.
pub(crate) fn patterns(seed: u64, lba: u64, bytes: usize, block_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    for (block, lba) in data.chunks_exact_mut(block_bytes).zip(lba..) {
        pattern(seed, lba, block);
    }
    data
}

/// Where two contents differ first, in bytes.
pub(crate) fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(one, other)| one != other)
}
