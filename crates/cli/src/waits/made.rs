//! Generated device times of a cell: the times of its model, without a device.

use meantime_baselines::sim::{Io, Trace};
use meantime_completion::Kind;
use meantime_random::Rng;

use super::grid::{GridCell, Shape};

/// Number of I/Os of a cell.
pub(super) const IOS: usize = 30_000;

/// The host's time between two I/Os, in ns, as far as it matters for running programs.
const BETWEEN_NS: u64 = 500;

/// The sizes in bytes of the cell's job, each with the cumulative share up to it in percent.
const SIZES: [(u32, u64); 5] =
    [(512, 20), (4 << 10, 60), (16 << 10, 80), (64 << 10, 90), (128 << 10, 100)];

const CHANNELS: usize = 4;
const PROGRAM_NS: u64 = 600_000;

/// Returns the times of `count` I/Os of `cell`, by the rule of its model. One seed gives one trace.
pub(super) fn trace(cell: &GridCell, count: usize, seed: u64) -> Trace {
    let mut random = Rng::new(seed);
    let mut programs = Programs::default();
    let ios = (0..count).map(|_| io(cell, &mut random, &mut programs)).collect();
    Trace { ios }
}

fn io(cell: &GridCell, random: &mut Rng, programs: &mut Programs) -> Io {
    let base_ns = cell.device_ns;
    let read = |device_ns| Io { kind: Kind::Read, bytes: 4096, device_ns };
    match cell.shape {
        Shape::Constant => read(base_ns),
        Shape::Lognormal | Shape::Depth4 => read(lognormal(base_ns, 0.25, random)),
        Shape::Bimodal => read(if random.below(10) == 0 { base_ns * 10 } else { base_ns }),
        Shape::Programs => {
            let kind = if random.below(100) < 2 { Kind::Write } else { Kind::Read };
            programs.io(kind, base_ns, random.below(CHANNELS as u64) as usize)
        }
        Shape::Sizes => {
            let drawn = random.below(100);
            let size = SIZES.iter().find(|(_, share)| drawn < *share);
            let bytes = size.map_or(4096, |(bytes, _)| *bytes);
            Io { kind: Kind::Read, bytes, device_ns: time_of_size_ns(base_ns, u64::from(bytes)) }
        }
        Shape::Mix7030 if random.below(100) < 30 => {
            Io { kind: Kind::Write, bytes: 4096, device_ns: lognormal(base_ns * 2, 0.1, random) }
        }
        Shape::Mix7030 => read(lognormal(base_ns, 0.1, random)),
    }
}

/// Draws a time with mean `mean_ns`, as the software SSD does.
fn lognormal(mean_ns: u64, sigma: f64, random: &mut Rng) -> u64 {
    (mean_ns as f64 * (sigma * random.normal() - sigma * sigma / 2.0).exp()) as u64
}

/// Returns the time of a size, along the points of the model.
fn time_of_size_ns(base_ns: u64, bytes: u64) -> u64 {
    match bytes {
        ..=4096 => base_ns * 9 / 10 + (base_ns / 10) * bytes.saturating_sub(512) / (4096 - 512),
        _ => base_ns + base_ns * 7 * (bytes - 4096) / (131_072 - 4096),
    }
}

/// Channels that are busy with programs. I/Os come one after the other.
#[derive(Debug, Default)]
struct Programs {
    now_ns: u64,
    busy_until_ns: [u64; CHANNELS],
}

impl Programs {
    fn io(&mut self, kind: Kind, base_ns: u64, channel: usize) -> Io {
        let busy_until_ns = &mut self.busy_until_ns[channel];
        let begun_ns = match kind {
            Kind::Read => self.now_ns.max(*busy_until_ns),
            // A write goes into the buffer, and is programmed after its completion.
            _ => self.now_ns,
        };
        let done_ns = begun_ns + base_ns;
        *busy_until_ns = match kind {
            Kind::Read => done_ns,
            _ => (*busy_until_ns).max(done_ns) + PROGRAM_NS,
        };
        let device_ns = done_ns - self.now_ns;
        self.now_ns = done_ns + BETWEEN_NS;
        Io { kind, bytes: 4096, device_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shape: Shape) -> Trace {
        trace(&GridCell { device_ns: 10_000, shape }, IOS, 1)
    }

    #[test]
    fn means_by_hand() {
        let writes = |trace: &Trace| {
            trace.ios.iter().filter(|io| io.kind == Kind::Write).count() as f64
                / trace.ios.len() as f64
        };
        // 0.9 × 10 + 0.1 × 100 µs.
        assert!((of(Shape::Bimodal).mean_ns() / 19_000.0 - 1.0).abs() < 0.03);
        assert!((of(Shape::Lognormal).mean_ns() / 10_000.0 - 1.0).abs() < 0.01);
        // 0.7 × 10 + 0.3 × 20 µs.
        assert!((of(Shape::Mix7030).mean_ns() / 13_000.0 - 1.0).abs() < 0.02);
        assert!((writes(&of(Shape::Mix7030)) - 0.3).abs() < 0.01);
        // 9, 10, 10 + 70 × 12/124, 10 + 70 × 60/124 and 80 µs.
        let mean_ns =
            0.2 * 9_000.0 + 0.4 * 10_000.0 + 0.2 * 16_774.2 + 0.1 * 43_871.0 + 0.1 * 80_000.0;
        assert!((of(Shape::Sizes).mean_ns() / mean_ns - 1.0).abs() < 0.02);
        assert_eq!(
            [512, 4096, 131_072].map(|bytes| time_of_size_ns(10_000, bytes)),
            [9_000, 10_000, 80_000]
        );
    }

    #[test]
    fn reads_stall_behind_programs() {
        let mut programs = Programs::default();
        assert_eq!(programs.io(Kind::Write, 10_000, 1).device_ns, 10_000);
        assert_eq!(programs.io(Kind::Read, 10_000, 0).device_ns, 10_000);
        // The write completed at 10 µs and its program ends at 610. This read comes at 21.
        assert_eq!(programs.io(Kind::Read, 10_000, 1).device_ns, 599_000);
        assert_eq!(programs.io(Kind::Read, 10_000, 1).device_ns, 10_000);
        let trace = of(Shape::Programs);
        let stalled =
            trace.ios.iter().filter(|io| io.device_ns > 20_000).count() as f64 / IOS as f64;
        assert!((0.01..0.025).contains(&stalled), "{stalled}");
    }
}
