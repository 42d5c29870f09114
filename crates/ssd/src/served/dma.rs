//! The client's DMA memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use meantime_nvme_spec::soft_port::PortError;
use meantime_nvme_spec::vfio_user::{DmaMap, DmaUnmap, dma};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, fstatfs};
use rustix::io::Errno;

use super::mapping::{ClientMemory, PAGE_BYTES};
use super::message::{Refused, invalid, lacks_room, refuse_if, refused};
use crate::port::FunctionPort;

/// The maximum number of DMA mappings of a client.
pub(super) const MAX_DMA_MAPS: usize = 1024;

/// Magic number of a FUSE file system (statfs(2)), whose page faults the client could leave
/// unanswered.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// Magic number of hugetlbfs (statfs(2)), whose block size is its page size.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// The client's mappings.
pub(super) struct DmaTable {
    /// The mappings, sorted by address.
    maps: Vec<Mapping>,
    alarm: Arc<OwnedFd>,
}

struct Mapping {
    iova: u64,
    len: u64,
    /// The mapped memory, or `None` if the controller cannot access it. It is held here until the
    /// controller has released it, so that the server's thread unmaps it.
    memory: Option<Arc<ClientMemory>>,
}

impl Mapping {
    fn last(&self) -> u64 {
        self.iova + (self.len - 1)
    }
}

impl DmaTable {
    /// Creates an empty table. `alarm`, an eventfd, is signalled when a client's file turns out to
    /// have shrunk.
    pub(super) fn new(alarm: Arc<OwnedFd>) -> Self {
        Self { maps: Vec::new(), alarm }
    }

    /// Returns the eventfd to signal.
    pub(super) fn alarm(&self) -> &Arc<OwnedFd> {
        &self.alarm
    }

