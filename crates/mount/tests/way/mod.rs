//! The way by which programs of tests reach files of a mount (docs/shared-memory-path.md).

use std::process::Command;

/// How a program reaches files of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the kernel.
    Fuse,
    /// With the library that `meantime run` loads.
    SharedMemory,
}

impl Way {
    /// Makes `command`, and the processes that it starts, use this way on the mount whose `st_dev`
    /// is `device`, and whose owner listens at `socket`.
    pub(crate) fn lead(self, command: &mut Command, device: u64, socket: &str) {
        if self == Self::SharedMemory {
            let library = std::env::current_exe().unwrap();
            let library = library.with_file_name("libmeantime_intercept.so");
            assert!(library.is_file(), "cargo builds {} with these tests", library.display());
            command.env("LD_PRELOAD", library);
            command.env(meantime_shm_rpc::VARIABLE, format!("{device}:{socket}"));
        }
    }
}
