//! One I/O's time line: the start and end of each part.
//!
//! The moments, all on one clock (the time stamp counter), in the order of an I/O:
//!
//! | moment   | who reads the clock | when |
//! |----------|------|------|
//! | start    | host | before `submit` is called |
//! | rung     | host | when `submit` has returned: the doorbell is rung, and seen by every core |
//! | fetched  | device | the doorbell was found moved |
//! | begun    | device | a unit of the device was free for the command |
//! | written  | device | just before the CQE is written |
//! | woken    | host | the thread runs again after its last sleep, if it slept |
//! | seen     | host | the CQE was found |
//! | end      | host | `wait` has returned, with the buffer |
//!
//! The host goes on for some time after the store to the doorbell, while the device already works:
//! this time is not on the time line. So the submission ends at `rung` or at `fetched`, whichever
//! is earlier. The other moments are clamped to this order, so that every part is at least 0 and
//! all parts add up to `end` − `start`, for each I/O.

use meantime_block::DeviceStamp;

/// The host's moments of one I/O, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostTimes {
    /// Before `submit`.
    pub start_ns: u64,
    /// After `submit`.
    pub rung_ns: u64,
    /// When the thread ran again, or `None` if it did not sleep.
    pub woken_ns: Option<u64>,
    /// When the CQE was found, or `None` if the channel does not report it.
    pub seen_ns: Option<u64>,
    /// After `wait`.
    pub end_ns: u64,
    /// Time that a competing program ran meanwhile.
    pub competitor_ns: u64,
}

/// A part of an I/O.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its index in [`PARTS`].
    pub at: usize,
    /// Its key in JSON, without the unit.
    pub key: &'static str,
    name: &'static str,
    /// Whether it is a part of the device's time: from the doorbell to the CQE written, as an
    /// analyser on the bus would see it.
    pub is_device: bool,
}

/// All parts, in their order in time.
pub(super) const PARTS: [Part; 7] = [
    // start → doorbell: building the command, ringing the doorbell.
    part(0, "submit", "host submit", false),
    // doorbell → the device has seen it.
    part(1, "doorbell", "doorbell to SQE seen", true),
    // seen by the device → a unit of it is free: behind another command, or behind the device's own
    // work.
    part(QUEUE, "queue", "queued in the device", true),
    // on the device; without stamps, everything from the doorbell to the CQE being found.
    part(SERVICE, "service", "service", true),
    // CQE written → the waiting thread runs again; 0 if it was awake.
    part(4, "wake", "wake", false),
    // CQE written, or thread running again → CQE found.
    part(5, "cqe_seen", "CQE to seen", false),
    // CQE found → back with the caller.
    part(6, "complete", "host completion", false),
];

/// Index of the time in a device's queue.
pub(super) const QUEUE: usize = 2;
const SERVICE: usize = 3;

const fn part(at: usize, key: &'static str, name: &'static str, is_device: bool) -> Part {
    Part { at, key, name, is_device }
}

impl Part {
    /// Returns its name in tables.
    pub(crate) fn name(&self, stamped: bool) -> &'static str {
        if self.at == SERVICE && !stamped { "doorbell to CQE seen" } else { self.name }
    }
}

/// One I/O, taken apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimeLine {
    /// The time of each of [`PARTS`].
    pub parts_ns: [u64; 7],
    /// The device saw the doorbell before `submit` returned.
    pub overlapped: bool,
    /// Whether the clocks of host and device contradict each other, so that a moment was clamped.
    pub contradicted: bool,
    /// Time that a competing program ran meanwhile.
    pub competitor_ns: u64,
}

impl TimeLine {
    /// Builds the time line of the host's moments and the device's, if it takes stamps.
    pub(crate) fn new(host: &HostTimes, stamp: Option<&DeviceStamp>) -> Self {
        let HostTimes { start_ns, rung_ns, end_ns, .. } = *host;
        let seen_ns = host.seen_ns.unwrap_or(end_ns).clamp(rung_ns, end_ns);
        let mut line = Self { competitor_ns: host.competitor_ns, ..Self::default() };
        let Some(stamp) = stamp else {
            line.parts_ns = [rung_ns - start_ns, 0, 0, seen_ns - rung_ns, 0, 0, end_ns - seen_ns];
            return line;
        };
        let doorbell_ns = rung_ns.min(stamp.seen_ns).max(start_ns);
        let fetched_ns = stamp.seen_ns.clamp(doorbell_ns, seen_ns);
        let begun_ns = stamp.begun_ns.clamp(fetched_ns, seen_ns);
        let written_ns = stamp.written_ns.clamp(begun_ns, seen_ns);
        // A thread that was woken before the CQE was written was awake in time.
        let woken_ns = host.woken_ns.unwrap_or(written_ns).clamp(written_ns, seen_ns);
        let moments =
            [start_ns, doorbell_ns, fetched_ns, begun_ns, written_ns, woken_ns, seen_ns, end_ns];
        line.parts_ns = std::array::from_fn(|at| moments[at + 1] - moments[at]);
        line.overlapped = stamp.seen_ns < rung_ns;
        line.contradicted = stamp.seen_ns < start_ns || stamp.written_ns > seen_ns;
        line
    }

