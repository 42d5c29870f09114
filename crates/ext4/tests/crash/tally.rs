//! Counts of what was checked, by kind of device and setting.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Config;

/// One row of the table.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub runs: u64,
    pub cuts: u64,
    /// Distinct contents of the medium.
    pub states: u64,
    /// Those among them left by a power cut during recovery.
    pub again: u64,
    /// Comparisons with the model.
    pub checks: u64,
    /// Recoveries by this crate, by e2fsck, by the kernel.
    pub ours: u64,
    pub e2fsck: u64,
    pub kernel: u64,
    /// Checks by `e2fsck -fn`.
    pub silent: u64,
    /// Torn superblocks, which cannot be recovered.
    pub torn: u64,
    pub violations: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.runs, other.runs),
            (&mut self.cuts, other.cuts),
            (&mut self.states, other.states),
            (&mut self.again, other.again),
            (&mut self.checks, other.checks),
            (&mut self.ours, other.ours),
            (&mut self.e2fsck, other.e2fsck),
            (&mut self.kernel, other.kernel),
            (&mut self.silent, other.silent),
            (&mut self.torn, other.torn),
            (&mut self.violations, other.violations),
        ];
        pairs.into_iter().for_each(|(sum, count)| *sum += count);
    }
}

#[derive(Debug, Default)]
struct Known {
    states: HashSet<u64>,
    total: Counts,
    rows: BTreeMap<String, Counts>,
}

/// Counters of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Known>);

impl Tally {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no run has checked this state before.
    pub(crate) fn is_new(&self, hash: u64) -> bool {
        self.known().states.insert(hash)
    }

    /// Adds the counts of a run of kind `what` on `config`.
    pub(crate) fn add(&self, config: &Config, what: &str, counts: &Counts) {
        let mut known = self.known();
        known.total.add(counts);
        for label in labels(config).into_iter().chain([format!("of {what}")]) {
            known.rows.entry(label).or_default().add(counts);
        }
    }

    /// The number of distinct states so far.
    pub(crate) fn states(&self) -> u64 {
        self.known().total.states
    }

    pub(crate) fn line(&self) -> String {
        let Counts { runs, cuts, states, again, checks, kernel, torn, .. } = self.known().total;
        format!(
            "{runs} runs, {cuts} power cuts, {states} distinct states ({again} of them left by a cut during recovery), {checks} checks, {kernel} mounted by the kernel, {torn} with a torn superblock"
        )
    }

    pub(crate) fn table(&self) -> String {
        let known = self.known();
        let width = known.rows.keys().map(String::len).max().unwrap_or(0).max(5);
        let mut text = format!(
            "{:width$} {:>6} {:>7} {:>8} {:>7} {:>8} {:>8} {:>7} {:>6} {:>10}\n",
            "", "runs", "cuts", "states", "again", "us", "e2fsck", "kernel", "torn", "violations"
        );
        for (name, row) in known.rows.iter().chain([(&"total".to_owned(), &known.total)]) {
            let Counts {
                runs, cuts, states, again, ours, e2fsck, kernel, torn, violations, ..
            } = row;
            let _ = writeln!(
                text,
                "{name:width$} {runs:>6} {cuts:>7} {states:>8} {again:>7} {ours:>8} {e2fsck:>8} {kernel:>7} {torn:>6} {violations:>10}"
            );
        }
        text
    }
}

fn labels(config: &Config) -> Vec<String> {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let mut labels = vec![
        format!("volatile cache: {}", yes(config.volatile)),
        format!("blocks of {}", config.block_bytes),
        format!("logical blocks of {}", config.lba_bytes),
        format!("atomic unit of {}", config.unit_bytes),
        format!("overlap data: {}", yes(config.commit_overlap.data)),
        format!("overlap prepare: {}", yes(config.commit_overlap.prepare)),
        format!("commits by their leader: {}", yes(config.commit_overlap.caller_commits)),
        format!("overlap of reads: {}", yes(config.overlap == meantime_ext4::Overlap::ALL)),
        format!(
            "fast commits: {}",
            if config.makes_fast_commits() || !config.fast_commit {
                yes(config.fast_commit)
            } else {
                "wanted"
            }
        ),
        format!("log of {} blocks", config.log_blocks),
        format!("dirty at most: {}", config.dirty_bytes),
        format!("device {}", config.model),
    ];
    labels.push(format!(
        "features: {}",
        if config.features.is_empty() { "as mkfs" } else { config.features }
    ));
    labels
}
