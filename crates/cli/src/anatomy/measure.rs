//! Does I/O one at a time, and records every moment of it.
//!
//! The host's moments of a few thousand I/Os are kept in preallocated memory. Then the device's
//! stamps are fetched and both are combined. Only clock readings are added to an I/O in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meantime_bench::pattern::{Dir, Pattern};
use meantime_block::{BlockChannel, BlockDevice, Channel, Device, Request, StampSource, WaitTimes};
use meantime_hw::{Clock, DmaBuf};

use super::results::Bar;
use super::tally::Tally;
use super::timeline::{HostTimes, TimeLine};
use crate::competitor::Competitor;
use crate::failure::{Context as _, Failure, named};
use crate::signal;

/// The number of I/Os in a batch. It is far smaller than the number of stamps that a device keeps.
const BATCH: usize = 8192;

/// The number of first I/Os of a batch that are not recorded. The analysis of the batch before has
/// emptied the caches.
const COLD: usize = 32;

/// Maximum time for a stamp to appear after its completion.
const STAMP_PATIENCE: Duration = Duration::from_secs(2);

/// One device, size and policy, while it is measured.
pub(super) struct Cell {
    /// Its times.
    pub bar: Bar,
    /// Index of the device.
    pub device: usize,
    /// The channel to the device.
    pub channel: Channel,
    /// The I/Os.
    pub pattern: Pattern,
    /// The buffer, between I/Os.
    pub buf: Option<DmaBuf>,
}

/// Measures cells, in memory of its own.
pub(super) struct Meter {
    clock: Clock,
    times: WaitTimes,
    batch: Vec<HostTimes>,
}

impl Meter {
    /// Creates a meter.
    pub(super) fn new() -> Self {
        let clock = Clock::real();
        Self { times: WaitTimes::new(clock.clone()), clock, batch: Vec::with_capacity(BATCH) }
    }

    /// Does I/O on `cell` for `duration`, unrecorded.
    pub(super) fn warm_up(
        &mut self,
        cell: &mut Cell,
        device: &Device,
        duration: Duration,
    ) -> Result<(), Failure> {
        let until_ns = self.clock.now_ns() + duration.as_nanos() as u64;
        while self.clock.now_ns() < until_ns && !signal::stopped() {
            self.run_batch(cell, device, until_ns, None)?;
        }
        Ok(())
    }

    /// Does I/O on `cell` for `duration`, and records it: as competing if there is a `competitor`,
    /// which must be running. At least one batch is done, even if this thread did not run for as
    /// long, so that no cell stays empty.
    pub(super) fn measure(
        &mut self,
        cell: &mut Cell,
        device: &Device,
        duration: Duration,
        competitor: Option<&Competitor>,
    ) -> Result<(), Failure> {
        let until_ns = self.clock.now_ns() + duration.as_nanos() as u64;
        let stamps = device.stamps();
        let mut first = stamps.as_deref().map_or(0, stamps_when_idle);
        while !signal::stopped() {
            let before = competitor.map(Competitor::sample);
            let start_ns = self.clock.now_ns();
            self.run_batch(cell, device, until_ns, competitor)?;
            let Bar { alone, competing, .. } = &mut cell.bar;
            let tally = if competitor.is_some() { competing } else { alone };
            tally.wall_ns += self.clock.now_ns() - start_ns;
            if let (Some(competitor), Some(before)) = (competitor, before) {
                tally.competed += competitor.sample() - before;
            }
            record(&self.batch, stamps.as_ref(), &mut first, tally).context(&device.info().uri)?;
            if self.clock.now_ns() >= until_ns {
                break;
            }
        }
        Ok(())
    }

