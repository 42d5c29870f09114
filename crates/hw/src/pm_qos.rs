//! The kernel's CPU latency limit, which bounds the idle states of CPUs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// The kernel's file for such limits.
pub const CPU_DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// The kernel's value when there is none: 2,000 s.
const NO_LIMIT_US: i32 = 2_000_000_000;

/// A limit that is in force on every CPU until it is dropped: the kernel removes it when the file
/// is closed, however the process ends.
///
/// With a limit of 0 an idle CPU enters no C-state with an exit latency. On most machines it then
/// polls, which costs power.
#[derive(Debug)]
pub struct PmQos {
    _open: File,
    latency_us: i32,
}

impl PmQos {
    /// Limits the exit latency of every CPU's idle state to `latency_us`.
    ///
    /// # Errors
    /// Fails if there is no such file (a kernel without CPU idle management), or if this process
    /// may not write to it.
    pub fn hold(latency_us: i32) -> io::Result<Self> {
        Self::hold_by(Path::new(CPU_DMA_LATENCY), latency_us)
    }

    /// The limit in force, set by any process; `None` if there is none.
    ///
    /// # Errors
    /// Fails if there is no such file (a kernel without CPU idle management), or if this process
    /// may not read it.
    pub fn in_force_us() -> io::Result<Option<i32>> {
        let mut bytes = [0; 4];
        File::open(CPU_DMA_LATENCY)?.read_exact(&mut bytes)?;
        Ok(Some(i32::from_ne_bytes(bytes)).filter(|us| *us < NO_LIMIT_US))
    }

    fn hold_by(path: &Path, latency_us: i32) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        // Four bytes are a binary number; the kernel parses other lengths as hexadecimal text.
        file.write_all(&latency_us.to_ne_bytes())?;
        Ok(Self { _open: file, latency_us })
    }

    /// The limit.
    pub fn latency_us(&self) -> i32 {
        self.latency_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_a_number_in_binary() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(PmQos::hold_by(file.path(), 7).unwrap().latency_us(), 7);
        assert_eq!(std::fs::read(file.path()).unwrap(), 7i32.to_ne_bytes());
    }

    #[test]
    fn a_held_limit_is_in_force() {
        // Not every process has permission.
        if let Ok(_held) = PmQos::hold(0) {
            assert_eq!(PmQos::in_force_us().unwrap(), Some(0));
        }
    }

    #[test]
    fn says_when_it_cannot() {
        let missing = PmQos::hold_by(Path::new("/nonexistent/latency"), 0).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
