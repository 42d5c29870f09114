//! The channels of this process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{ChannelControl, QueueFigures};

/// The most devices whose sums are kept after their last channel is gone.
const DEVICES_MAX: usize = 64;
/// The name of the sum over the others.
const OTHERS: &str = "others";

struct Channels {
    /// The channels in order of creation.
    live: Vec<Weak<ChannelControl>>,
    /// The counts of closed channels.
    closed: Vec<DeviceFigures>,
}

/// Locked when a channel is made or dropped, and when the list is read.
static CHANNELS: Mutex<Channels> = Mutex::new(Channels { live: Vec::new(), closed: Vec::new() });

fn with<R>(act: impl FnOnce(&mut Channels) -> R) -> R {
    act(&mut CHANNELS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The sums over a device's channels, past and present. Figures that are no counts are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFigures {
    /// The name of the device, as it was opened.
    pub device: String,
    /// The sums.
    pub figures: QueueFigures,
}

/// Adds `figures` to the sums of `device`.
fn add_to(sums: &mut Vec<DeviceFigures>, device: &str, figures: &QueueFigures) {
    match sums.iter_mut().find(|sum| sum.device == device) {
        Some(sum) => sum.figures.add(figures),
        None => {
            let mut sum = DeviceFigures { device: device.to_owned(), figures: <_>::default() };
            sum.figures.add(figures);
            sums.push(sum);
        }
    }
}

/// Adds the sums of `device`, which has no channel any more, to the others' if too many are kept.
fn limit(sums: &mut Vec<DeviceFigures>, device: &str) {
    let mut named = (0..sums.len()).filter(|at| sums[*at].device != OTHERS).skip(DEVICES_MAX);
    if let Some(at) = named.find(|at| sums[*at].device == device) {
        let sum = sums.remove(at);
        add_to(sums, OTHERS, &sum.figures);
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
        let device = control.device();
        add_to(&mut channels.closed, device, &figures);
        // While the device has another channel, its sums would decrease.
        let mut live = channels.live.iter().filter_map(Weak::upgrade);
        if !live.any(|other| other.device() == device) {
            limit(&mut channels.closed, device);
        }
    });
}

/// The sums over all channels that this process has had, by device. They never decrease, except for
/// the commands in flight. Beyond 64 devices, those without a channel are summed as `others`.
pub fn devices() -> Vec<DeviceFigures> {
    with(|channels| {
        let mut sums = channels.closed.clone();
        for control in channels.live.iter().filter_map(Weak::upgrade) {
            add_to(&mut sums, control.device(), &control.figures());
        }
        sums
    })
}

/// The current channels of this process, the oldest first. A dropped one is not listed; remaining
/// handles to it are [`ChannelControl::is_closed`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::telemetry::Telemetry;

    #[test]
    fn sums_go_to_the_others_with_the_last_channel() {
        let publish = |device: &str| {
            let mut telemetry = Telemetry::new(device, Policy::Poll, 0);
            let figures = QueueFigures { ended: 5, ..QueueFigures::default() };
            telemetry.publish(1, Policy::Poll, &figures);
            telemetry
        };
        let ended = |device: &str| {
            let sums = devices();
            sums.iter().find(|sum| sum.device == device).map_or(0, |sum| sum.figures.ended)
        };
        for at in 0..DEVICES_MAX {
            drop(publish(&format!("kept{at}")));
        }
        let (first, second) = (publish("late"), publish("late"));
        let before = ended(OTHERS);
        assert_eq!(ended("late"), 10);
        drop(first);
        assert_eq!(ended("late"), 10);
        drop(second);
        assert_eq!((ended("late"), ended("kept0")), (0, 5));
        assert!(ended(OTHERS) >= before + 10);
    }
}