    fn run_batch(
        &mut self,
        cell: &mut Cell,
        device: &Device,
        until_ns: u64,
        competitor: Option<&Competitor>,
    ) -> Result<(), Failure> {
        let uri = &device.info().uri;
        let kept = || Failure::new(format_args!("{uri}: the device is gone and kept a buffer"));
        self.batch.clear();
        let Self { clock, times, batch } = self;
        while batch.len() < BATCH {
            let Some(io) = cell.pattern.next() else { break };
            let mut buf = cell.buf.take().ok_or_else(kept)?;
            buf.set_len(io.bytes);
            let request = match io.dir {
                Dir::Read => Request::read(io.lba, buf),
                // There are no trims here.
                Dir::Write | Dir::Trim => Request::write(io.lba, buf),
            };
            times.reset();
            let ran_ns = competitor.map_or(0, Competitor::ran_ns);
            let start_ns = clock.now_ns_in_order();
            let ticket =
                cell.channel.submit(request).map_err(|rejected| named(uri, &rejected.error))?;
            let rung_ns = clock.now_ns_in_order();
            let done = cell.channel.wait_probed(ticket, times);
            let end_ns = clock.now_ns_in_order();
            let competitor_ns = competitor.map_or(0, Competitor::ran_ns) - ran_ns;
            cell.buf = done.buf;
            done.result.map_err(|error| named(uri, &error))?;
            let (woken_ns, seen_ns) = (times.woken_ns(), times.seen_ns());
            batch.push(HostTimes { start_ns, rung_ns, woken_ns, seen_ns, end_ns, competitor_ns });
            if end_ns >= until_ns || signal::stopped() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the number of stamps when nothing is in flight. A stamp is written after its
/// completion.
fn stamps_when_idle(stamps: &dyn StampSource) -> u64 {
    loop {
        let written = stamps.written();
        std::thread::sleep(Duration::from_micros(100));
        if stamps.written() == written {
            return written;
        }
    }
}

/// Combines the host's times of `batch` with the device's stamps from `first` on.
fn record(
    batch: &[HostTimes],
    stamps: Option<&Arc<dyn StampSource>>,
    first: &mut u64,
    tally: &mut Tally,
) -> Result<(), &'static str> {
    // A batch of a slow device is short.
    let cold = COLD.min(batch.len() / 4);
    let Some(stamps) = stamps else {
        batch[cold..].iter().for_each(|host| tally.record(&TimeLine::new(host, None)));
        return Ok(());
    };
    let next = *first + batch.len() as u64;
    let start = Instant::now();
    while stamps.written() < next {
        if start.elapsed() > STAMP_PATIENCE {
            return Err("the device's time stamps are incomplete; this is a bug, please report it");
        }
        std::thread::yield_now();
    }
    if stamps.written() > next {
        return Err(
            "an I/O took more than one command; give a smaller --bs (see `meantime info`: \
                    MDTS, boundary)",
        );
    }
    for (host, index) in batch.iter().zip(*first..).skip(cold) {
        let stamp = stamps
            .get(index)
            .ok_or("a time stamp was overwritten; this is a bug, please report it")?;
        tally.record(&TimeLine::new(host, Some(&stamp)));
    }
    *first = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use meantime_block::DeviceStamp;

    use super::*;

    /// Stamps every 10 µs; the first one has number `from`.
    struct Stamps {
        from: u64,
        written: u64,
    }

    impl StampSource for Stamps {
        fn written(&self) -> u64 {
            self.written
        }
        fn get(&self, index: u64) -> Option<DeviceStamp> {
            let at_ns = (index - self.from) * 10_000;
            let stamp = DeviceStamp {
                seen_ns: at_ns + 200,
                begun_ns: at_ns + 200,
                written_ns: at_ns + 3_200,
                ..DeviceStamp::default()
            };
            (index < self.written).then_some(stamp)
        }
        fn capacity(&self) -> usize {
            1 << 16
        }
    }

    fn batch(len: u64) -> Vec<HostTimes> {
        let host = |at: u64| HostTimes {
            start_ns: at * 10_000,
            rung_ns: at * 10_000 + 100,
            woken_ns: None,
            seen_ns: Some(at * 10_000 + 3_300),
            end_ns: at * 10_000 + 3_350,
            competitor_ns: 0,
        };
        (0..len).map(host).collect()
    }

    #[test]
    fn each_io_meets_its_stamp() {
        let stamps: Arc<dyn StampSource> = Arc::new(Stamps { from: 7, written: 107 });
        let (mut tally, mut first) = (Tally::default(), 7);
        record(&batch(100), Some(&stamps), &mut first, &mut tally).unwrap();
        assert_eq!((first, tally.ios()), (107, 75));
        let means: Vec<u64> = tally.parts.iter().map(|part| part.mean_ns() as u64).collect();
        assert_eq!(means, [100, 100, 0, 3_000, 0, 100, 50]);
        assert_eq!((tally.total.min_ns(), tally.total.max_ns()), (3_350, 3_350));
        assert_eq!(tally.contradicted, 0);
    }

    #[test]
    fn an_io_of_two_commands_is_refused() {
        let stamps: Arc<dyn StampSource> = Arc::new(Stamps { from: 0, written: 200 });
        let error = record(&batch(100), Some(&stamps), &mut 0, &mut Tally::default()).unwrap_err();
        assert!(error.contains("--bs"), "{error}");
    }

    #[test]
    fn a_device_without_stamps_is_seen_from_the_host() {
        let mut tally = Tally::default();
        record(&batch(1), None, &mut 0, &mut tally).unwrap();
        assert_eq!((tally.ios(), tally.device.max_ns(), tally.host.max_ns()), (1, 3_200, 150));
    }
}
