//! Doorbells: the only registers on the fast path.

#![expect(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use meantime_nvme_spec::dbbuf::must_ring;
use meantime_nvme_spec::soft_port::{DoorbellCell, Doorbells, Parking, SoftPort};

/// One doorbell register.
///
/// It is mapped device memory, memory shared with a software SSD (an aligned 32-bit store reaches
/// both), or a message to the process that serves the device.
pub struct Doorbell {
    /// The cell that values are stored to: the register, or its shadow.
    cell: NonNull<DoorbellCell>,
    /// A cell that is not 0 when the device needs a kick to notice a new tail; `None` if the device
    /// always notices the store.
    needs_kick: Option<NonNull<DoorbellCell>>,
    kick: Kick,
    /// Keeps every cell mapped.
    _owner: Arc<dyn Any + Send + Sync>,
}

/// Wakes a software SSD whose thread has parked.
pub trait Wake: Send + Sync {
    /// Wakes it; harmless if it is awake.
    fn wake(&self);
}

/// Writes a doorbell that is not memory. Slow: used only without an alternative.
pub trait WriteDoorbell: Send + Sync {
    /// Writes `value`. The controller may see it before the call returns, or some time after.
    fn write(&self, value: u32);
}

/// A kick: what is done after a store so that the device notices it.
enum Kick {
    /// Nothing: the device sees its registers.
    Nothing,
    /// Waking a software SSD that has parked.
    Wake(Arc<dyn Wake>),
    /// Writing the register, if the controller asks for it by EventIdx.
    #[cfg_attr(loom, expect(dead_code, reason = "`with_shadow` makes it, which loom has not"))]
    Register(Shadowed),
    /// Sending the value by message: the store itself reaches no device.
    Message(Arc<dyn WriteDoorbell>),
}

/// A register behind its shadow (NVMe Base 1.4 §5.7 and §7.13).
struct Shadowed {
    register: NonNull<DoorbellCell>,
    /// Writes the register, if it is not memory.
    message: Option<Arc<dyn WriteDoorbell>>,
    /// Wakes the software SSD afterwards: one that asks for register writes may have parked.
    waker: Option<Arc<dyn Wake>>,
    /// The value beyond which the controller wants the register written.
    event_idx: NonNull<DoorbellCell>,
    /// The value last stored in the shadow.
    last: Cell<u16>,
    /// Keeps shadow and EventIdx mapped.
    _owner: Arc<dyn Any + Send + Sync>,
}

/// `needs_kick` of a shadowed doorbell, whose store is never enough.
#[cfg(not(loom))]
static ALWAYS: DoorbellCell = DoorbellCell::new(1);

// SAFETY: the cells are atomics, and what keeps them mapped is shared by reference count; nothing
// is bound to a thread.
unsafe impl Send for Doorbell {}

struct PortWaker(Arc<dyn SoftPort>);

impl Wake for PortWaker {
    fn wake(&self) {
        self.0.wake();
    }
}

impl Doorbell {
    /// The doorbell at `index` of a software SSD in this process; `None` if it does not exist.
    pub fn soft(
        doorbells: &Arc<Doorbells>,
        index: usize,
        port: &Arc<dyn SoftPort>,
    ) -> Option<Self> {
        let cell = NonNull::from(doorbells.get(index)?);
        let parked = NonNull::from(doorbells.parking().cell());
        let kick = Kick::Wake(Arc::new(PortWaker(Arc::clone(port))));
        let owner = Arc::clone(doorbells) as Arc<dyn Any + Send + Sync>;
        Some(Self { cell, needs_kick: Some(parked), kick, _owner: owner })
    }

    /// The doorbell register at `cell`, whose writes the device sees.
    ///
    /// # Safety
    /// `cell` must be aligned and stay mapped, for atomic access, as long as `owner` lives.
    pub unsafe fn mapped(cell: NonNull<DoorbellCell>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { cell, needs_kick: None, kick: Kick::Nothing, _owner: owner }
    }

    /// The doorbell at `cell` of a software SSD that sets `parked` when `waker` has to wake it.
    ///
    /// # Safety
    /// Both cells must be aligned and stay mapped, for atomic access, as long as `owner` lives.
    pub unsafe fn parking(
        cell: NonNull<DoorbellCell>,
        parked: NonNull<DoorbellCell>,
        waker: Arc<dyn Wake>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { cell, needs_kick: Some(parked), kick: Kick::Wake(waker), _owner: owner }
    }

    /// A doorbell that is written by `message`.
    pub fn by_message(message: Arc<dyn WriteDoorbell>) -> Self {
        // The first cell is read by no device; the second says that a store is never enough.
        let cells = Arc::new([DoorbellCell::new(0), DoorbellCell::new(1)]);
        let (cell, needs_kick) = (NonNull::from(&cells[0]), NonNull::from(&cells[1]));
        Self { cell, needs_kick: Some(needs_kick), kick: Kick::Message(message), _owner: cells }
    }

    /// Puts the doorbell behind its shadow. Register, shadow and EventIdx must be 0.
    ///
    /// # Safety
    /// `shadow` and `event_idx` must be aligned and stay mapped, for atomic access, as long as
    /// `owner` lives.
    #[cfg(not(loom))] // Whose atomics cannot be static.
    pub unsafe fn with_shadow(
        self,
        shadow: NonNull<DoorbellCell>,
        event_idx: NonNull<DoorbellCell>,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let (message, waker) = match self.kick {
            Kick::Message(message) => (Some(message), None),
            Kick::Wake(waker) => (None, Some(waker)),
            _ => (None, None),
        };
        let (register, last) = (self.cell, Cell::new(0));
        let shadowed = Shadowed { register, message, waker, event_idx, last, _owner: owner };
        Self {
            cell: shadow,
            needs_kick: Some(NonNull::from(&ALWAYS)),
            kick: Kick::Register(shadowed),
            _owner: self._owner,
        }
    }

