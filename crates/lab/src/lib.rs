//! What Meantime is measured against, and experiments: nothing here is part of the product.
//!
//! - [`sim`]: a simulator, which replays device times through any policy in virtual time.
//! - [`published`]: published rules for how long to sleep before polling. [`register`] gives them
//!   their names, so that `hybrid-bucket`, `hybrid-min`, `ehp`, `pas` and `dpas` are policies of
//!   this process.
//! - [`floor`]: the exchange between two cores that no protocol can beat.

pub mod floor;
pub mod published;
pub mod sim;

pub use published::{Published, register};