    /// Returns the total time.
    pub(crate) fn total_ns(&self) -> u64 {
        self.parts_ns.iter().sum()
    }

    /// Returns the device's part: Td of FAST 2012.
    pub(crate) fn device_ns(&self) -> u64 {
        PARTS.iter().zip(self.parts_ns).filter(|(part, _)| part.is_device).map(|(_, ns)| ns).sum()
    }

    /// Returns the host's part.
    pub(crate) fn host_ns(&self) -> u64 {
        self.total_ns() - self.device_ns()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(
        start_ns: u64,
        rung_ns: u64,
        woken_ns: Option<u64>,
        seen_ns: u64,
        end_ns: u64,
    ) -> HostTimes {
        HostTimes { start_ns, rung_ns, woken_ns, seen_ns: Some(seen_ns), end_ns, competitor_ns: 0 }
    }

    fn stamp(seen_ns: u64, begun_ns: u64, written_ns: u64) -> DeviceStamp {
        DeviceStamp { qid: 1, cid: 0, seen_ns, begun_ns, written_ns }
    }

    #[test]
    fn polled() {
        let line =
            TimeLine::new(&host(1000, 1100, None, 4350, 4400), Some(&stamp(1200, 1250, 4150)));
        assert_eq!(line.parts_ns, [100, 100, 50, 2900, 0, 200, 50]);
        assert_eq!((line.device_ns(), line.host_ns(), line.total_ns()), (3050, 350, 3400));
        assert!(!line.overlapped && !line.contradicted);
    }

    #[test]
    fn interrupted() {
        let line = TimeLine::new(
            &host(1000, 1100, Some(9000), 9100, 9200),
            Some(&stamp(1200, 1200, 4100)),
        );
        assert_eq!(line.parts_ns, [100, 100, 0, 2900, 4900, 100, 100]);
    }

    /// A hybrid sleep that ends in time has no wake part. A late one has its lateness as this part.
    #[test]
    fn slept() {
        let stamp = stamp(1200, 1200, 4100);
        let line = TimeLine::new(&host(1000, 1100, Some(3000), 4200, 4300), Some(&stamp));
        assert_eq!(line.parts_ns, [100, 100, 0, 2900, 0, 100, 100]);
        let line = TimeLine::new(&host(1000, 1100, Some(5000), 5100, 5200), Some(&stamp));
        assert_eq!(line.parts_ns, [100, 100, 0, 2900, 900, 100, 100]);
    }

    #[test]
    fn what_overlaps_the_device_is_not_on_the_line() {
        let line =
            TimeLine::new(&host(1000, 1400, None, 4350, 4400), Some(&stamp(1200, 1200, 4100)));
        assert_eq!(line.parts_ns, [200, 0, 0, 2900, 0, 250, 50]);
        assert!(line.overlapped && !line.contradicted);
    }

    #[test]
    fn without_stamps_the_device_is_what_the_host_sees() {
        let line = TimeLine::new(&host(1000, 1100, Some(4000), 4350, 4400), None);
        assert_eq!(line.parts_ns, [100, 0, 0, 3250, 0, 0, 50]);
        let times = HostTimes { seen_ns: None, ..host(1000, 1100, None, 0, 4400) };
        assert_eq!(TimeLine::new(&times, None).parts_ns, [100, 0, 0, 3300, 0, 0, 0]);
    }

    #[test]
    fn contradictions_are_noted() {
        let line = TimeLine::new(&host(1000, 1100, None, 4000, 4400), Some(&stamp(900, 900, 4100)));
        assert_eq!(line.parts_ns, [0, 0, 0, 3000, 0, 0, 400]);
        assert!(line.contradicted);
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_clocks_say(
            start in 0u64..1000, steps in prop::array::uniform3(0u64..10_000),
            woken in prop::option::of(0u64..40_000), tells: bool, stamps in prop::option::of(prop::array::uniform3(0u64..40_000)),
        ) {
            let (rung, seen) = (start + steps[0], start + steps[0] + steps[1]);
            let end = seen + steps[2];
            let host = host(start, rung, woken, seen, end);
            let host = HostTimes { seen_ns: tells.then_some(seen), ..host };
            let stamp = stamps.map(|[seen, begun, written]| stamp(seen, begun, written));
            let line = TimeLine::new(&host, stamp.as_ref());
            // Each part is at least 0 by its type: a subtraction that went below 0 would panic.
            prop_assert_eq!(line.total_ns(), end - start);
            prop_assert_eq!(line.device_ns() + line.host_ns(), end - start);
        }
    }
}
