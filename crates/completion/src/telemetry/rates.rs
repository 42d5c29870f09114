//! Rates between two snapshots.

use super::{PUBLISH_INTERVAL_NS, QueueFigures, QueueState};

/// A thread that has not published for this long counts as idle, in ns.
const STALE_NS: u64 = 4 * PUBLISH_INTERVAL_NS;

/// All channels of a process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The time, by [`Clock::real`](meantime_hw::Clock::real).
    pub now_ns: u64,
    /// The channels, by [`QueueState::id`].
    pub queues: Vec<QueueState>,
}

impl Snapshot {
    /// Takes a snapshot of this process.
    pub fn take() -> Self {
        let queues = super::channels().iter().map(|control| control.state()).collect();
        Self { now_ns: meantime_hw::Clock::real().now_ns(), queues }
    }

    fn figures(&self, id: u64) -> Option<&QueueFigures> {
        self.queues.iter().find(|queue| queue.id == id).map(|queue| &queue.figures)
    }

    /// The figures that `thread_id` published last.
    fn last_of(&self, thread_id: u64) -> Option<&QueueFigures> {
        let figures = self.queues.iter().map(|queue| &queue.figures);
        figures
            .filter(|figures| figures.thread_id == thread_id)
            .max_by_key(|figures| figures.published_ns)
    }

    /// Where an interval begins or ends for a thread that last published at `published_ns`. It is
    /// that time, so that figures and time agree; or now, if the thread has been idle since.
    fn edge_ns(&self, published_ns: u64) -> u64 {
        if self.now_ns.saturating_sub(published_ns) > STALE_NS { self.now_ns } else { published_ns }
    }
}

/// A channel's activity between two snapshots. A value is `None` if nothing happened to compute it
/// from.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueRates {
    /// The channel.
    pub id: u64,
    /// Commands ended per second.
    pub iops: f64,
    /// Mean time of the timed I/Os, in ns.
    pub mean_ns: Option<f64>,
    /// CPU time of the channel's thread, in percent of elapsed time, over all its channels.
    pub cpu_percent: Option<f64>,
    /// CPU time per command of the channel's thread, in ns, over all its channels, since its CPU
    /// time is not accounted per channel.
    pub cpu_per_io_ns: Option<f64>,
    /// Sleeps per command, in percent.
    pub sleep_percent: Option<f64>,
    /// Sleeps after which the completion was there already, in percent of the sleeps.
    pub oversleep_percent: Option<f64>,
    /// Waits per second in which the spin budget ran out.
    pub fallbacks_per_s: f64,
}

/// The rates of the channels in `after`, in its order. A channel that is not in `before` is counted
/// from its beginning.
pub fn rates(before: &Snapshot, after: &Snapshot) -> Vec<QueueRates> {
    let ended = |queue: &QueueState| {
        queue
            .figures
            .ended
            .saturating_sub(before.figures(queue.id).map_or(0, |figures| figures.ended))
    };
    let of_queue = |queue: &QueueState| {
        let (id, now) = (queue.id, &queue.figures);
        let then = before.figures(id).copied().unwrap_or_default();
        let Some(last) = after.last_of(now.thread_id).filter(|_| now.thread_id != 0) else {
            return QueueRates { id, ..QueueRates::default() };
        };
        let first = before.last_of(now.thread_id);
        let begin_ns = first.map_or(before.now_ns, |first| before.edge_ns(first.published_ns));
        let wall_ns = after.edge_ns(last.published_ns).saturating_sub(begin_ns) as f64;
        let per_second =
            |count: u64| if wall_ns > 0.0 { count as f64 * 1e9 / wall_ns } else { 0.0 };
        let cpu_ns =
            first.map(|first| last.thread_cpu_ns.saturating_sub(first.thread_cpu_ns) as f64);
        let of_thread =
            after.queues.iter().filter(|other| other.figures.thread_id == now.thread_id);
        let thread_ended: u64 = of_thread.map(ended).sum();
        let since = |of: fn(&QueueFigures) -> u64| of(now).saturating_sub(of(&then));
        let sleeps = since(|figures| figures.sleeps);
        QueueRates {
            id,
            iops: per_second(ended(queue)),
            mean_ns: ratio(
                since(|figures| figures.timed_sum_ns) as f64,
                since(|figures| figures.timed) as f64,
            ),
            cpu_percent: cpu_ns.and_then(|cpu_ns| ratio(100.0 * cpu_ns, wall_ns)),
            cpu_per_io_ns: cpu_ns
                .filter(|_| ended(queue) > 0)
                .and_then(|cpu_ns| ratio(cpu_ns, thread_ended as f64)),
            sleep_percent: ratio(100.0 * sleeps as f64, ended(queue) as f64),
            oversleep_percent: ratio(
                100.0 * since(|figures| figures.oversleeps) as f64,
                sleeps as f64,
            ),
            fallbacks_per_s: per_second(since(|figures| figures.fallbacks)),
        }
    };
    after.queues.iter().map(of_queue).collect()
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(all(test, not(loom)))]
mod tests;
