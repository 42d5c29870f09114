//! Tests of the crate as a whole that need its insides.

pub(crate) mod busy;
/// Changes while another waits for metadata from the device.
mod cold;
