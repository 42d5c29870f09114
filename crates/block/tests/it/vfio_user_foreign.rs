//! The vfio-user client on another project's server (the crate `vfio_user`), behind which is a
//! software SSD: by messages only, and with doorbells in a file that both map.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request, open_nvme};
use meantime_completion::Policy;
use meantime_hw::Clock;
use meantime_nvme_spec::regs::{CC, DOORBELLS};
use meantime_nvme_spec::soft_port::{DmaRegion, SOFT_DSTRD, SoftPort};
use meantime_ssd::{Medium, Ssd, SsdConfig};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

const CONFIG: u32 = 7;
const BAR_BYTES: u64 = 0x4000;
/// What can be mapped of BAR0: sixteen queues' doorbells.
const SHARED: std::ops::Range<u64> = 0x1000..0x2000;

#[derive(Clone)]
struct RealTime(Clock);

impl meantime_ssd::Clock for RealTime {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

struct Mapping(NonNull<std::ffi::c_void>, usize);

// SAFETY: it only owns the mapping.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which the SSD has given up.
        unsafe { munmap(self.0.as_ptr(), self.1) }.unwrap();
    }
}

struct Backend {
    port: Arc<dyn SoftPort>,
    config: [u8; 256],
    doorbell_messages: Arc<AtomicUsize>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn ring(port: &dyn SoftPort, offset: u64, value: u32) {
    let index = ((offset - u64::from(DOORBELLS)) >> (2 + SOFT_DSTRD)) as usize;
    if let Some(cell) = port.doorbells().get(index) {
        cell.store(value, Ordering::SeqCst);
        port.wake();
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match (region, data.len()) {
            (CONFIG, len) => data.copy_from_slice(&self.config[offset as usize..][..len]),
            (0, 4) => data.copy_from_slice(&self.port.read32(offset as u32).to_le_bytes()),
            (0, 8) => data.copy_from_slice(&self.port.read64(offset as u32).to_le_bytes()),
            _ => return Err(failed("no such register")),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match (region, data) {
            (CONFIG, data) => self.config[offset as usize..][..data.len()].copy_from_slice(data),
            (0, &[a, b, c, d]) if offset >= DOORBELLS.into() => {
                self.doorbell_messages.fetch_add(1, Ordering::Relaxed);
                ring(self.port.as_ref(), offset, u32::from_le_bytes([a, b, c, d]));
            }
            (0, &[a, b, c, d]) => {
                self.port.write32(offset as u32, u32::from_le_bytes([a, b, c, d]))
            }
            (0, data) if data.len() == 8 => {
                self.port.write64(offset as u32, u64::from_le_bytes(data.try_into().unwrap()));
            }
            _ => return Err(failed("no such register")),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        iova: u64,
        len: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        assert_eq!(flags, DmaMapFlags::READ_WRITE);
        let fd = fd.ok_or_else(|| failed("no file"))?;
        let (len, prot) = (len as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let addr = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &fd, offset) }?;
        let keepalive =
            Arc::new(Mapping(NonNull::new(addr).unwrap(), len)) as Arc<dyn Any + Send + Sync>;
        // SAFETY: mapped as long as `keepalive`; nothing else in this process accesses it.
        let region = unsafe { DmaRegion::new(iova, addr as usize, len, keepalive) };
        self.port.map_dma(region).map_err(failed)
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, iova: u64, _: u64) -> io::Result<()> {
        self.port.unmap_dma(iova).map_err(failed)
    }

    fn reset(&mut self) -> io::Result<()> {
        self.port.write32(CC, 0);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        assert_eq!(index, 2);
        if count == 0 {
            return (0..self.port.vectors())
                .try_for_each(|v| self.port.set_vector(v, None))
                .map_err(failed);
        }
        assert_eq!(fds.len(), count as usize);
        for (vector, fd) in (start..).zip(fds) {
            self.port
                .set_vector(vector as u16, Some(Arc::new(OwnedFd::from(fd)).into()))
                .map_err(failed)?;
        }
        Ok(())
    }
}

fn config_space(vectors: u16) -> [u8; 256] {
    let mut config = [0; 256];
    config[0x06] = 0x10;
    config[0x09..0x0c].copy_from_slice(&[0x02, 0x08, 0x01]);
    config[0x34] = 0x40;
    config[0x40..0x4c].copy_from_slice(&[
        0x11,
        0,
        (vectors - 1) as u8,
        0,
        0,
        0x20,
        0,
        0,
        0,
        0x30,
        0,
        0,
    ]);
    config
}

fn region(index: u32, size: u64, doorbells: Option<&File>) -> ServerRegion {
    let mut flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let mut sparse_areas = Vec::new();
    if doorbells.is_some() {
        flags |= VFIO_REGION_INFO_FLAG_MMAP;
        let area =
            vfio_region_sparse_mmap_area { offset: SHARED.start, size: SHARED.end - SHARED.start };
        sparse_areas.push(SparseArea { area });
    }
    let region_info = vfio_region_info { argsz: 32, flags, index, cap_offset: 0, size, offset: 0 };
    ServerRegion { region_info, sparse_areas, mmap_fd: doorbells.map(AsRawFd::as_raw_fd) }
}

/// Serves an SSD at `path` to one client after the other, and lets `client` have it. How many
/// doorbells came by message.
fn served(path: &Path, shared: bool, clients: usize, client: impl Fn(usize)) -> usize {
    let config =
        SsdConfig { vectors: 5, max_io_queues: 8, ..SsdConfig::with_namespace(16 << 20, 512) };
    let ssd = Ssd::start(config, Medium::dram(16 << 20).unwrap(), RealTime(Clock::real())).unwrap();
    let port = ssd.port();
    let file = shared.then(|| {
        let fd = rustix::fs::memfd_create("doorbells", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(fd);
        file.set_len(SHARED.end).unwrap();
        file
    });
    let regions = (0..9)
        .map(|index| match index {
            0 => region(0, BAR_BYTES, file.as_ref()),
            CONFIG => region(CONFIG, 256, None),
            _ => region(index, 0, None),
        })
        .collect();
    let irqs = (0..5).map(|index| IrqInfo {
        index,
        flags: VFIO_IRQ_INFO_EVENTFD,
        count: if index == 2 { 5 } else { 0 },
    });
    let server = Server::new(path, true, irqs.collect(), regions).unwrap();
    let messages = Arc::new(AtomicUsize::new(0));
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut backend = Backend {
            port: Arc::clone(&port),
            config: config_space(5),
            doorbell_messages: Arc::clone(&messages),
        };
        threads.spawn(move || (0..clients).for_each(|_| server.run(&mut backend).unwrap()));
        // Looks at the shared doorbells, as the server's own thread would.
        if let Some(file) = &file {
            let (port, ended) = (&port, &ended);
            threads.spawn(move || {
                let mut last = [0; 18];
                while !ended.load(Ordering::Relaxed) {
                    for (index, last) in last.iter_mut().enumerate() {
                        let (at, mut bytes) = (SHARED.start + 128 * index as u64, [0; 4]);
                        file.read_exact_at(&mut bytes, at).unwrap();
                        let value = u32::from_le_bytes(bytes);
                        if std::mem::replace(last, value) != value {
                            ring(port.as_ref(), at, value);
                        }
                    }
                }
            });
        }
        (0..clients).for_each(&client);
        ended.store(true, Ordering::Relaxed);
    });
    messages.load(Ordering::Relaxed)
}

/// Blocks that differ, written and read back by each way of waiting; and after a reset.
fn verified_io(path: &Path, round: usize) {
    let device =
        open_nvme(&format!("vfio-user:{}", path.display()), &OpenOptions::default()).unwrap();
    for policy in [Policy::Poll, Policy::Interrupt] {
        let options =
            ChannelOptions { depth: 4, policy: Some(policy), ..ChannelOptions::default() };
        let mut channel = device.channel(&options).unwrap();
        for lba in (0..64u64).step_by(16) {
            let byte = |lba: u64| (lba * 7 + round as u64) as u8 | 1;
            let mut buf = channel.alloc(8192).unwrap();
            buf.fill(byte(lba));
            let buf = channel.write(lba, buf).unwrap();
            drop(buf);
            let tickets: Vec<_> = (0..2)
                .map(|half| {
                    let buf = channel.alloc(4096).unwrap();
                    channel.submit(Request::read(lba + 8 * half, buf)).unwrap()
                })
                .collect();
            for ticket in tickets {
                let done = channel.wait(ticket);
                done.result.unwrap();
                assert!(done.buf.unwrap().iter().all(|&found| found == byte(lba)));
            }
        }
        drop(channel);
        device.controller().reset_now();
    }
    assert_eq!(device.heap().quarantined_bytes(), 0);
}

#[test]
fn by_messages_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let messages = served(&path, false, 2, |round| verified_io(&path, round));
    // Two clients, two ways, 4 × 3 commands: a tail each, at the least.
    assert!(messages >= 48, "{messages}");
}

#[test]
fn with_shared_doorbells() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    assert_eq!(served(&path, true, 1, |round| verified_io(&path, round)), 0);
}
