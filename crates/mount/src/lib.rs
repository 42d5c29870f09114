//! Mounts an ext4 file system of ours in the kernel, by FUSE: any program reaches it.
//!
//! # What it is for
//! [`Mount::new`] serves a [`FileSystem`](meantime_ext4::FileSystem) at a directory until
//! [`Mount::unmount`], or until somebody unmounts it. One process owns device and journal; all
//! others go through their kernel, and need not know.
//!
//! # What it promises
//! - The kernel checks permissions (`default_permissions`), by the owners, modes and lists that the
//!   file system has. What is left to a file system (set-user bits, umask, default lists) is done.
//! - What `fsync` returned for is on the device, as the file system promises it.
//! - A request that makes no sense is answered with an error. One that goes wrong inside ends
//!   nobody's mount.
//! - The process that serves a mount never uses it, except to write back what the kernel still has
//!   at the end: and that in a thread of its own.
//!
//! # What the kernel keeps
//! Names and attributes for a day, or as [`Options::timeout`] says; the content of files as long as
//! it likes, because all changes come by the same kernel. It writes through: it has nothing that we
//! have not, except what programs write to mapped files. Locks (`flock`, `fcntl`) are its own.
//!
//! Making or removing a name asks for its directory's attributes each time: the kernel checks
//! permissions, and takes any change of a directory for one of its mode. `FLUSH` is answered, never
//! refused: it is how we see that a file is closed.
//!
//! # Parts, in reading order
//! ```text
//!   fuse/      the protocol, as bytes: wire (structures), request (reading them), opcode, flags
//!   session/   a connection: /dev/fuse and the mount (kernel, fusermount, namespace), init (what
//!                both can do)
//!   server/    worker (threads); mod (what is asked, in one list), names, attributes, data,
//!                directories, extended, ioctl; handles (what is open); answer;
//!                kept (the kernel's cache beside direct writes)
//!   mount      Mount: begin and end
//!   namespace  a mount that only one program sees
//!   options    the words after -o
//! ```

#![deny(unsafe_code)]

mod fuse;
mod mount;
pub mod namespace;
mod options;
mod server;
mod session;

pub use mount::{Mount, ServeError};
pub use options::{Options, OptionsError, Words};
pub use session::SessionError;
