//! Tests the software SSD as a host sees it, by entries and doorbells, and over vfio-user.

mod admin;
mod arbitration;
mod blocks;
mod faults;
mod features;
mod fused;
mod io;
mod logs;
mod power;
mod record;
mod served;
mod served_detach;
mod served_malformed;
mod served_peer;
mod sgl;
mod shadow;
mod stepped;
mod threaded;
