//! The metrics of queues, devices and threads.

use std::collections::BTreeMap;

use super::{Kind, Metrics};
use meantime_completion::Kind as Operation;
use meantime_completion::telemetry::{self, Latencies, QueueFigures};

type Figure = fn(&QueueFigures) -> u64;

/// The counters of a device: the name, and what it counts.
const DEVICE_COUNTERS: [(&str, &str, Figure); 12] = [
    ("commands", "Commands ended, with any result", |f| f.ended),
    ("waits", "Waits that did not end at the first look", |f| f.waits),
    ("sleeps", "Sleeps while waiting", |f| f.sleeps),
    ("oversleeps", "Sleeps after which the completion was there already", |f| f.oversleeps),
    ("spins_given_up", "Waits in which the time to spin ran out", |f| f.fallbacks),
    ("blocks", "Times that a thread blocked for an interrupt", |f| f.blocks),
    ("timeouts", "Commands that were not seen complete at their deadline", |f| f.timeouts),
    ("aborts", "Abort commands sent", |f| f.aborts),
    (
        "queue_recreations",
        "Times that a queue was created again, each once at a reset of the controller",
        |f| f.recreations,
    ),
    ("retries", "Commands repeated after a status that allows it", |f| f.retries),
    ("requeued_commands", "Commands put back after their queue was lost", |f| f.requeued),
    (
        "refused_completions",
        "Completions refused: of no command in flight, or with an impossible SQ head",
        |f| f.refused,
    ),
];

const OPERATIONS: [(Operation, &str); 3] =
    [(Operation::Read, "read"), (Operation::Write, "write"), (Operation::Other, "other")];

/// The most queues that have samples of their own.
const QUEUES_MAX: usize = 512;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn add(metrics: &mut Metrics) {
    let bounds_seconds = Latencies::BOUNDS_NS.map(seconds);
    for sum in telemetry::devices() {
        let device = [("device", sum.device.as_str())];
        for (name, help, figure) in DEVICE_COUNTERS {
            let name = format!("meantime_device_{name}");
            metrics.add(&name, Kind::Counter, help, &device, figure(&sum.figures));
        }
        for (operation, name) in OPERATIONS {
            let latencies = &sum.figures.latencies;
            if latencies.counts(operation).iter().all(|count| *count == 0) {
                continue;
            }
            metrics.add_histogram(
                "meantime_device_io_time_seconds",
                "Times of I/Os from submission until seen complete: of all where the policy needs \
                 them, else of up to 200 a second",
                &[device[0], ("operation", name)],
                &bounds_seconds,
                latencies.counts(operation),
                seconds(latencies.sum_ns(operation)),
            );
        }
    }
    let mut threads = BTreeMap::new();
    for control in telemetry::channels().iter().take(QUEUES_MAX) {
        let state = control.state();
        let (id, figures) = (state.id.to_string(), &state.figures);
        let queue = [("device", state.device.as_str()), ("queue", id.as_str())];
        metrics.add(
            "meantime_queue",
            Kind::Info,
            "The thread that uses a queue, and how it waits",
            &[queue[0], queue[1], ("policy", &state.policy), ("thread", &state.thread)],
            1,
        );
        metrics.add(
            "meantime_queue_commands",
            Kind::Counter,
            "Commands ended, with any result",
            &queue,
            figures.ended,
        );
        metrics.add(
            "meantime_queue_in_flight",
            Kind::Gauge,
            "Commands in flight when the queue last published its figures",
            &queue,
            figures.in_flight,
        );
        if figures.expected_ns > 0 {
            metrics.add(
                "meantime_queue_expected_seconds",
                Kind::Gauge,
                "The device time that the policy goes by",
                &queue,
                seconds(figures.expected_ns),
            );
        }
        if figures.thread_cpu_ns > 0 {
            threads.insert(figures.thread_id, (state.thread, figures.thread_cpu_ns));
        }
    }
    for (id, (name, cpu_ns)) in threads {
        metrics.add(
            "meantime_thread_cpu_seconds",
            Kind::Counter,
            "CPU time of a thread that uses queues, whatever it was for",
            &[("thread", &name), ("thread_id", &id.to_string())],
            seconds(cpu_ns),
        );
    }
}

#[cfg(test)]
mod tests {
    use meantime_completion::Policy;
    use meantime_completion::telemetry::Telemetry;

    use super::*;

    fn value(device: &str, name: &str) -> Option<f64> {
        let metrics = Metrics::take();
        let family = metrics.families().iter().find(|family| family.name == name)?;
        let mut samples = family.samples.iter();
        let of = |(name, value): &(String, String)| name == "device" && value == device;
        samples.find(|sample| sample.labels.iter().any(of)).map(|sample| sample.value)
    }

    #[test]
    fn what_closed_channels_counted_stays_with_the_device() {
        let publish = |ended| {
            let mut telemetry = Telemetry::new("mem:77M", Policy::Poll, 0);
            let figures = QueueFigures { ended, in_flight: 3, ..QueueFigures::default() };
            telemetry.publish(1, Policy::Poll, &figures);
            telemetry
        };
        let (first, second) = (publish(40), publish(2));
        let commands = || value("mem:77M", "meantime_device_commands").unwrap();
        assert_eq!(commands(), 42.0);
        assert!(value("mem:77M", "meantime_queue_in_flight").is_some());
        drop(first);
        assert_eq!(commands(), 42.0);
        drop(second);
        assert_eq!(commands(), 42.0);
        assert_eq!(value("mem:77M", "meantime_queue_in_flight"), None);
    }
}
