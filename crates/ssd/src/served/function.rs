//! The PCI function as one client uses it. It answers each message with a reply.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use meantime_nvme_spec::vfio_user::{
    CapabilityHeader, Command, DeviceInfo, DmaMap, DmaUnmap, Flags, KIND_COMMAND, RegionAccess,
    RegionInfo, SetIrqs, SparseArea, SparseMmap, device, irq, region,
};
use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use super::bars::Bars;
use super::config_space::{ConfigSpace, Wrote};
use super::dma::DmaTable;
use super::handshake::{self, Agreed};
use super::irqs::Vectors;
use super::mapping::shared_doorbells;
use super::message::{
    Answer, Message, Refused, Reply, invalid, lacks_room, parse, parse_all, refuse_if, refused,
    reply,
};
use crate::port::FunctionPort;

/// BAR4, which has the MSI-X table and its pending bits.
const BAR4: u32 = region::BAR0 + 4;

/// Offset of the dword with the mask bit in an MSI-X table entry. After power-on the bit is set
/// (PCI 3.0 §6.8.2.9).
const VECTOR_CONTROL_AT: usize = 12;

/// The function's state for one client, from its first message to its last.
pub struct Function {
    port: Arc<dyn FunctionPort>,
    bars: Bars,
    doorbells: OwnedFd,
    config: ConfigSpace,
    msix_table: Vec<u8>,
    vectors: Vectors,
    dma: DmaTable,
    agreed: Option<Agreed>,
    over: bool,
    refusal: Option<(Command, Errno, &'static str)>,
    note: Option<String>,
}

impl Function {
    /// Returns the function as after power-on, for a new client. `alarm`, an eventfd, is signalled
    /// when memory that the client has mapped is gone. The client must then be disconnected.
    ///
    /// # Errors
    /// Fails if there is no memory for the doorbells, or if the SSD does not answer.
    pub fn plug(port: Arc<dyn FunctionPort>, alarm: Arc<OwnedFd>) -> io::Result<Self> {
        let queues = u16::try_from(port.doorbells().len() / 2).map_err(io::Error::other)?;
        let bars = Bars::new(queues, port.vectors());
        let (doorbells, file) = shared_doorbells(queues)?;
        port.power_cycle(doorbells).map_err(io::Error::other)?;
        let mut function = Self {
            bars,
            doorbells: file,
            config: ConfigSpace::new(&bars),
            msix_table: vec![0; bars.table_bytes()],
            vectors: Vectors::new(bars.vectors),
            dma: DmaTable::new(alarm),
            agreed: None,
            over: false,
            refusal: None,
            note: None,
            port,
        };
        function.mask_table();
        Ok(function)
    }

    /// Takes the function away from its client. After the return the client's memory and eventfds
    /// are not accessed any more, and none of its state is kept.
    ///
    /// # Errors
    /// Fails if the SSD does not answer. The caller then tries again.
    pub fn unplug(&mut self) -> io::Result<()> {
        self.vectors.drain();
        // The new doorbells are not in the shared pages, which the client may keep and write to.
        let doorbells = meantime_nvme_spec::soft_port::Doorbells::new(self.bars.queues);
        self.port.power_cycle(doorbells).map_err(io::Error::other)?;
        self.port.set_napping(false);
        self.vectors = Vectors::new(self.bars.vectors);
        self.dma = DmaTable::new(Arc::clone(self.dma.alarm()));
        Ok(())
    }

    /// Returns whether the connection has to end, because there is no common protocol.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the refusal of the last message, if it was refused: command, errno and reason.
    pub(crate) fn take_refusal(&mut self) -> Option<(Command, Errno, &'static str)> {
        self.refusal.take()
    }

    /// Returns a remark on the last message, which was not refused.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Executes `message`. Returns `None` if it wants no reply.
    pub fn answer(&mut self, message: Message) -> Option<Reply> {
        let header = message.header;
        let flags = Flags(header.flags.get());
        let answered = match Command::try_from(header.command.get()) {
            Ok(command) => self.run(command, message).inspect_err(|refused| {
                self.refusal = Some((command, refused.errno, refused.why));
            }),
            Err(_) => {
                self.note = Some(format!("command {}, which is not known", header.command.get()));
                Err(refused(Errno::NOTSUP, "an unknown command"))
            }
        };
        if flags.no_reply() { None } else { Some(reply(&header, answered)) }
    }

