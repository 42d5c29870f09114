//! The driver against the stepped SSD.

mod admin_trace;
mod device_events;
mod fault_answers;
mod fault_plans;
mod faults;
mod fused;
mod options;
mod retries;
