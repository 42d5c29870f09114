//! What the driver says to a controller from its first register write to its last, against bytes
//! that were typed from the specification (NVMe Base 1.4; the section is named beside each field)
//! and not printed by our own code.
//!
//! Of a command, the CID is the driver's choice and only has to be unique; so is memory's address,
//! which only has to be the controller's to reach, and aligned to pages of 4096 bytes.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use meantime_block::{BlockDevice, ChannelOptions, NvmeDevice};
use meantime_completion::Policy;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, QueueClass};
use meantime_nvme_spec::soft_port::{
    DmaRegion, Doorbells, Interrupt, PortError, SoftPort, VirtualClock,
};
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};
use meantime_testkit::quick;

/// A register write: (offset, bytes, value).
type Write = (u32, u8, u64);

/// DMA memory: IOVA, address in this process, length, and what keeps it mapped.
type Region = (u64, usize, usize, Arc<dyn Any + Send + Sync>);

/// Notes register writes, and where DMA memory is.
struct Recorder {
    inner: Arc<dyn SoftPort>,
    writes: Mutex<Vec<Write>>,
    memory: Mutex<Vec<Region>>,
}

impl Recorder {
    fn note(&self, write: Write) {
        self.writes.lock().expect("not poisoned").push(write);
    }

    fn taken(&self) -> Vec<Write> {
        std::mem::take(&mut self.writes.lock().expect("not poisoned"))
    }

    /// The dwords of a submission queue entry at `iova`.
    fn dwords(&self, iova: u64) -> [u32; 16] {
        let memory = self.memory.lock().expect("not poisoned");
        let region =
            memory.iter().find(|(start, _, len, _)| (*start..*start + *len as u64).contains(&iova));
        let (start, addr, ..) = region.expect("the controller can reach it");
        let entry = (addr + (iova - start) as usize) as *const u8;
        // SAFETY: inside a mapping that `memory` keeps; nothing writes there while we look, since
        // all is in one thread.
        let bytes: [u8; 64] = unsafe { std::ptr::read_volatile(entry.cast()) };
        std::array::from_fn(|n| {
            u32::from_le_bytes(bytes[4 * n..4 * n + 4].try_into().expect("4 bytes"))
        })
    }
}

