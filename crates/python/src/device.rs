//! Devices.

use std::sync::{Arc, Mutex, Weak};

use meantime_block::{
    Access, BlockDevice as _, BlockInfo, ChannelOptions, Device as BlockDevice, OpenOptions,
    Request,
};
use meantime_completion::Policy;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::channel::Channel;
use crate::error::{failed, misaligned, os_error, policy};
use crate::memory::Memory;
use crate::owned::{Owned, Slot, lock};
use crate::reactor::Reactor;
use crate::transfer::{Data, TransferChannel};

/// Requests in flight of a device's own channels.
const TRANSFER_DEPTH: u16 = 16;

/// What a device closes when it is closed.
pub(crate) trait Close: Send + Sync {
    fn close(&self);
}

/// An open device. Its channels end before it does.
pub(crate) struct Opened {
    /// Channels for synchronous calls that no thread uses now; each call takes one.
    idle: Mutex<Vec<TransferChannel>>,
    /// The objects that were made of the device.
    members: Mutex<Vec<Weak<dyn Close>>>,
    pub(crate) device: BlockDevice,
    pub(crate) policy: Policy,
    /// Why the device is not written.
    read_only: Option<String>,
}

impl Opened {
    pub(crate) fn info(&self) -> &BlockInfo {
        self.device.info()
    }

    /// The first block and the number of blocks of a range of bytes, which must be whole blocks of
    /// the device.
    pub(crate) fn blocks(&self, offset: u64, bytes: u64) -> PyResult<(u64, u64)> {
        let block = u64::from(self.info().block_bytes);
        for (what, value) in [("offset", offset), ("length", bytes)] {
            if value % block != 0 {
                return Err(misaligned(format!(
                    "{what} {value} is no multiple of {block}, the block size of {}",
                    self.info().uri
                )));
            }
        }
        let uri = &self.info().uri;
        let size = self.info().bytes();
        if offset > size || bytes > size - offset {
            let text =
                format!("{bytes} bytes at offset {offset} reach beyond the {size} bytes of {uri}");
            return Err(os_error(libc::EINVAL, text, None));
        }
        Ok((offset / block, bytes / block))
    }

    /// Refuses a device that was opened for reading only.
    pub(crate) fn check_writable(&self) -> PyResult<()> {
        let Some(why) = &self.read_only else { return Ok(()) };
        let uri = &self.info().uri;
        Err(os_error(libc::EROFS, format!("{uri} cannot be written: {why}"), None))
    }

    pub(crate) fn channel(
        &self,
        policy: Option<Policy>,
        depth: u16,
    ) -> PyResult<meantime_block::Channel> {
        let policy = policy.unwrap_or(self.policy);
        let options = ChannelOptions { depth, policy: Some(policy), ..ChannelOptions::default() };
        let channel = self.device.channel(&options).or_else(|error| {
            // Channels of earlier calls may have all the queues.
            let idle = std::mem::take(&mut *lock(&self.idle));
            if idle.is_empty() {
                return Err(error);
            }
            drop(idle);
            self.device.channel(&options)
        });
        channel.map_err(failed)
    }

    /// Closes `member`, too, when the device is closed.
    pub(crate) fn adopt(&self, member: &Arc<impl Close + 'static>) {
        let mut members = lock(&self.members);
        members.retain(|member| member.strong_count() > 0);
        let member = Arc::downgrade(member);
        members.push(member);
    }

    /// Runs `body` with an idle channel, or a new one. The interpreter must not be held.
    fn with_idle(&self, body: impl FnOnce(&mut TransferChannel) -> PyResult<()>) -> PyResult<()> {
        let taken = lock(&self.idle).pop();
        let mut idle = match taken {
            Some(idle) => idle,
            None => TransferChannel::new(self.channel(None, TRANSFER_DEPTH)?),
        };
        let result = body(&mut idle);
        lock(&self.idle).push(idle);
        result
    }
}

/// A block device.
#[pyclass(frozen, weakref, module = "meantime")]
pub(crate) struct Device {
    opened: Slot<Arc<Owned<Opened>>>,
    info: BlockInfo,
    policy: Policy,
}

