//! Tests of the crate as a whole that need its insides.

pub(crate) mod busy;