    /// Executes DMA_MAP. Returns the reason if the controller cannot access the memory. Without a
    /// descriptor, or without permission both to read and to write, the mapping is recorded, but
    /// accesses to it fail.
    pub(super) fn map(
        &mut self,
        port: &dyn FunctionPort,
        request: &DmaMap,
        fds: Vec<OwnedFd>,
    ) -> Result<Option<&'static str>, Refused> {
        let (iova, len, offset) = (request.iova.get(), request.len.get(), request.offset.get());
        refuse_if(lacks_room::<DmaMap>(request.argsz), "DMA_MAP: argsz is too small")?;
        let (flags, both) = (request.flags.get(), dma::READABLE | dma::WRITABLE);
        refuse_if(flags & !both != 0, "DMA_MAP: flags that are not known")?;
        let unaligned = [iova, len, offset].iter().any(|n| !n.is_multiple_of(PAGE_BYTES));
        let why = "DMA_MAP: address, length or offset is no multiple of 4 KiB, or length is 0";
        refuse_if(len == 0 || unaligned, why)?;
        let endless = iova.checked_add(len).is_none();
        refuse_if(endless, "DMA_MAP: the region ends beyond the last address")?;
        refuse_if(fds.len() > 1, "DMA_MAP: more than one descriptor")?;
        let at = self.maps.partition_point(|map| map.iova < iova);
        let next = self.maps.get(at);
        if next.is_some_and(|map| map.iova == iova && map.len == len) {
            return Err(refused(Errno::EXIST, "DMA_MAP: the region is mapped already"));
        }
        let overlaps = at.checked_sub(1).is_some_and(|at| self.maps[at].last() >= iova)
            || next.is_some_and(|map| map.iova < iova + len);
        refuse_if(overlaps, "DMA_MAP: the region overlaps one that is mapped already")?;
        if self.maps.len() >= MAX_DMA_MAPS {
            return Err(refused(Errno::NOSPC, "DMA_MAP: more mappings than max_dma_maps"));
        }
        let (memory, unreachable) = match fds.first() {
            Some(file) if flags == both => (Some(self.open(port, file, iova, len, offset)?), None),
            Some(_) => (None, Some("the device may not both read and write it")),
            None => (None, Some("no descriptor came with it")),
        };
        self.maps.insert(at, Mapping { iova, len, memory });
        Ok(unreachable)
    }

    /// Maps the memory here, and gives the controller access to it.
    fn open(
        &self,
        port: &dyn FunctionPort,
        file: &OwnedFd,
        iova: u64,
        len: u64,
        offset: u64,
    ) -> Result<Arc<ClientMemory>, Refused> {
        let failed = |why| move |errno| refused(errno, why);
        let stat =
            fstat(file).map_err(failed("DMA_MAP: its descriptor cannot be asked for its size"))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let why = "DMA_MAP: its descriptor is no file of memory (memfd, shared memory, huge pages)";
        refuse_if(!is_file, why)?;
        let system =
            fstatfs(file).map_err(failed("DMA_MAP: its descriptor's file system is not known"))?;
        let why = "DMA_MAP: its descriptor is of a file system that another program serves";
        refuse_if(system.f_type == FUSE_SUPER_MAGIC, why)?;
        let access =
            fcntl_getfl(file).map_err(failed("DMA_MAP: its descriptor's mode is not known"))?;
        if access & OFlags::ACCMODE != OFlags::RDWR {
            let why = "DMA_MAP: its descriptor is not open for reading and writing";
            return Err(refused(Errno::ACCESS, why));
        }
        let beyond = offset.checked_add(len).is_none_or(|end| end > stat.st_size as u64);
        refuse_if(beyond, "DMA_MAP: beyond the end of its file")?;
        let bytes = usize::try_from(len).map_err(|_| invalid("DMA_MAP: the region is too long"))?;
        let is_huge = system.f_type == HUGETLBFS_MAGIC;
        let page_bytes = if is_huge { system.f_bsize as u64 } else { PAGE_BYTES };
        let mapped = ClientMemory::map(file, offset, bytes, page_bytes, &self.alarm);
        let memory = mapped.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::NOMEM);
            refused(errno, "DMA_MAP: its file cannot be mapped")
        })?;
        let memory = Arc::new(memory);
        port.map_dma(ClientMemory::region(&memory, iova, bytes))?;
        Ok(memory)
    }

    /// Executes DMA_UNMAP for everything, or for the range of the request, in one mapping or
    /// several. Returns the number of bytes. After the return they are not accessed again.
    pub(super) fn unmap(
        &mut self,
        port: &dyn FunctionPort,
        request: &DmaUnmap,
    ) -> Result<u64, Refused> {
        let (iova, len, flags) = (request.iova.get(), request.len.get(), request.flags.get());
        refuse_if(lacks_room::<DmaUnmap>(request.argsz), "DMA_UNMAP: argsz is too small")?;
        if flags & dma::DIRTY_BITMAP != 0 {
            return Err(refused(Errno::NOTSUP, "DMA_UNMAP: there is no dirty bitmap"));
        }
        refuse_if(flags & !dma::ALL != 0, "DMA_UNMAP: flags that are not known")?;
        let range = if flags & dma::ALL != 0 {
            refuse_if(iova != 0 || len != 0, "DMA_UNMAP: address and length of everything are 0")?;
            0..self.maps.len()
        } else {
            self.within(iova, len)?
        };
        let mut unmapped = 0;
        for at in range.rev() {
            let map = &self.maps[at];
            if map.memory.is_some() {
                match port.unmap_dma(map.iova) {
                    // An earlier request that timed out may have been executed after all.
                    Ok(()) | Err(PortError::NotMapped) => {}
                    // The mapping stays, and so does the memory.
                    Err(error) => return Err(error.into()),
                }
            }
            unmapped += self.maps.remove(at).len;
        }
        Ok(unmapped)
    }

    /// Returns the mappings within `len` bytes from `iova`, all of them whole.
    fn within(&self, iova: u64, len: u64) -> Result<std::ops::Range<usize>, Refused> {
        let end = iova.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or_else(|| invalid("DMA_UNMAP: no such range"))?;
        let first = self.maps.partition_point(|map| map.last() < iova);
        let after = self.maps.partition_point(|map| map.iova < end);
        let Some(maps) = self.maps.get(first..after).filter(|maps| !maps.is_empty()) else {
            return Err(refused(Errno::NOENT, "DMA_UNMAP: nothing is mapped there"));
        };
        let cut = maps.iter().any(|map| map.iova < iova || map.last() >= end);
        refuse_if(cut, "DMA_UNMAP: a part of a mapping")?;
        Ok(first..after)
    }
}
