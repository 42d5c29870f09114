//! The channels of this process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::ChannelControl;

/// In order of creation. Locked when a channel is made or dropped, and when the list is read.
static CHANNELS: Mutex<Vec<Weak<ChannelControl>>> = Mutex::new(Vec::new());

fn with<R>(act: impl FnOnce(&mut Vec<Weak<ChannelControl>>) -> R) -> R {
    act(&mut CHANNELS.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn add(control: &Arc<ChannelControl>) {
    with(|channels| channels.push(Arc::downgrade(control)));
}

pub(super) fn remove(id: u64) {
    with(|channels| {
        channels.retain(|weak| weak.upgrade().is_some_and(|control| control.id() != id))
    });
}

/// The current channels of this process, the oldest first. A dropped one is not listed; handles
/// that remain are [`ChannelControl::is_closed`].
pub fn channels() -> Vec<Arc<ChannelControl>> {
    with(|channels| {
        channels.iter().filter_map(Weak::upgrade).filter(|control| !control.is_closed()).collect()
    })
}

/// The channel with this [`ChannelControl::id`], if it still exists.
pub fn channel(id: u64) -> Option<Arc<ChannelControl>> {
    channels().into_iter().find(|control| control.id() == id)
}
