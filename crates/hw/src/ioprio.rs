//! A thread's I/O priority (`ioprio_set(2)`). The kernel's I/O schedulers use it, and this project
//! chooses a queue's class by it.

#![expect(unsafe_code)]

use std::io;

/// `IOPRIO_CLASS_…` of linux/ioprio.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoPriority {
    /// No priority was set.
    None,
    /// Real time, at a level from 0 (the most urgent) to 7.
    RealTime(u8),
    /// Best effort, at a level from 0 to 7.
    BestEffort(u8),
    /// Only when nothing else has I/O to do.
    Idle,
}

/// `IOPRIO_CLASS_SHIFT`.
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_WHO_PROCESS`: with number 0 it means the calling thread.
const WHO_PROCESS: libc::c_long = 1;
/// The levels of a class: 0 to 7.
const LEVELS: u16 = 8;

impl IoPriority {
    /// Decodes the kernel's format: the class in bits 15:13, the level in bits 2:0. An unknown
    /// class gives [`IoPriority::None`].
    fn of_bits(bits: u16) -> Self {
        // Bits 12:3 are a hint (Linux 6.5).
        let level = (bits % LEVELS) as u8;
        match bits >> CLASS_SHIFT {
            1 => Self::RealTime(level),
            2 => Self::BestEffort(level),
            3 => Self::Idle,
            _ => Self::None,
        }
    }

    /// Encodes the kernel's format.
    pub fn bits(self) -> u16 {
        let (class, level) = match self {
            Self::None => (0, 0),
            Self::RealTime(level) => (1, level),
            Self::BestEffort(level) => (2, level),
            Self::Idle => (3, 0),
        };
        (class << CLASS_SHIFT) | (u16::from(level) % LEVELS)
    }

    /// The priority of the calling thread.
    pub fn of_this_thread() -> Self {
        // SAFETY: takes two integers, and touches no memory of ours.
        let bits = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
        // A seccomp filter can forbid the call; with these arguments it fails for no other reason.
        u16::try_from(bits).map_or(Self::None, Self::of_bits)
    }

    /// Sets the priority of the calling thread.
    ///
    /// # Errors
    /// Fails if a capability is missing: real time and, on some kernels, idle require CAP_SYS_NICE
    /// or CAP_SYS_ADMIN.
    pub fn set_for_this_thread(self) -> io::Result<()> {
        let bits = libc::c_long::from(self.bits());
        // SAFETY: takes three integers, and touches no memory of ours.
        let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, bits) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of linux/ioprio.h, by hand: class × 8192 + level.
    #[test]
    fn as_the_kernel_has_it() {
        for (bits, priority) in [
            (0, IoPriority::None),
            (8192, IoPriority::RealTime(0)),
            (2 * 8192 + 7, IoPriority::BestEffort(7)),
            (3 * 8192, IoPriority::Idle),
        ] {
            assert_eq!((IoPriority::of_bits(bits), priority.bits()), (priority, bits));
        }
        // Hint bits between, and an unknown class.
        assert_eq!(IoPriority::of_bits(2 * 8192 + (5 << 3) + 1), IoPriority::BestEffort(1));
        assert_eq!(IoPriority::of_bits(7 * 8192), IoPriority::None);
    }

    #[test]
    fn it_is_the_thread_s_own() {
        let of_other = std::thread::spawn(|| {
            IoPriority::BestEffort(2).set_for_this_thread().expect("needs no right");
            IoPriority::of_this_thread()
        });
        assert_eq!(of_other.join().expect("no panic"), IoPriority::BestEffort(2));
        assert_ne!(IoPriority::of_this_thread(), IoPriority::BestEffort(2));
    }
}