    #[inline(always)]
    fn store(&self, value: u16) {
        // SAFETY: `cell` is mapped as long as an owner in `self` lives: by construction, or by the
        // caller's promise.
        let cell = unsafe { self.cell.as_ref() };
        // Release: the entries that this doorbell announces, and the data they point to, are
        // visible before it is (ARCHITECTURE.md §2, rules 1, 3 and 4).
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a barrier changes nothing. The device is outside the domain of Release: stores to
        // normal memory have to be ordered before one to device memory by DMB OSHST.
        unsafe {
            std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
        }
        cell.store(u32::from(value), Ordering::Release);
    }

    /// Announces a new submission queue tail, and wakes a software SSD that has parked.
    #[inline(always)]
    pub fn write_tail(&self, tail: u16) {
        self.store(tail);
        if let Some(needs_kick) = self.needs_kick
            // SAFETY: as for `cell` in `store`, or a static.
            && Parking::of(unsafe { needs_kick.as_ref() }).must_wake()
        {
            self.kick(tail);
        }
    }

    /// Announces a new completion queue head. Wakes no thread: a software SSD that waits for room
    /// in a completion queue checks again within a millisecond.
    #[inline(always)]
    pub fn write_head(&self, head: u16) {
        self.store(head);
        if let Kick::Register(_) | Kick::Message(_) = &self.kick {
            // The shadow before EventIdx, as in `Parking::must_wake`.
            fence(Ordering::SeqCst);
            self.kick(head);
        }
    }

    /// Makes the device notice that `value` was stored. The caller has made a full fence.
    #[cold]
    #[inline(never)]
    fn kick(&self, value: u16) {
        match &self.kick {
            Kick::Nothing => {}
            Kick::Wake(waker) => waker.wake(),
            Kick::Message(message) => message.write(value.into()),
            Kick::Register(shadowed) => {
                let last = shadowed.last.replace(value);
                // SAFETY: mapped as long as the owners in `self` live, by the callers' promises.
                let (register, event_idx) =
                    unsafe { (shadowed.register.as_ref(), shadowed.event_idx.as_ref()) };
                // Before it sleeps the controller sets EventIdx and then reads the shadow once
                // more. With the fence before this load, one side sees the other's store (as in
                // `soft_port::Parking`).
                if must_ring(event_idx.load(Ordering::Relaxed), value.into(), last.into()) {
                    match &shadowed.message {
                        None => register.store(u32::from(value), Ordering::Release),
                        Some(message) => message.write(value.into()),
                    }
                    if let Some(waker) = &shadowed.waker {
                        waker.wake();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_shadowed_register_is_rung_when_event_idx_is_passed() {
        let cells: Arc<[AtomicU32; 3]> = Arc::new([const { AtomicU32::new(0) }; 3]);
        let at = |index: usize| NonNull::from(&cells[index]);
        let owner: Arc<dyn Any + Send + Sync> = Arc::clone(&cells) as _;
        // SAFETY: `owner` keeps the array allocated.
        let bell =
            unsafe { Doorbell::mapped(at(0), Arc::clone(&owner)).with_shadow(at(1), at(2), owner) };
        let seen = || (cells[0].load(Ordering::Relaxed), cells[1].load(Ordering::Relaxed));
        bell.write_tail(1); // From 0 to 1 leaves 0, where EventIdx is.
        assert_eq!(seen(), (1, 1));
        bell.write_tail(2); // EventIdx is behind: the controller is looking.
        assert_eq!(seen(), (1, 2));
        cells[2].store(3, Ordering::Relaxed);
        bell.write_tail(3);
        assert_eq!(seen(), (1, 3));
        bell.write_tail(5);
        assert_eq!(seen(), (5, 5));
    }

    #[test]
    fn a_doorbell_by_message_is_sent_and_a_shadow_spares_it() {
        struct Sent(std::sync::Mutex<Vec<u32>>);
        impl WriteDoorbell for Sent {
            fn write(&self, value: u32) {
                self.0.lock().unwrap().push(value);
            }
        }
        let sent = Arc::new(Sent(std::sync::Mutex::default()));
        let bell = Doorbell::by_message(Arc::clone(&sent) as Arc<dyn WriteDoorbell>);
        bell.write_tail(1);
        bell.write_head(2);
        assert_eq!(*sent.0.lock().unwrap(), [1, 2]);

        let cells: Arc<[AtomicU32; 2]> = Arc::new([const { AtomicU32::new(0) }; 2]);
        let (shadow, event_idx) = (NonNull::from(&cells[0]), NonNull::from(&cells[1]));
        let owner: Arc<dyn Any + Send + Sync> = Arc::clone(&cells) as _;
        // SAFETY: `owner` keeps the array allocated.
        let bell = unsafe { bell.with_shadow(shadow, event_idx, owner) };
        bell.write_tail(1);
        bell.write_tail(2);
        assert_eq!(cells[0].load(Ordering::Relaxed), 2);
        assert_eq!(*sent.0.lock().unwrap(), [1, 2, 1]);
    }
}
