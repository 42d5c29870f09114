//! The open devices: jobs on one URI share one.

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use meantime_block::{Device, OpenError, OpenOptions};

struct Open {
    uri: String,
    device: Arc<Device>,
    /// The numbers of the jobs that were set up on it and have not ended.
    jobs: Vec<usize>,
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<Open>> {
    // Each step leaves the list consistent.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of `job`, which is open until [`release`].
pub(crate) fn hold(job: usize, uri: &str) -> Result<Arc<Device>, OpenError> {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(crate::hooks::at_exit);
    let mut list = list();
    if let Some(open) = list.iter_mut().find(|open| open.uri == uri) {
        if !open.jobs.contains(&job) {
            open.jobs.push(job);
        }
        return Ok(Arc::clone(&open.device));
    }
    let options = OpenOptions { protect: true, ..OpenOptions::default() };
    let device = Arc::new(meantime_block::open(uri, &options)?);
    list.push(Open { uri: uri.to_owned(), device: Arc::clone(&device), jobs: vec![job] });
    Ok(device)
}

/// Ends the hold of `job`. The device is closed with its last job.
pub(crate) fn release(job: usize) {
    let mut list = list();
    list.iter_mut().for_each(|open| open.jobs.retain(|other| *other != job));
    // The list is locked meanwhile: a job that opens the device again would find it in use.
    list.retain(|open| !open.jobs.is_empty());
}

/// Closes the devices of jobs that never began, and so did not close them.
pub(crate) fn close_all() {
    let all = std::mem::take(&mut *list());
    drop(all);
}
