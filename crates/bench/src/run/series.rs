//! Latency and rates over time, as a bounded list of windows over a cell's measured time.
//!
//! Recording is a comparison and a few additions. A window's histogram has eight steps an octave.

use meantime_report::run::{Rates, SeriesPoint};

use crate::pattern::Io;

/// The maximum number of windows of a series. Beyond that, neighbours are merged.
pub(super) const WINDOWS_MAX: usize = 500;

/// The initial width of windows.
const WIDTH_NS: u64 = 1_000_000;

/// The width of samples of the rates, unless windows are wider: the power of two (in ms) next to
/// fio's 500 ms.
const SAMPLE_NS: u64 = 512 * WIDTH_NS;

/// Steps of a window's histogram, which reach up to 17 s.
const STEPS: usize = 256;

/// I/Os and bytes of each direction.
type Moved = [(u64, u64); 3];

fn add(sum: &mut Moved, moved: &Moved) {
    for ((ios, bytes), moved) in sum.iter_mut().zip(moved) {
        *ios += moved.0;
        *bytes += moved.1;
    }
}

#[derive(Debug, Clone)]
struct Window {
    moved: Moved,
    sum_ns: u64,
    max_ns: u64,
    counts: [u32; STEPS],
}

impl Window {
    const EMPTY: Self = Self { moved: [(0, 0); 3], sum_ns: 0, max_ns: 0, counts: [0; STEPS] };

    fn ios(&self) -> u64 {
        self.moved.iter().map(|(ios, _)| ios).sum()
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.moved, &other.moved);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours = ours.saturating_add(*theirs);
        }
    }

    /// Returns the latency that 99 % did not exceed, with the precision of the steps.
    fn p99_ns(&self) -> u64 {
        let rank = (self.ios() * 99).div_ceil(100).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return middle_of(step).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Returns the step of a latency. There are eight steps an octave.
#[inline(always)]
fn step_of(ns: u64) -> usize {
    // Below 8 each value is a step, and eight is the smallest value in an octave.
    let octave = (ns | 8).ilog2();
    let in_octave = (ns >> (octave - 3)) & 15;
    ((u64::from(octave) - 3) * 8 + in_octave).min(STEPS as u64 - 1) as usize
}

fn middle_of(step: usize) -> u64 {
    if step < 8 {
        return step as u64;
    }
    let octave = step / 8 + 2;
    let width = 1u64 << (octave - 3);
    (8 + (step % 8) as u64) * width + width / 2
}

/// Windows of equal width over a cell's measured time.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    width_ns: u64,
    /// Index of `windows[0]` in the cell's time.
    first: u64,
    windows: Vec<Window>,
    /// The window that is not yet added to the last one. It is found without a search.
    open: Window,
    /// The clock when the cell's time was 0, in this turn.
    zero_ns: i128,
    /// The clock at the end of the last window.
    end_ns: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            width_ns: WIDTH_NS,
            first: 0,
            windows: Vec::new(),
            open: Window::EMPTY,
            zero_ns: 0,
            end_ns: 0,
        }
    }
}

impl Series {
    /// Begins or continues at `now_ns` by the clock, `at_ns` in the cell's measured time.
    pub(crate) fn begin(&mut self, now_ns: u64, at_ns: u64) {
        if self.windows.is_empty() {
            // Reserves all memory now, so that recording never allocates.
            self.windows.reserve(WINDOWS_MAX);
            self.width_ns = WIDTH_NS;
            while at_ns / self.width_ns >= WINDOWS_MAX as u64 {
                self.width_ns *= 2;
            }
            self.first = at_ns / self.width_ns;
        }
        self.zero_ns = i128::from(now_ns) - i128::from(at_ns);
        self.end_ns = 0;
    }

    /// Discards everything, because the cell's time begins again.
    pub(crate) fn reset(&mut self) {
        self.windows.clear();
        self.open = Window::EMPTY;
        (self.width_ns, self.first, self.end_ns) = (WIDTH_NS, 0, 0);
    }