// SAFETY: as the port it passes everything on to.
unsafe impl SoftPort for Recorder {
    fn read32(&self, offset: u32) -> u32 {
        self.inner.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        self.inner.read64(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.note((offset, 4, u64::from(value)));
        self.inner.write32(offset, value);
    }

    fn write64(&self, offset: u32, value: u64) {
        self.note((offset, 8, value));
        self.inner.write64(offset, value);
    }

    fn doorbells(&self) -> Arc<Doorbells> {
        self.inner.doorbells()
    }

    fn map_dma(&self, region: DmaRegion) -> Result<(), PortError> {
        let noted =
            (region.iova(), region.host_addr(), region.len(), Arc::clone(region.keepalive()));
        self.memory.lock().expect("not poisoned").push(noted);
        self.inner.map_dma(region)
    }

    fn unmap_dma(&self, iova: u64) -> Result<(), PortError> {
        self.inner.unmap_dma(iova)
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<Interrupt>) -> Result<(), PortError> {
        self.inner.set_vector(vector, event)
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>> {
        self.inner.virtual_clock()
    }
}

/// Some address, as PRP entry 1.
const MEMORY: u32 = 0xa55a_a55a;

/// An admin command as typed: opcode, NSID, whether PRP entry 1 names memory, CDW10 to CDW13.
fn command(opcode: u32, nsid: u32, memory: bool, cdw10_to_13: [u32; 4]) -> [u32; 16] {
    let mut dwords = [0; 16];
    // CDW0 (§4.2): 31:16 CID, left 0 here; 15:14 PSDT 00b (PRPs); 9:8 FUSE 00b; 7:0 OPC.
    dwords[0] = opcode;
    dwords[1] = nsid;
    // CDW2, CDW3 reserved; CDW4, CDW5 MPTR; CDW6, CDW7 PRP1; CDW8, CDW9 PRP2 (§4.2).
    dwords[6] = if memory { MEMORY } else { 0 };
    dwords[10..14].copy_from_slice(&cdw10_to_13);
    dwords
}

/// What of `dwords` is the driver's choice is checked and put as [`command`] has it.
fn normal(mut dwords: [u32; 16], cids: &mut HashSet<u32>) -> [u32; 16] {
    assert!(cids.insert(dwords[0] >> 16), "CID {:#x} is used twice", dwords[0] >> 16);
    dwords[0] &= 0xffff;
    let prp1 = u64::from(dwords[6]) | u64::from(dwords[7]) << 32;
    if prp1 != 0 {
        assert_eq!(prp1 % 4096, 0, "PRP1 {prp1:#x} is not aligned to a page");
        (dwords[6], dwords[7]) = (MEMORY, 0);
    }
    dwords
}

#[test]
fn an_admin_start_up_is_as_the_specification_has_it() {
    let config = SsdConfig::with_namespace(1 << 20, 512);
    let medium = Medium::dram(config.total_bytes()).expect("memory for the medium");
    let ssd = SteppedSsd::new(config, medium, 1).expect("a valid configuration");
    let recorder = Arc::new(Recorder {
        inner: ssd.port(),
        writes: Mutex::default(),
        memory: Mutex::default(),
    });
    let port = Arc::clone(&recorder) as Arc<dyn SoftPort>;
    // SAFETY: the port has no other user.
    let transport = Arc::new(unsafe { SoftTransport::new(port, "recorded".into(), None) });
    let controller = Controller::enable(transport, quick()).expect("it comes up");

    // §7.6.1: the admin queue's attributes and addresses while CC.EN is 0, then CC.
    let writes = recorder.taken();
    let [aqa, asq, acq, cc] = writes[..] else { panic!("four writes: {writes:x?}") };
    // §3.1.8, AQA at 24h: 27:16 ACQS and 11:0 ASQS, 0's based: 32 entries each.
    assert_eq!(aqa, (0x24, 4, 31 << 16 | 31));
    // §3.1.9 and §3.1.10, ASQ at 28h and ACQ at 30h: 64 bits, 11:0 are 0.
    assert_eq!((asq.0, asq.1, asq.2 % 4096), (0x28, 8, 0));
    assert_eq!((acq.0, acq.1, acq.2 % 4096), (0x30, 8, 0));
    // §3.1.5, CC at 14h: 23:20 IOCQES 4 (16 bytes), 19:16 IOSQES 6 (64 bytes), 15:14 SHN 0, 13:11
    // AMS 1 (weighted round robin), 10:7 MPS 0 (4 KiB), 6:4 CSS 0 (NVM), 0 EN.
    assert_eq!(cc, (0x14, 4, 4 << 20 | 6 << 16 | 1 << 11 | 1));

    let device =
        NvmeDevice::new(Arc::clone(&controller), 1, "recorded".into()).expect("namespace 1");
    let options = ChannelOptions {
        depth: 31,
        policy: Some(Policy::Poll),
        interrupt: Some(true),
        class: Some(QueueClass::High),
    };
    let channel = device.channel(&options).expect("a channel");
    drop(channel);
    assert_eq!(recorder.taken(), [], "queues are made by commands");

    // 31 requests and 32 slots for parts, and the entry that tells full from empty: 64.
    let queue_size = 63 << 16;
    let expected = [
        // §5.15, Identify (06h): CDW10 31:16 CNTID 0, 7:0 CNS 01h, the controller.
        command(0x06, 0, true, [0x01, 0, 0, 0]),
        // §5.21.1.7, Set Features (09h), Number of Queues: CDW10 31 SV 0, 7:0 FID 07h; CDW11 31:16
        // NCQR, 15:0 NSQR, 0's based: 64.
        command(0x09, 0, false, [0x07, 63 << 16 | 63, 0, 0]),
        // §5.15, Identify, CNS 02h: active namespaces above NSID 0.
        command(0x06, 0, true, [0x02, 0, 0, 0]),
        // §5.15, Identify, CNS 00h: namespace 1.
        command(0x06, 1, true, [0x00, 0, 0, 0]),
        // §5.21.1.22, Set Features, Host Behavior Support: CDW10 7:0 FID 16h; 512 bytes of data.
        // Since CRDT1 is not 0.
        command(0x09, 0, true, [0x16, 0, 0, 0]),
        // §5.21.1.1, Set Features, Arbitration: FID 01h; CDW11 31:24 HPW 16, 23:16 MPW 4, 15:8 LPW
        // 1, all 0's based, 2:0 AB 1 (two commands).
        command(0x09, 0, false, [0x01, 15 << 24 | 3 << 16 | 1, 0, 0]),
        // §5.3, Create I/O Completion Queue (05h): CDW10 31:16 QSIZE, 0's based, 15:0 QID 1; CDW11
        // 31:16 IV 0, 1 IEN 0, 0 PC 1.
        command(0x05, 0, true, [queue_size | 1, 0x1, 0, 0]),
        // §5.4, Create I/O Submission Queue (01h): CDW11 31:16 CQID 1, 2:1 QPRIO 01b (high), 0 PC
        // 1; CDW12 15:0 NVMSETID 0.
        command(0x01, 0, true, [queue_size | 1, 1 << 16 | 0x3, 0, 0]),
        // The queues with an interrupt: IV 1, IEN 1.
        command(0x05, 0, true, [queue_size | 2, 1 << 16 | 0x3, 0, 0]),
        command(0x01, 0, true, [queue_size | 2, 2 << 16 | 0x3, 0, 0]),
        // §5.6 and §5.5, Delete I/O Submission Queue (00h) before Delete I/O Completion Queue
        // (04h): CDW10 15:0 QID.
        command(0x00, 0, false, [1, 0, 0, 0]),
        command(0x04, 0, false, [1, 0, 0, 0]),
        command(0x00, 0, false, [2, 0, 0, 0]),
        command(0x04, 0, false, [2, 0, 0, 0]),
    ];
    let mut cids = HashSet::new();
    for (n, expected) in expected.iter().enumerate() {
        let found = normal(recorder.dwords(asq.2 + 64 * n as u64), &mut cids);
        assert_eq!(found, *expected, "command {n}: {found:x?}, not {expected:x?}");
    }
    assert_eq!(
        recorder.dwords(asq.2 + 64 * expected.len() as u64),
        [0; 16],
        "no other command was sent"
    );
    assert_eq!(ssd.counters().admin_commands, expected.len() as u64);

    drop((device, controller));
    // §7.6.2: CC.SHN 01b, a normal shutdown, with the rest as it was; and disabled when it is
    // complete (CSTS.SHST).
    let running = 4 << 20 | 6 << 16 | 1 << 11;
    assert_eq!(recorder.taken(), [(0x14, 4, running | 1 << 14 | 1), (0x14, 4, running)]);
    assert_eq!(ssd.refusals(), [], "the SSD has nothing to say against it");
}
