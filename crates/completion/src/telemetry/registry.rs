//! The channels of this process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{ChannelControl, QueueFigures};

/// The most devices of which sums are kept when their last channel is gone.
const DEVICES_MAX: usize = 64;
/// The name of the sum over the others.
const OTHERS: &str = "others";

struct Channels {
    /// In order of creation.
    live: Vec<Weak<ChannelControl>>,
    /// What closed channels had counted.
    closed: Vec<DeviceFigures>,
}

/// Locked when a channel is made or dropped, and when the list is read.
static CHANNELS: Mutex<Channels> = Mutex::new(Channels { live: Vec::new(), closed: Vec::new() });

fn with<R>(act: impl FnOnce(&mut Channels) -> R) -> R {
    act(&mut CHANNELS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The sums over a device's channels, past and present. What is no count is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFigures {
    /// The name of the device, as it was opened.
    pub device: String,
    /// The sums.
    pub figures: QueueFigures,
}

/// Adds `figures` to the sums of `device`, of which there are at most `most` and the others'.
fn add_to(sums: &mut Vec<DeviceFigures>, device: &str, figures: &QueueFigures, most: usize) {
    let is_known = sums.iter().any(|sum| sum.device == device);
    let device = if is_known || sums.len() < most { device } else { OTHERS };
    match sums.iter_mut().find(|sum| sum.device == device) {
        Some(sum) => sum.figures.add(figures),
        None => {
            let mut sum = DeviceFigures { device: device.to_owned(), figures: <_>::default() };
            sum.figures.add(figures);
            sums.push(sum);
        }
    }
}

pub(super) fn add(control: &Arc<ChannelControl>) {
    with(|channels| channels.live.push(Arc::downgrade(control)));
}

pub(super) fn remove(control: &ChannelControl) {
    let figures = QueueFigures { in_flight: 0, ..control.figures() };
    with(|channels| {
        let others = |weak: &Weak<ChannelControl>| {
            weak.upgrade().is_some_and(|other| other.id() != control.id())
        };
        channels.live.retain(others);
        add_to(&mut channels.closed, control.device(), &figures, DEVICES_MAX);
    });
}

/// The sums over all channels that this process has had, by device. They never decrease, but for
/// what is in flight. Beyond 64 devices, those without a channel are summed as `others`.
pub fn devices() -> Vec<DeviceFigures> {
    with(|channels| {
        let mut sums = channels.closed.clone();
        for control in channels.live.iter().filter_map(Weak::upgrade) {
            add_to(&mut sums, control.device(), &control.figures(), usize::MAX);
        }
        sums
    })
}

/// The current channels of this process, the oldest first. A dropped one is not listed; handles
/// that remain are [`ChannelControl::is_closed`].
pub fn channels() -> Vec<Arc<ChannelControl>> {
    with(|channels| {
        let live = channels.live.iter().filter_map(Weak::upgrade);
        live.filter(|control| !control.is_closed()).collect()
    })
}

/// The channel with this [`ChannelControl::id`], if it still exists.
pub fn channel(id: u64) -> Option<Arc<ChannelControl>> {
    channels().into_iter().find(|control| control.id() == id)
}
