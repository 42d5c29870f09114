//! The structures of the specifications, against bytes typed by hand.

mod codes;
mod golden_bytes;
mod golden_fabrics;
mod golden_options;
mod identify;
