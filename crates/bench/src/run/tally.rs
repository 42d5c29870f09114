//! The counters of a thread during I/O.

use meantime_report::run::{DirStats, LatencyStats, batch_level, depth_level};

use super::logs::Log;
use super::series::Series;
use super::watch::CellWatch;
use crate::engine::Record;
use crate::pattern::Io;

/// Latencies of all directions, and the depths reached.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Reads, writes and trims.
    pub directions: [DirStats; 3],
    /// Flushes, if there were any.
    pub flushes: Option<Box<LatencyStats>>,
    /// I/Os by depth at submission, in fio's steps.
    pub depths: [u64; 7],
    /// Submissions by number of I/Os, in fio's steps.
    pub submits: [u64; 7],
    /// Completions by number of I/Os, in fio's steps.
    pub completes: [u64; 7],
    /// Latency over time.
    pub series: Series,
}

impl Record for Tally {
    #[inline(always)]
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        let stats = &mut self.directions[io.dir as usize];
        stats.ios += 1;
        stats.bytes += io.bytes as u64;
        stats.slat.record(slat_ns);
        stats.clat.record(clat_ns);
        stats.lat.record(slat_ns + clat_ns);
        self.series.record(io, seen_ns, slat_ns + clat_ns);
    }

    #[inline(always)]
    fn submitted(&mut self, depth: usize, ios: u64) {
        self.depths[depth_level(depth as u32)] += ios;
        self.submits[batch_level(ios)] += 1;
    }

    #[inline(always)]
    fn reaped(&mut self, ios: u64) {
        self.completes[batch_level(ios)] += 1;
    }

    fn flushed(&mut self, ns: u64) {
        self.flushes.get_or_insert_default().record(ns);
    }
}

/// A tally and a log.
#[derive(Debug)]
pub(crate) struct Logged<'a>(pub &'a mut Tally, pub &'a mut Log);

impl Record for Logged<'_> {
    #[inline(always)]
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        self.0.done(io, slat_ns, clat_ns, seen_ns);
        self.1.record(io, slat_ns, clat_ns, seen_ns);
    }

    #[inline(always)]
    fn submitted(&mut self, depth: usize, ios: u64) {
        self.0.submitted(depth, ios);
    }

    #[inline(always)]
    fn reaped(&mut self, ios: u64) {
        self.0.reaped(ios);
    }

    fn flushed(&mut self, ns: u64) {
        self.0.flushed(ns);
    }
}

/// A tally, perhaps a log, and what other threads see.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    pub tally: &'a mut Tally,
    pub log: Option<&'a mut Log>,
    pub watch: CellWatch<'a>,
}

impl Record for Watched<'_> {
    #[inline(always)]
    fn done(&mut self, io: &Io, slat_ns: u64, clat_ns: u64, seen_ns: u64) {
        self.tally.done(io, slat_ns, clat_ns, seen_ns);
        if let Some(log) = &mut self.log {
            log.record(io, slat_ns, clat_ns, seen_ns);
        }
        self.watch.record(io, slat_ns + clat_ns);
    }

    #[inline(always)]
    fn submitted(&mut self, depth: usize, ios: u64) {
        self.tally.submitted(depth, ios);
    }

    #[inline(always)]
    fn reaped(&mut self, ios: u64) {
        self.tally.reaped(ios);
    }

    fn flushed(&mut self, ns: u64) {
        self.tally.flushed(ns);
        self.watch.flushed(ns);
    }
}

impl Tally {
    /// Returns the I/Os of all directions.
    pub(crate) fn ios(&self) -> u64 {
        self.directions.iter().map(|stats| stats.ios).sum()
    }

    /// Returns the bytes of all directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.directions.iter().map(|stats| stats.bytes).sum()
    }

    /// Returns the latencies of all directions, or `None` without any.
    pub(crate) fn latency(&self) -> Option<LatencyStats> {
        let mut used = self.directions.iter().filter(|stats| stats.ios > 0);
        let first = used.next()?.lat.clone();
        Some(used.fold(first, |mut all, stats| {
            all.merge(&stats.lat);
            all
        }))
    }

    /// Adds the counters of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Skips empty histograms.
        let directions = self.directions.iter_mut().zip(&other.directions);
        for (ours, theirs) in directions.filter(|(_, theirs)| theirs.ios > 0) {
            ours.merge(theirs);
        }
        if let Some(flushes) = &other.flushes {
            self.flushes.get_or_insert_default().merge(flushes);
        }
        for (ours, theirs) in [
            (&mut self.depths, &other.depths),
            (&mut self.submits, &other.submits),
            (&mut self.completes, &other.completes),
        ] {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        }
        self.series.merge(&other.series);
    }

    /// Discards everything. Allocations stay.
    pub(crate) fn reset(&mut self) {
        for stats in self.directions.iter_mut().filter(|stats| stats.ios > 0) {
            (stats.ios, stats.bytes) = (0, 0);
            let latencies = [&mut stats.slat, &mut stats.clat, &mut stats.lat];
            latencies.into_iter().for_each(LatencyStats::reset);
        }
        if let Some(flushes) = &mut self.flushes {
            flushes.reset();
        }
        (self.depths, self.submits, self.completes) = ([0; 7], [0; 7], [0; 7]);
        self.series.reset();
    }
}
