//! Requests as futures (docs to come).

mod channel;
mod driver;
mod io;
mod sharing;
mod slots;

pub use channel::{AsyncChannel, SharedChannel};
pub use driver::{Driver, DriverTaken};
pub use io::{Io, Plain, Transfer};
pub use sharing::{Local, Shared, Sharing};
