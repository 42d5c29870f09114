//! Interrupts by eventfd.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::IntoBytes;

use super::error::{Result, VfioError};
use super::ioctl;
use super::uapi::{self, IrqInfo, IrqSet};
use crate::event::EventFd;
use crate::{HwError, Result as HwResult};

/// The MSI-X vectors of a device.
///
/// MSI-X is enabled once, before the controller is, with all vectors that will be used and an
/// eventfd for none of them; where the kernel can add vectors later (Linux 6.5), with the first
/// one. From then on each vector is set separately without touching others, so no interrupt of a
/// live queue is ever lost. The alternative, to disable and enable all vectors when one is added,
/// loses interrupts that arrive in between.
pub(super) struct Vectors {
    /// The event of each vector.
    events: Vec<Option<EventFd>>,
}

impl Vectors {
    /// Enables MSI-X with up to `wanted` vectors. A device without MSI-X has none, and is polled.
    pub(super) fn enable(device: BorrowedFd<'_>, wanted: u16) -> Result<Self> {
        let info = irq_info(device, uapi::MSIX_IRQ).unwrap_or_default();
        let count = info.count.min(u32::from(wanted));
        let at_once = if info.flags & uapi::IRQ_NORESIZE == 0 { 1 } else { count };
        let granted = allocate(count, at_once, |vectors| {
            set(device, uapi::MSIX_IRQ, 0, &vec![-1; vectors as usize])
        });
        let granted = granted.map_err(VfioError::os(
            "the kernel allocates no interrupt vectors (does another device hold them all?)",
        ))?;
        if granted < count {
            tracing::warn!(
                granted,
                wanted = count,
                "the kernel is short of interrupt vectors: fewer queues can have one"
            );
        }
        Ok(Self { events: vec![None; granted as usize] })
    }

    pub(super) fn count(&self) -> u16 {
        self.events.len() as u16
    }

    /// Makes `vector` signal `event`; `None` signals nothing.
    pub(super) fn set(
        &mut self,
        device: BorrowedFd<'_>,
        vector: u16,
        event: Option<&EventFd>,
    ) -> HwResult<()> {
        let count = self.events.len();
        let place = self.events.get_mut(usize::from(vector)).ok_or_else(|| HwError::Missing {
            what: format!("interrupt vector {vector}: it has {count}, the first is 0"),
        })?;
        let fd = event.map_or(-1, AsRawFd::as_raw_fd);
        let done = set(device, uapi::MSIX_IRQ, u32::from(vector), &[fd]);
        match done {
            Ok(0) => {}
            // No event listens, so a refusal by the kernel does not matter.
            _ if event.is_none() => {}
            Ok(_) | Err(_) => {
                let source =
                    done.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC));
                return Err(HwError::Os {
                    what: "the kernel has no interrupt vector to spare: use a polled policy, or \
                        fewer threads",
                    source,
                });
            }
        }
        *place = event.cloned();
        Ok(())
    }

    /// Wakes every thread that waits for an interrupt: no more will come.
    pub(super) fn signal_all(&self) {
        self.events.iter().flatten().for_each(EventFd::signal);
    }
}

/// Calls `enable` for `at_once` of `count` vectors, and for fewer while it refuses. Returns the
/// number that can be used.
fn allocate(
    count: u32,
    at_once: u32,
    mut enable: impl FnMut(u32) -> io::Result<u32>,
) -> io::Result<u32> {
    let mut vectors = at_once.min(count);
    while vectors > 0 {
        match enable(vectors)? {
            0 if at_once < count => return Ok(count),
            0 => return Ok(vectors),
            // The kernel offers this number, and has enabled none.
            fewer => vectors = fewer.min(vectors - 1),
        }
    }
    Ok(0)
}

/// Makes the interrupt `index` (errors, or the kernel's request for the device) signal `event`. Not
/// every device supports each of them.
pub(super) fn listen(device: BorrowedFd<'_>, index: u32, event: &EventFd) -> bool {
    matches!(irq_info(device, index), Ok(IrqInfo { count: 1.., .. }))
        && matches!(set(device, index, 0, &[event.as_raw_fd()]), Ok(0))
}

fn irq_info(device: BorrowedFd<'_>, index: u32) -> io::Result<IrqInfo> {
    let mut info = IrqInfo { argsz: IrqInfo::BYTES, index, ..Default::default() };
    ioctl::structure(device, uapi::DEVICE_GET_IRQ_INFO, &mut info)?;
    Ok(info)
}

/// Sets the eventfds that the interrupts from `start` on signal; −1 stands for none.
fn set(device: BorrowedFd<'_>, index: u32, start: u32, fds: &[i32]) -> io::Result<u32> {
    ioctl::bytes(device, uapi::DEVICE_SET_IRQS, &mut request(index, start, fds))
}

fn request(index: u32, start: u32, fds: &[i32]) -> Vec<u8> {
    let argsz = IrqSet::BYTES + size_of_val(fds) as u32;
    let flags = uapi::IRQ_SET_EVENTFD | uapi::IRQ_SET_TRIGGER;
    let head = IrqSet { argsz, flags, index, start, count: fds.len() as u32 };
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend(fds.iter().flat_map(|fd| fd.to_ne_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn a_request_is_laid_out_as_the_header_says() {
        let bytes = request(uapi::MSIX_IRQ, 3, &[5, -1]);
        let expected = [
            28, 0, 0, 0, // argsz
            0x24, 0, 0, 0, // DATA_EVENTFD, ACTION_TRIGGER
            2, 0, 0, 0, // MSI-X
            3, 0, 0, 0, 2, 0, 0, 0, // two from the fourth on
            5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn all_vectors_are_taken_at_once_where_none_can_be_added() {
        let mut asked = Vec::new();
        let granted = allocate(33, 33, |vectors| {
            asked.push(vectors);
            Ok(0)
        });
        assert_eq!((granted.unwrap(), asked), (33, vec![33]));
    }

    #[test]
    fn a_kernel_short_of_vectors_gives_those_it_has() {
        let mut asked = Vec::new();
        let granted = allocate(33, 33, |vectors| {
            asked.push(vectors);
            Ok(if vectors > 9 { 9 } else { 0 })
        });
        assert_eq!((granted.unwrap(), asked), (9, vec![33, 9]));
        // The loop ends even if the kernel contradicts itself.
        let mut calls = 0;
        let granted = allocate(5, 5, |vectors| {
            calls += 1;
            Ok(vectors)
        });
        assert_eq!((granted.unwrap(), calls), (0, 5));
        assert!(allocate(5, 5, |_| Err(io::ErrorKind::OutOfMemory.into())).is_err());
    }

    #[test]
    fn one_vector_is_enough_where_vectors_can_be_added() {
        let mut asked = Vec::new();
        let granted = allocate(33, 1, |vectors| {
            asked.push(vectors);
            Ok(0)
        });
        assert_eq!((granted.unwrap(), asked), (33, vec![1]));
        assert_eq!(allocate(0, 0, |_| Ok(0)).unwrap(), 0);
    }
}