/// Opens the device `uri` to read it or, if it can be, to write it, too.
pub(crate) fn open(uri: &str, access: Access, protect: bool) -> PyResult<BlockDevice> {
    let options = OpenOptions { access, protect, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map_err(failed)
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (uri, *, policy = None, read_only = false))]
    fn new(py: Python<'_>, uri: &str, policy: Option<&str>, read_only: bool) -> PyResult<Self> {
        let wanted = policy.map(self::policy).transpose()?;
        let access = if read_only { Access::Read } else { Access::WhatIsPossible };
        py.detach(|| {
            let device = open(uri, access, true)?;
            if let Some(policy) = wanted {
                device.can_wait(policy).map_err(failed)?;
            }
            let read_only = match read_only {
                true => Some("it was opened with read_only=True".to_owned()),
                false => device.read_only().map(str::to_owned),
            };
            let info = device.info().clone();
            let (idle, members) = Default::default();
            let policy = wanted.unwrap_or_default();
            let opened = Opened { idle, members, device, policy, read_only };
            Ok(Self { opened: Slot::new("device", Arc::new(Owned::new(opened))), info, policy })
        })
    }

    #[getter]
    fn uri(&self) -> &str {
        &self.info.uri
    }

    #[getter]
    fn size(&self) -> u64 {
        self.info.bytes()
    }

    #[getter]
    fn block_size(&self) -> u32 {
        self.info.block_bytes
    }

    #[getter]
    fn medium(&self) -> &str {
        &self.info.medium
    }

    #[getter]
    fn policy(&self) -> String {
        self.policy.to_string()
    }

    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.opened.get()?.read_only.is_some())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.opened.is_closed()
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let opened = self.opened.get()?;
        let (lba, _) = opened.blocks(offset, length as u64)?;
        PyBytes::new_with(py, length, |target| {
            py.detach(|| opened.with_idle(|idle| idle.transfer(lba, Data::Read(target))))
        })
    }

    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let opened = self.opened.get()?;
        let mut memory = Memory::writable(buffer)?;
        let (lba, _) = opened.blocks(offset, memory.len() as u64)?;
        py.detach(|| {
            opened.with_idle(|idle| idle.transfer(lba, Data::Read(memory.as_mut_slice())))
        })?;
        Ok(memory.len())
    }

    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let opened = self.opened.get()?;
        opened.check_writable()?;
        let memory = Memory::readable(data)?;
        let (lba, _) = opened.blocks(offset, memory.len() as u64)?;
        py.detach(|| opened.with_idle(|idle| idle.transfer(lba, Data::Write(memory.as_slice()))))?;
        Ok(memory.len())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.command(py, Request::flush())
    }

    fn discard(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        let opened = self.opened.get()?;
        opened.check_writable()?;
        let (lba, blocks) = opened.blocks(offset, length)?;
        if blocks == 0 {
            return Ok(());
        }
        self.command(py, Request::deallocate(lba, blocks))
    }

    #[pyo3(signature = (policy = None, depth = 32))]
    fn channel(&self, py: Python<'_>, policy: Option<&str>, depth: u16) -> PyResult<Channel> {
        let policy = policy.map(self::policy).transpose()?;
        let opened = self.opened.get()?;
        py.detach(|| Channel::new(opened, policy, depth))
    }

    #[pyo3(signature = (policy = None, depth = 128))]
    fn async_channel<'py>(
        slf: &Bound<'py, Self>,
        policy: Option<&str>,
        depth: u16,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("meantime._async")?;
        module.getattr("AsyncChannel")?.call1((slf, policy, depth))
    }

    /// Makes the native part of an asynchronous channel.
    #[pyo3(signature = (policy = None, depth = 128))]
    fn _reactor(&self, py: Python<'_>, policy: Option<&str>, depth: u16) -> PyResult<Reactor> {
        let policy = policy.map(self::policy).transpose()?;
        let opened = self.opened.get()?;
        py.detach(|| Reactor::new(opened, policy, depth))
    }

    fn close(&self, py: Python<'_>) {
        let Some(opened) = self.opened.close() else { return };
        py.detach(|| {
            let members = std::mem::take(&mut *lock(&opened.members));
            for member in members.iter().filter_map(Weak::upgrade) {
                member.close();
            }
            drop(opened);
        });
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.opened.get()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<meantime.Device {:?}, {} bytes{state}>", self.info.uri, self.info.bytes())
    }
}

impl Device {
    fn command(&self, py: Python<'_>, request: Request) -> PyResult<()> {
        let opened = self.opened.get()?;
        py.detach(|| opened.with_idle(|idle| idle.command(request)))
    }
}