    fn run(&mut self, command: Command, message: Message) -> Result<Answer, Refused> {
        let flags = Flags(message.header.flags.get());
        if flags.kind() != KIND_COMMAND || flags.error() {
            // We send no commands, so no reply is due.
            self.over = true;
            return Err(invalid("a reply, where only commands are due"));
        }
        let why = "more descriptors than max_msg_fds, or than this process can open";
        refuse_if(message.fds_lost, why)?;
        if (self.agreed.is_none()) != (command == Command::Version) {
            self.over = self.agreed.is_none();
            return Err(invalid("VERSION is the first message, and only the first"));
        }
        let takes_fds =
            matches!(command, Command::DmaMap | Command::DmaUnmap | Command::DeviceSetIrqs);
        refuse_if(!takes_fds && !message.fds.is_empty(), "descriptors, where none is due")?;
        let body = &message.body;
        match command {
            Command::Version => self.version(body),
            Command::DeviceGetInfo => Self::device_info(body),
            Command::DeviceGetRegionInfo => self.region_info(body),
            Command::DeviceGetIrqInfo => Ok(Answer::of(&self.vectors.info(&parse_all(body)?)?)),
            Command::DeviceSetIrqs => {
                let (request, data) = parse::<SetIrqs>(body)?;
                self.vectors.set(&*self.port, &request, data, message.fds)?;
                Ok(Answer::default())
            }
            Command::RegionRead => self.region_read(body),
            Command::RegionWrite => self.region_write(body),
            Command::DmaMap => self.dma_map(body, message.fds),
            // SPDK's host sends the descriptor again, which is closed.
            Command::DmaUnmap => {
                let request: DmaUnmap = parse_all(body)?;
                let len = self.dma.unmap(&*self.port, &request)?;
                let argsz = size_of::<DmaUnmap>() as u32;
                Ok(Answer::of(&DmaUnmap { argsz: argsz.into(), len: len.into(), ..request }))
            }
            Command::DeviceReset => {
                refuse_if(!body.is_empty(), "the message is too long")?;
                self.reset()?;
                Ok(Answer::default())
            }
            _ => Err(refused(Errno::NOTSUP, "a command that is not served here")),
        }
    }

    fn version(&mut self, body: &[u8]) -> Result<Answer, Refused> {
        let (agreed, answer) = handshake::agree(body).inspect_err(|_| self.over = true)?;
        self.agreed = Some(agreed);
        self.port.set_napping(!agreed.wakes);
        Ok(answer)
    }

    fn device_info(body: &[u8]) -> Result<Answer, Refused> {
        let (request, _) = parse::<DeviceInfo>(body)?;
        refuse_if(lacks_room::<DeviceInfo>(request.argsz), "DEVICE_GET_INFO: argsz is too small")?;
        Ok(Answer::of(&DeviceInfo {
            argsz: (size_of::<DeviceInfo>() as u32).into(),
            flags: (device::RESET | device::PCI).into(),
            regions: region::COUNT.into(),
            irqs: irq::COUNT.into(),
        }))
    }

    /// Returns the size of a region in bytes, or 0 if it does not exist.
    fn region_bytes(&self, index: u32) -> u64 {
        match index {
            region::BAR0 => self.bars.bar0_bytes,
            BAR4 => self.bars.msix_bytes,
            region::CONFIG => meantime_nvme_spec::pci::EXPRESS_CONFIG_BYTES as u64,
            _ => 0,
        }
    }