    /// Records an I/O of a turn that has begun.
    #[inline(always)]
    pub(crate) fn record(&mut self, io: &Io, seen_ns: u64, latency_ns: u64) {
        if seen_ns >= self.end_ns {
            self.move_on(seen_ns);
        }
        let window = &mut self.open;
        let (ios, bytes) = &mut window.moved[io.dir as usize];
        *ios += 1;
        *bytes += io.bytes as u64;
        window.sum_ns = window.sum_ns.wrapping_add(latency_ns);
        window.max_ns = window.max_ns.max(latency_ns);
        window.counts[step_of(latency_ns)] += 1;
    }

    /// Adds the open window to its place.
    fn close(&mut self) {
        if let Some(window) = self.windows.last_mut().filter(|_| self.open.ios() > 0) {
            window.add(&self.open);
            self.open = Window::EMPTY;
        }
    }

    #[cold]
    #[inline(never)]
    fn move_on(&mut self, seen_ns: u64) {
        self.close();
        let at_ns = (i128::from(seen_ns) - self.zero_ns).max(0) as u64;
        self.extend_to(at_ns);
        let end_ns =
            self.zero_ns + i128::from((self.first + self.windows.len() as u64) * self.width_ns);
        self.end_ns = end_ns.max(0) as u64;
    }

    /// Makes the window of `at_ns` the last one, if it is not.
    fn extend_to(&mut self, at_ns: u64) {
        while (at_ns / self.width_ns).saturating_sub(self.first) >= WINDOWS_MAX as u64 {
            self.halve();
        }
        let wanted = ((at_ns / self.width_ns).saturating_sub(self.first) + 1) as usize;
        while self.windows.len() < wanted {
            self.windows.push(Window::EMPTY);
        }
    }

    /// Merges neighbours.
    fn halve(&mut self) {
        self.width_ns *= 2;
        let first = self.first / 2;
        let mut merged = 0;
        for at in 0..self.windows.len() {
            let to = ((self.first + at as u64) / 2 - first) as usize;
            if to == at {
                merged = to + 1;
                continue;
            }
            let window = std::mem::replace(&mut self.windows[at], Window::EMPTY);
            if to < merged {
                self.windows[to].add(&window);
            } else {
                self.windows[to] = window;
                merged = to + 1;
            }
        }
        self.windows.truncate(merged);
        self.first = first;
    }

    /// Adds the latencies of `other`. This series must start at the beginning of a cell's time.
    pub(crate) fn merge(&mut self, other: &Self) {
        while self.width_ns < other.width_ns {
            self.halve();
        }
        let mut other = other.clone();
        other.close();
        for (at, window) in other.windows.iter().enumerate().filter(|(_, window)| window.ios() > 0)
        {
            let at_ns = (other.first + at as u64) * other.width_ns;
            self.extend_to(at_ns);
            self.windows[(at_ns / self.width_ns - self.first) as usize].add(window);
        }
    }

    /// Returns the windows with I/Os.
    pub(crate) fn points(&self) -> Vec<SeriesPoint> {
        let mut all = self.clone();
        all.close();
        let windows = all.windows.iter().enumerate().filter(|(_, window)| window.ios() > 0);
        let point = |(at, window): (usize, &Window)| SeriesPoint {
            at_ms: (self.first + at as u64) * self.width_ns / 1_000_000,
            ios: window.ios(),
            mean_ns: window.sum_ns as f64 / window.ios() as f64,
            p99_ns: window.p99_ns(),
            max_ns: window.max_ns,
        };
        windows.map(point).collect()
    }

