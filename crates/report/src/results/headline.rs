//! The findings, in a sentence for each job and device.

use super::model::{Block, Job, Report, Run, device_name};
use crate::figures::{self, change, iops};

/// A sentence: its subject, and the finding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// `4 KiB random reads on optane`.
    pub about: String,
    /// The rest of the sentence.
    pub found: String,
}

/// Returns all findings, in the page's order.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let blocks =
        report.jobs.iter().flat_map(|job| job.blocks.iter().map(move |block| (job, block)));
    blocks.map(|(job, block)| finding(report, job, block)).collect()
}

fn finding(report: &Report, job: &Job, block: &Block) -> Finding {
    let twice =
        report.jobs.iter().filter(|other| other.workload.words == job.workload.words).count() > 1;
    let name = if twice {
        format!("{} ({})", job.workload.words, job.name)
    } else {
        job.workload.words.clone()
    };
    let machine =
        block.machine.map_or(String::new(), |at| format!(", {}", report.sources[at].label));
    let about = format!("{name} on {}{machine}", device_name(&block.device));
    let done: Vec<&Run> = block.runs.iter().filter(|run| run.latency.n > 0).collect();
    let Some(first) = done.first() else {
        return Finding { about, found: "no I/O was done.".to_owned() };
    };
    // Runs of one file took turns: they are compared first, then other files with it.
    let (ours, others): (Vec<&Run>, Vec<&Run>) =
        done.iter().partition(|run| run.source == first.source);
    let mut found = within(&ours);
    if report.sources.len() > 1 {
        found = format!("in {}: {found}", report.sources[first.source].label);
    }
    for (at, source) in report.sources.iter().enumerate() {
        let theirs: Vec<String> =
            others.iter().filter(|run| run.source == at).map(|run| against(run, &ours)).collect();
        if !theirs.is_empty() {
            found += &format!(" In {}: {}.", source.label, theirs.join(", "));
        }
    }
    Finding { about, found }
}

/// Describes a policy in another file, and its change if the first file has the policy, too.
fn against(run: &Run, first: &[&Run]) -> String {
    let same = first.iter().find(|other| other.way == run.way);
    let changed = same.map_or(String::new(), |other| {
        format!(" ({})", change(run.latency.mean_ns, other.latency.mean_ns))
    });
    format!("{} {}{changed}", run.way, mean(run))
}

/// Describes the mean; also the median, if a few slow I/Os dominate the mean.
fn mean(run: &Run) -> String {
    const FAR: f64 = 1.5;
    let mean_ns = run.latency.mean_ns;
    match run.latency.percentile_ns(50.0) {
        Some(median_ns) if median_ns > 0.0 && mean_ns > FAR * median_ns => {
            format!("{} (median {})", figures::time(mean_ns), figures::time(median_ns))
        }
        _ => figures::time(mean_ns),
    }
}

/// Compares the quickest policy with the usual one, and names the one with the most I/Os for
/// its CPU. There is at least one run.
fn within(done: &[&Run]) -> String {
    let by_mean = |a: &&&Run, b: &&&Run| a.latency.mean_ns.total_cmp(&b.latency.mean_ns);
    let Some(&quickest) = done.iter().min_by(by_mean) else { return String::new() };
    let found = format!("{} {}", quickest.way, mean(quickest));
    if done.len() == 1 {
        let cpu = quickest.cpu_percent.map(|percent| format!(", {percent:.0} % of a CPU"));
        return format!("{found}, {} IOPS{}.", iops(quickest.iops), cpu.unwrap_or_default());
    }
    let changed = |run: &Run, from: &Run| change(run.latency.mean_ns, from.latency.mean_ns);
    // The usual policy is `interrupt`, which every system has; else the first policy.
    let usual = done.iter().find(|run| run.way == "interrupt").copied().unwrap_or(done[0]);
    let mut found = if std::ptr::eq(usual, quickest) {
        let others = done.iter().filter(|run| !std::ptr::eq(**run, quickest));
        let next = others.min_by(by_mean).copied().unwrap_or(quickest);
        let (way, mean, changed) = (&next.way, mean(next), changed(next, quickest));
        format!("{found}, quicker than the others; next {way} {mean} ({changed})")
    } else {
        let (way, mean, changed) = (&usual.way, mean(usual), changed(quickest, usual));
        format!("{found}, {way} {mean} ({changed}){}", cpu_ratio(quickest, usual))
    };
    let per_cpu = |run: &Run| run.iops_per_cpu_percent().unwrap_or(0.0);
    let thriftiest = done.iter().max_by(|a, b| per_cpu(a).total_cmp(&per_cpu(b)));
    if let Some(run) = thriftiest.filter(|run| per_cpu(run) > 0.0) {
        let (way, figure) = (&run.way, iops(per_cpu(run)));
        found += &format!("; most I/Os for the CPU it used: {way}, {figure} IOPS per CPU-%");
    }
    found + "."
}

fn cpu_ratio(run: &Run, other: &Run) -> String {
    match (run.cpu_percent, other.cpu_percent) {
        (Some(ours), Some(theirs)) if ours > 0.0 && theirs > 0.0 => {
            let ratio = ours / theirs;
            if (0.95..1.05).contains(&ratio) {
                ", at the same CPU".to_owned()
            } else if ratio < 10.0 {
                format!(", at {ratio:.1} × the CPU")
            } else {
                format!(", at {ratio:.0} × the CPU")
            }
        }
        _ => String::new(),
    }
}