    /// Returns a region's information. A client whose `argsz` suffices gets the capabilities, with
    /// the doorbells' descriptor. Others get the length needed, and ask again. QEMU expects the
    /// capability's offset in that first reply.
    fn region_info(&self, body: &[u8]) -> Result<Answer, Refused> {
        // SPDK's host sends its whole buffer.
        let (request, _) = parse::<RegionInfo>(body)?;
        let info_bytes = size_of::<RegionInfo>();
        let room = request.argsz.get() as usize;
        refuse_if(room < info_bytes, "DEVICE_GET_REGION_INFO: argsz is too small")?;
        let index = request.index.get();
        refuse_if(index >= region::COUNT, "DEVICE_GET_REGION_INFO: no such region")?;
        let size = self.region_bytes(index);
        let flags = if size == 0 { 0 } else { region::READ | region::WRITE };
        let mut info = RegionInfo {
            argsz: (info_bytes as u32).into(),
            flags: flags.into(),
            index: index.into(),
            size: size.into(),
            ..RegionInfo::default()
        };
        if index != region::BAR0 || self.agreed.is_none_or(|agreed| agreed.max_msg_fds == 0) {
            return Ok(Answer::of(&info));
        }
        let all_bytes = info_bytes + size_of::<SparseMmap>() + size_of::<SparseArea>();
        info.argsz = (all_bytes as u32).into();
        info.flags = (flags | region::MMAP | region::CAPS).into();
        info.cap_offset = (info_bytes as u32).into();
        let mut answer = Answer::of(&info);
        if room >= all_bytes {
            let header = CapabilityHeader {
                id: region::CAP_SPARSE_MMAP.into(),
                version: 1.into(),
                next: 0.into(),
            };
            let sparse = SparseMmap { header, areas: 1.into(), reserved: 0.into() };
            let (offset, len) = self.bars.mappable();
            let area = SparseArea { offset: offset.into(), len: len.into() };
            answer.body.extend_from_slice(sparse.as_bytes());
            answer.body.extend_from_slice(area.as_bytes());
            answer.fd = Some(self.doorbells.try_clone().map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
                refused(errno, "DEVICE_GET_REGION_INFO: no descriptor for the doorbells")
            })?);
        }
        Ok(answer)
    }

    /// Returns the checked range of an access.
    fn access(&self, request: &RegionAccess) -> Result<(usize, usize), Refused> {
        let (offset, count) = (request.offset.get(), request.count.get());
        let most = self.agreed.map_or(0, |agreed| agreed.max_data_xfer_bytes);
        let why = "a region access of no bytes, or of more than max_data_xfer_size";
        refuse_if(count == 0 || count > most, why)?;
        let end = offset.checked_add(u64::from(count));
        let beyond = end.is_none_or(|end| end > self.region_bytes(request.region.get()));
        let why = "a region access beyond the region's end, or to a region that there is not";
        refuse_if(beyond, why)?;
        let (offset, count) = (offset as usize, count as usize);
        // Registers are accessed as a dword or a qword at a time (NVMe Base 1.4 §3.1).
        let aligned = matches!(count, 4 | 8) && offset % count == 0;
        let why = "a register access that is not of 4 or 8 bytes, aligned";
        refuse_if(request.region.get() != region::CONFIG && !aligned, why)?;
        Ok((offset, count))
    }

    fn region_read(&self, body: &[u8]) -> Result<Answer, Refused> {
        let request: RegionAccess = parse_all(body)?;
        let (offset, count) = self.access(&request)?;
        let mut answer = Answer::of(&request);
        let at = answer.body.len();
        answer.body.resize(at + count, 0);
        let data = &mut answer.body[at..];
        match request.region.get() {
            region::CONFIG => self.config.read(offset, data),
            // Everything but the table reads as zeroes, because no interrupt is ever pending.
            BAR4 => {
                if let Some(table) = self.msix_table.get(offset..offset + count) {
                    data.copy_from_slice(table);
                }
            }
            _ if count == 4 => data.copy_from_slice(&self.port.read32(offset as u32).to_le_bytes()),
            _ => data.copy_from_slice(&self.port.read64(offset as u32).to_le_bytes()),
        }
        Ok(answer)
    }

    fn region_write(&mut self, body: &[u8]) -> Result<Answer, Refused> {
        let (request, data) = parse::<RegionAccess>(body)?;
        let (offset, count) = self.access(&request)?;
        refuse_if(data.len() != count, "REGION_WRITE: not as much data as it says")?;
        match request.region.get() {
            region::CONFIG => {
                if self.config.write(offset, data) == Wrote::FunctionReset {
                    self.reset()?;
                }
            }
            BAR4 => {
                if let Some(table) = self.msix_table.get_mut(offset..offset + count) {
                    table.copy_from_slice(data);
                }
            }
            _ => match *data {
                [a, b, c, d] => self.port.write32(offset as u32, u32::from_le_bytes([a, b, c, d])),
                _ => {
                    let data =
                        data.try_into().map_err(|_| invalid("a register access of no size"))?;
                    self.port.write64(offset as u32, u64::from_le_bytes(data));
                }
            },
        }
        Ok(Answer::of(&request))
    }

    fn dma_map(&mut self, body: &[u8], fds: Vec<OwnedFd>) -> Result<Answer, Refused> {
        let request: DmaMap = parse_all(body)?;
        if let Some(why) = self.dma.map(&*self.port, &request, fds)? {
            let (iova, len) = (request.iova.get(), request.len.get());
            self.note =
                Some(format!("memory at {iova:#x}, {len:#x} bytes, cannot be reached: {why}"));
        }
        Ok(Answer::default())
    }

    /// Resets the function. Mappings and eventfds stay.
    fn reset(&mut self) -> Result<(), Refused> {
        self.port.reset_function()?;
        self.config.reset();
        self.msix_table.fill(0);
        self.mask_table();
        Ok(())
    }

    fn mask_table(&mut self) {
        for entry in
            self.msix_table.chunks_exact_mut(meantime_nvme_spec::pci::MSIX_ENTRY_BYTES as usize)
        {
            entry[VECTOR_CONTROL_AT] = 1;
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function")
            .field("bars", &self.bars)
            .field("agreed", &self.agreed)
            .finish_non_exhaustive()
    }
}
