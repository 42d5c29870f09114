//! Interrupts: MSI-X vectors by eventfd.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use meantime_nvme_spec::vfio_user::{IrqInfo, SetIrqs, irq};

use super::message::{Refused, invalid, lacks_room, refuse_if};
use crate::port::FunctionPort;
use crate::sys;

/// The actions of SET_IRQS.
const ACTIONS: u32 = irq::SET_ACTION_MASK | irq::SET_ACTION_UNMASK | irq::SET_ACTION_TRIGGER;
/// The kinds of data of SET_IRQS.
const DATA: u32 = irq::SET_DATA_NONE | irq::SET_DATA_BOOL | irq::SET_DATA_EVENTFD;

#[derive(Default)]
struct Vector {
    event: Option<Arc<OwnedFd>>,
    masked: bool,
}

/// The eventfds that a client has installed.
pub(super) struct Vectors(Vec<Vector>);

impl Vectors {
    pub(super) fn new(count: u16) -> Self {
        Self((0..count).map(|_| Vector::default()).collect())
    }

    /// Executes DEVICE_GET_IRQ_INFO.
    pub(super) fn info(&self, request: &IrqInfo) -> Result<IrqInfo, Refused> {
        refuse_if(lacks_room::<IrqInfo>(request.argsz), "DEVICE_GET_IRQ_INFO: argsz is too small")?;
        let index = request.index.get();
        refuse_if(index >= irq::COUNT, "DEVICE_GET_IRQ_INFO: no such kind of interrupt")?;
        let argsz = size_of::<IrqInfo>() as u32;
        let (flags, count) =
            if index == irq::MSIX { (irq::INFO_EVENTFD, self.0.len() as u32) } else { (0, 0) };
        Ok(IrqInfo {
            argsz: argsz.into(),
            flags: flags.into(),
            index: index.into(),
            count: count.into(),
        })
    }

    /// Executes DEVICE_SET_IRQS, with the data and the descriptors that came with it.
    pub(super) fn set(
        &mut self,
        port: &dyn FunctionPort,
        request: &SetIrqs,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        let (flags, start, count) = (request.flags.get(), request.start.get(), request.count.get());
        let (action, kind) = (flags & ACTIONS, flags & DATA);
        refuse_if(lacks_room::<SetIrqs>(request.argsz), "DEVICE_SET_IRQS: argsz is too small")?;
        let one = action.count_ones() == 1 && kind.count_ones() == 1;
        let wrong = !one || flags & !(ACTIONS | DATA) != 0;
        refuse_if(wrong, "DEVICE_SET_IRQS: not one action and one kind of data")?;
        let index = request.index.get();
        refuse_if(index >= irq::COUNT, "DEVICE_SET_IRQS: no such kind of interrupt")?;
        let there = if index == irq::MSIX { self.0.len() as u64 } else { 0 };
        let beyond = u64::from(start) + u64::from(count) > there;
        refuse_if(beyond, "DEVICE_SET_IRQS: beyond the last vector")?;
        // The range was checked just above, and is within the vectors.
        let range = start as usize..start as usize + count as usize;
        let expected = if kind == irq::SET_DATA_BOOL { range.len() } else { 0 };
        let why = "DEVICE_SET_IRQS: not as much data as there are vectors";
        refuse_if(data.len() != expected, why)?;
        let for_all = kind == irq::SET_DATA_EVENTFD && fds.len() == range.len();
        let why = "DEVICE_SET_IRQS: not as many descriptors as there are vectors";
        refuse_if(!fds.is_empty() && !for_all, why)?;
        if range.is_empty() {
            // This is how a kind of interrupt is turned off.
            return if kind == irq::SET_DATA_NONE && action == irq::SET_ACTION_TRIGGER {
                self.clear(port)
            } else {
                Err(invalid("DEVICE_SET_IRQS: no vectors, but for turning all of them off"))
            };
        }
        match (action, kind) {
            (irq::SET_ACTION_TRIGGER, irq::SET_DATA_EVENTFD) => self.install(port, range, fds),
            // Eventfds that mask and unmask exist for INTx only.
            (_, irq::SET_DATA_EVENTFD) => Err(invalid("DEVICE_SET_IRQS: eventfds only trigger")),
            _ => {
                for (nth, vector) in range.enumerate() {
                    if kind == irq::SET_DATA_NONE || data[nth] != 0 {
                        self.act(port, vector, action)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Installs eventfds, or removes them if none came.
    fn install(
        &mut self,
        port: &dyn FunctionPort,
        range: std::ops::Range<usize>,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        // A write to any other descriptor could block the SSD's thread.
        refuse_if(!fds.iter().all(is_eventfd), "DEVICE_SET_IRQS: a descriptor that is no eventfd")?;
        let mut fds = fds.into_iter();
        for vector in range {
            self.replace(port, vector, fds.next().map(Arc::new))?;
        }
        Ok(())
    }

    /// Replaces a vector's eventfd. Keeps the former one if the controller may still be writing to
    /// it.
    fn replace(
        &mut self,
        port: &dyn FunctionPort,
        vector: usize,
        event: Option<Arc<OwnedFd>>,
    ) -> Result<(), Refused> {
        let former = std::mem::replace(&mut self.0[vector].event, event);
        let applied = self.apply(port, vector);
        if applied.is_err() {
            self.0[vector].event = former;
        }
        applied
    }

    fn act(&mut self, port: &dyn FunctionPort, vector: usize, action: u32) -> Result<(), Refused> {
        let v = &mut self.0[vector];
        if action != irq::SET_ACTION_TRIGGER {
            v.masked = action == irq::SET_ACTION_MASK;
            self.apply(port, vector)?;
        }
        let v = &self.0[vector];
        // Interrupts are not counted while they are masked, because a spurious one is harmless.
        if action != irq::SET_ACTION_MASK
            && let Some(event) = &v.event
            && sys::is_writable(event)
        {
            sys::signal(event);
        }
        Ok(())
    }

    /// Tells the controller what to signal.
    fn apply(&self, port: &dyn FunctionPort, vector: usize) -> Result<(), Refused> {
        let v = &self.0[vector];
        let event = v.event.as_ref().filter(|_| !v.masked).map(Arc::clone);
        // There are at most 2,048 vectors.
        Ok(port.set_vector(vector as u16, event.map(Into::into))?)
    }

    /// Removes all eventfds.
    fn clear(&mut self, port: &dyn FunctionPort) -> Result<(), Refused> {
        for vector in 0..self.0.len() {
            self.0[vector].masked = false;
            if self.0[vector].event.is_some() {
                self.replace(port, vector, None)?;
            }
        }
        Ok(())
    }

    /// Empties every eventfd. Otherwise a client that fills one and disconnects could block the
    /// SSD's thread in a write to it.
    pub(super) fn drain(&self) {
        for event in self.0.iter().filter_map(|vector| vector.event.as_ref()) {
            if !sys::is_writable(event) {
                // A non-zero eventfd can be read without blocking.
                let _ = rustix::io::read(event, &mut [0; 8]);
            }
        }
    }
}

fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}