    /// Returns what each direction moved in each whole sample of the first `wall_ns`. This series
    /// must start at the beginning of a cell's time.
    pub(crate) fn rates(&self, wall_ns: u64) -> [Rates; 3] {
        let mut all = self.clone();
        all.close();
        let width_ns = u64::max(all.width_ns, SAMPLE_NS);
        let mut samples = vec![[(0, 0); 3]; (wall_ns / width_ns) as usize];
        for (at, window) in all.windows.iter().enumerate() {
            let at = (all.first + at as u64) * all.width_ns / width_ns;
            let Some(sample) = samples.get_mut(at as usize) else { break };
            add(sample, &window.moved);
        }
        [0, 1, 2].map(|direction| Rates {
            width_ns,
            samples: samples.iter().map(|sample| sample[direction]).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::Dir;

    #[test]
    fn steps_are_in_order_and_an_eighth_wide() {
        let mut last = 0;
        for ns in (0..200)
            .chain((8..34).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]))
        {
            let step = step_of(ns);
            assert!(step >= last && step < STEPS, "{ns}");
            assert!((middle_of(step) as f64 - ns as f64).abs() <= ns as f64 / 12.0 + 1.0, "{ns}");
            last = step;
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }

    /// A read of 4 KiB.
    fn read() -> Io {
        Io { dir: Dir::Read, lba: 0, bytes: 4096 }
    }

    /// Turns of 300 ms beside other cells': 2 s in all, which are three whole samples.
    #[test]
    fn rates_are_of_whole_samples_in_the_cells_own_time() {
        let mut total = Series::default();
        let (read, write) = (read(), Io { dir: Dir::Write, bytes: 512, ..read() });
        for turn in 0..7 {
            let mut slice = Series::default();
            let start_ns = 1_000_000_000 * turn;
            slice.begin(start_ns, 300_000_000 * turn);
            for ms in 0..300 {
                let other = if ms % 2 == 0 { &write } else { &read };
                for io in [&read, other] {
                    slice.record(io, start_ns + ms * 1_000_000, 10);
                }
            }
            total.merge(&slice);
        }
        let [reads, writes, trims] = total.rates(2_000_000_000);
        assert_eq!(reads.width_ns, 512_000_000);
        assert_eq!(reads.samples, [(768, 768 * 4096); 3]);
        assert_eq!(writes.samples, [(256, 256 * 512); 3]);
        assert_eq!(trims.samples, [(0, 0); 3]);
        // A run of an hour has wider windows.
        total.extend_to(3_600_000_000_000);
        let [reads, ..] = total.rates(3_600_000_000_000);
        assert_eq!(reads.width_ns, 8_192_000_000);
        assert_eq!(reads.samples[0].0, 7 * 450);
    }

    #[test]
    fn a_long_run_has_a_bounded_list() {
        let mut total = Series::default();
        for turn in 0..20 {
            let mut slice = Series::default();
            slice.begin(1_000_000_000 * turn * 3, 500_000_000 * turn);
            for at in 0..5_000 {
                slice.record(&read(), 1_000_000_000 * turn * 3 + at * 100_000, 1000 + at % 7);
            }
            total.merge(&slice);
        }
        let points = total.points();
        assert!((250..=WINDOWS_MAX).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|point| point.ios).sum::<u64>(), 100_000);
        assert!(points.is_sorted_by(|a, b| a.at_ms < b.at_ms));
        assert!(
            points
                .iter()
                .all(|point| point.max_ns == 1006 && (1000.0..1007.0).contains(&point.mean_ns))
        );
        assert!(points.last().unwrap().at_ms < 10_000);
    }

    proptest! {
        /// Every I/O is in the window of its time, for any sequence of turns.
        #[test]
        fn merging_keeps_times(turns in prop::collection::vec((1u64..3_000, 1u64..50), 1..12)) {
            let (mut total, mut at_ms, mut want) = (Series::default(), 0u64, Vec::new());
            for (length_ms, ios) in turns {
                let mut slice = Series::default();
                slice.begin(77_000_000, at_ms * 1_000_000);
                for io in 0..ios {
                    let since_ms = length_ms * io / ios;
                    slice.record(&read(), 77_000_000 + since_ms * 1_000_000, at_ms + since_ms);
                    want.push(at_ms + since_ms);
                }
                total.merge(&slice);
                at_ms += length_ms;
            }
            let points = total.points();
            prop_assert!(points.len() <= WINDOWS_MAX);
            let mut left = want.into_iter().peekable();
            for (at, point) in points.iter().enumerate() {
                let end_ms = points.get(at + 1).map_or(u64::MAX, |next| next.at_ms);
                let mut ios = 0;
                while let Some(ms) = left.next_if(|ms| *ms < end_ms) {
                    prop_assert!(ms >= point.at_ms && ms <= point.max_ns);
                    ios += 1;
                }
                prop_assert_eq!(ios, point.ios);
            }
            prop_assert!(left.next().is_none());
        }
    }
}
