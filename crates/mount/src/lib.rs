//! Mounts an ext4 file system of ours in the kernel through FUSE, so that any program can use it.
//!
//! # What it is for
//! [`Mount::new`] serves a [`FileSystem`](meantime_ext4::FileSystem) at a directory until
//! [`Mount::unmount`] or umount(8). One process owns device and journal. All others use the file
//! system through the kernel, unchanged.
//!
//! # What it promises
//! - The kernel checks permissions (`default_permissions`) by the owners, modes and lists in the
//!   file system. We do what FUSE leaves to the server (set-user bits, umask, default lists).
//! - When `fsync` returns, its data is on the device, as the file system promises.
//! - A malformed request gets an error. A panic in one request does not end the mount.
//! - The process that serves a mount never uses it, except to write back at the end what the kernel
//!   still caches, which a thread of its own does.
//!
//! # What the kernel keeps
//! The kernel keeps names and attributes for a day, or for [`Options::timeout`]. It keeps file
//! content without limit, because all changes come through the same kernel. The cache is
//! write-through: the kernel holds no data that we lack, except what programs write to mapped
//! files. The kernel handles locks (`flock`, `fcntl`) itself.
//!
//! Making or removing a name makes the kernel fetch its directory's attributes again: it checks
//! permissions, and treats any change of a directory as a possible change of its mode. A close asks
//! nothing (FOPEN_NOFLUSH), unless programs can take the shared-memory path. For these `FLUSH` is
//! answered although there is nothing to do, because after ENOSYS the kernel would never again tell
//! us that a file is closed.
//!
//! # Parts, in reading order
//! ```text
//!   fuse/      the protocol, as bytes: wire (structures), request (reading them), opcode, flags
//!   session/   a connection: /dev/fuse and the mount (kernel, fusermount, namespace), init (what
//!                both can do)
//!   server/    worker (threads); mod (what is asked, in one list), names, attributes, data,
//!                directories, extended, ioctl; state (what these share); handles (what is open);
//!                answer; counts; notice (what the kernel is told unasked); kept (its cache beside
//!                direct writes); shared_memory/ (the way past the kernel)
//!   mount      Mount: begin and end
//!   namespace  a mount that only one program sees
//!   options    the words after -o
//!   bare       files in memory: what a FUSE server takes that does nothing (feature `bare`)
//! ```

#![deny(unsafe_code)]

#[cfg(feature = "bare")]
mod bare;
mod fuse;
mod mount;
pub mod namespace;
mod options;
mod server;
mod session;

#[cfg(feature = "bare")]
pub use bare::BareServer;
pub use mount::{Mount, ServeError};
pub use options::{Options, OptionsError, Words};
pub use server::counts::{CallCounts, Calls, RequestCounts, Requests};
pub use session::{SessionError, UNMOUNTED};
