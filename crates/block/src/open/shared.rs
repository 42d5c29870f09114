//! The controllers that this process has open: a function can only be driven once, and its
//! namespaces share the controller.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::super::error::OpenError;
use super::super::uri::Coalescing;
use meantime_nvme::{Controller, Error};

static OPEN: Mutex<Vec<(String, Weak<Controller>)>> = Mutex::new(Vec::new());

/// Returns the controller called `name`, if it is open and was not given up, or else the result of
/// `enable`. The options of the first caller apply. Calls are serialised, because enabling takes
/// milliseconds.
pub(super) fn controller(
    name: &str,
    enable: impl FnOnce() -> Result<Arc<Controller>, OpenError>,
) -> Result<Arc<Controller>, OpenError> {
    // The list is consistent after a panic: an entry is pushed whole.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, controller)| controller.strong_count() > 0);
    let known = open
        .iter()
        .filter(|(known, _)| known == name)
        .find_map(|(_, controller)| controller.upgrade());
    if let Some(controller) = known.filter(|controller| controller.gone().is_none()) {
        return Ok(controller);
    }
    let controller = enable()?;
    open.retain(|(known, _)| known != name);
    open.push((name.to_owned(), Arc::downgrade(&controller)));
    Ok(controller)
}

/// Sets the interrupt coalescing that a URI asks for. The last URI that names a shared controller
/// decides. Nothing is undone when the device is closed: the setting is not saved in the device,
/// and the next driver of the controller, also the kernel's, resets it.
pub(super) fn coalesce(
    controller: &Controller,
    coalescing: Option<Coalescing>,
) -> Result<(), Error> {
    let Some(Coalescing { completions, time_100us }) = coalescing else { return Ok(()) };
    controller.set_interrupt_coalescing(completions, time_100us)
}
