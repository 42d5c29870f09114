//! The channels of this process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Steer;

/// In the order in which they were made. Locked when a channel is made or dropped, and by whoever
/// looks.
static CHANNELS: Mutex<Vec<Weak<Steer>>> = Mutex::new(Vec::new());

fn with<R>(act: impl FnOnce(&mut Vec<Weak<Steer>>) -> R) -> R {
    act(&mut CHANNELS.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn add(steer: &Arc<Steer>) {
    with(|channels| channels.push(Arc::downgrade(steer)));
}

pub(super) fn remove(id: u64) {
    with(|channels| channels.retain(|weak| weak.upgrade().is_some_and(|steer| steer.id() != id)));
}

/// The channels that this process has now, the oldest first. One that is dropped is not listed any
/// more; who still has its [`Steer`] finds [`Steer::is_closed`].
pub fn channels() -> Vec<Arc<Steer>> {
    with(|channels| {
        channels.iter().filter_map(Weak::upgrade).filter(|steer| !steer.is_closed()).collect()
    })
}

/// The channel with this [`Steer::id`], if it is still there.
pub fn channel(id: u64) -> Option<Arc<Steer>> {
    channels().into_iter().find(|steer| steer.id() == id)
}
