//! The software SSD over NVMe/TCP, as hosts on a socket see it.

mod basics;
mod closing;
mod peer;
mod trouble;
