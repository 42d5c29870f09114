//! The findings, in a sentence for each job and device.

use askama::Template;
use itertools::Itertools as _;

use super::model::{Block, Job, Report, Run, device_name};
use super::sweep::{Sweep, sweeps};
use crate::figures::{self, change, iops};
use crate::view;

/// Returns all findings in the page's order. Each is a sentence in two parts: its subject, such as
/// `4 KiB random reads on optane`, and the rest.
pub(super) fn findings(report: &Report) -> Vec<(String, String)> {
    let jobs = report.jobs.iter().filter(|job| !job.is_swept());
    let blocks = jobs.flat_map(|job| job.blocks.iter().map(move |block| (job, block)));
    let found = blocks.map(|(job, block)| finding(report, job, block));
    let of_sweep = |of: &Sweep<'_>| (format!("{} on {}", of.name, of.place(report)), of.finding());
    found.chain(sweeps(report).iter().map(of_sweep)).collect()
}

fn finding(report: &Report, job: &Job, block: &Block) -> (String, String) {
    let words = &job.workload.words;
    let twice = report.jobs.iter().filter(|other| other.workload.words == *words).count() > 1;
    let name = if twice { format!("{words} ({})", job.name) } else { words.clone() };
    let machine =
        block.machine.map_or(String::new(), |at| format!(", {}", report.sources[at].label));
    let about = format!("{name} on {}{machine}", device_name(&block.device));
    let done: Vec<&Run> = block.runs.iter().filter(|run| run.latency.n > 0).collect();
    let Some(first) = done.first() else {
        return (about, "no I/O was done.".to_owned());
    };
    // Runs of one file took turns: they are compared first, then other files with it.
    let (mut ours, others): (Vec<&Run>, Vec<&Run>) =
        done.iter().partition(|run| run.source == first.source);
    // The usual policy is `interrupt`, which every system has; else the first policy.
    let usual = ours.iter().find(|run| run.way == "interrupt").copied().unwrap_or(first);
    ours.sort_by(|a, b| a.latency.mean_ns.total_cmp(&b.latency.mean_ns));
    let usual = (!std::ptr::eq(usual, ours[0])).then_some(usual);
    (about, view::render(&Found { report, usual, ours, others }))
}

/// Compares the quickest policy with the usual one, names the one with the most I/Os for its CPU,
/// and compares other files.
#[derive(Template)]
#[template(path = "finding.txt", escape = "none")]
struct Found<'a> {
    report: &'a Report,
    /// The usual policy, unless it is the quickest.
    usual: Option<&'a Run>,
    /// The runs of the first file, the quickest first. `others` are the runs of the other files.
    ours: Vec<&'a Run>,
    others: Vec<&'a Run>,
}

impl Found<'_> {
    /// Describes the mean, and also the median if a few slow I/Os dominate the mean.
    fn mean(&self, run: &Run) -> String {
        const FAR: f64 = 1.5;
        let (mean_ns, median_ns) = (run.latency.mean_ns, run.latency.percentile_ns(50.0));
        let median = median_ns.filter(|median_ns| *median_ns > 0.0 && mean_ns > FAR * median_ns);
        let median = median.map(|median_ns| format!(" (median {})", figures::time(median_ns)));
        figures::time(mean_ns) + &median.unwrap_or_default()
    }

    fn changed(&self, run: &Run, from: &Run) -> String {
        change(run.latency.mean_ns, from.latency.mean_ns)
    }

    fn cpu_ratio(&self, run: &Run, other: &Run) -> String {
        let ratio = run.cpu_percent.zip(other.cpu_percent).map(|(ours, theirs)| ours / theirs);
        match ratio.filter(|ratio| ratio.is_normal()) {
            Some(0.95..1.05) => ", at the same CPU".to_owned(),
            Some(ratio) if ratio < 10.0 => format!(", at {ratio:.1} × the CPU"),
            Some(ratio) => format!(", at {ratio:.0} × the CPU"),
            None => String::new(),
        }
    }

    /// Returns the policy with the most I/Os for its CPU, unless there is but one.
    fn thriftiest(&self) -> Option<(&str, String)> {
        let known = self.ours.iter().filter_map(|run| Some((*run, run.iops_per_cpu_percent()?)));
        let (run, figure) = known.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (self.ours.len() > 1 && figure > 0.0).then(|| (run.way.as_str(), iops(figure)))
    }

    /// Describes the policies of another file, and their changes if the first file has them, too.
    fn of_source(&self, at: usize) -> String {
        let against = |run: &&Run| {
            let same = self.ours.iter().find(|other| other.way == run.way);
            let changed = same.map(|other| format!(" ({})", self.changed(run, other)));
            format!("{} {}{}", run.way, self.mean(run), changed.unwrap_or_default())
        };
        self.others.iter().filter(|run| run.source == at).map(against).join(", ")
    }
}
