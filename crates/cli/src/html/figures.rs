//! The four plots of a job, a panel a device, with a sentence on how to read each.

use super::markup::Markup;
use super::model::{Job, Report, Run};
use super::svg::{self, Ranges};

/// So many curves can be told apart in one panel.
const CURVES_PER_PANEL: usize = 8;

/// A panel: what it is called, and its results.
struct Panel<'a> {
    name: String,
    runs: Vec<&'a Run>,
}

/// All figures of a job.
pub(super) fn figures(out: &mut Markup, report: &Report, job: &Job) {
    let panels = panels(report, job);
    let all = || panels.iter().flat_map(|panel| panel.runs.iter().copied());
    if !all().any(|run| run.latency.n > 0) {
        out.element("p", &[("class", &"notes")], "No I/O was done: there is nothing to draw.");
        return;
    }
    let ranges = Ranges::of(all());
    let wide = panels.len() > 1;
    let coarse = all().any(|run| run.latency.is_coarse());
    let coarse = if coarse {
        " Curves with dots join the percentiles that the file has; between the dots they are a guess."
    } else {
        ""
    };
    let figure = |out: &mut Markup,
                  title: &str,
                  how: &str,
                  legend: bool,
                  draw: &dyn Fn(&mut Markup, &Panel<'_>)| {
        out.with("figure", &[("class", &if wide { "wide" } else { "single" })], |out| {
            out.element("h3", &[], title);
            out.with("div", &[("class", &"panels")], |out| {
                for panel in &panels {
                    out.with("div", &[("class", &"panel")], |out| {
                        if wide {
                            out.element("h4", &[], &panel.name);
                        }
                        self::legend(out, panel, !legend);
                        draw(out, panel);
                    });
                }
            });
            out.element("figcaption", &[], how);
        });
        out.newline();
    };
    out.with("div", &[("class", &"figures")], |out| {
        let has_shape = all().any(|run| !run.latency.curve().is_empty());
        if has_shape {
            let how = format!(
                "Find a latency below and go up to a curve: the height is the share of I/Os that took no longer. Further \
                 left is faster; a steep curve means that I/Os take alike. Each step up at the top is another nine: at \
                 99.9, one I/O in 1,000 takes longer.{coarse}"
            );
            figure(out, "Latency distribution", &how, true, &|out, panel| {
                svg::cdf(out, &panel.name, &panel.runs, &ranges);
            });
            let how = format!(
                "The same I/Os, seen from the slow end: the height is the share that took at least so long. The curve that \
                 reaches less far to the right has the shorter tail; where curves cross, the way that is faster on \
                 average is slower in the tail.{coarse}"
            );
            figure(out, "Slow I/Os: how often, and how slow", &how, true, &|out, panel| {
                svg::exceedance(out, &panel.name, &panel.runs, &ranges);
            });
        }
        if all().any(|run| run.cpu_percent.is_some()) {
            let how = "Each point is one way to wait: to the left it answers faster, further down it needs less CPU; the best \
                       place is bottom left. The line begins at the median; its mark is the 99th percentile. At 100 % a thread \
                       does nothing but wait.";
            figure(out, "CPU against latency", how, false, &|out, panel| {
                svg::cpu_against_latency(out, &panel.name, &panel.runs, &ranges);
            });
        }
        let last_ms = all().filter_map(|run| run.series.last()).map(|moment| moment.at_ms).fold(0.0, f64::max);
        if all().any(|run| !run.series.is_empty()) {
            let how = "Thick lines are the mean of each stretch of time, thin ones its 99th percentile. Level lines mean that \
                       the figures above stand for the whole run; steps and spikes mean that something else happened on \
                       the machine, or that the device changed its behaviour.";
            figure(out, "Latency over time", how, true, &|out, panel| {
                svg::over_time(out, &panel.name, &panel.runs, &ranges, last_ms);
            });
        }
    });
    if all().all(|run| run.series.is_empty()) {
        let missing = "Latency over time is not shown: these results have no time series.";
        out.element("p", &[("class", &"notes")], missing);
    }
}

fn panels<'a>(report: &Report, job: &'a Job) -> Vec<Panel<'a>> {
    let mut panels = Vec::new();
    for block in &job.blocks {
        let machine =
            block.machine.map_or(String::new(), |at| format!(" – {}", report.sources[at].label));
        let parts = block.runs.chunks(CURVES_PER_PANEL);
        let many = parts.len();
        for (at, runs) in parts.enumerate() {
            let part = if many > 1 { format!(" ({} of {many})", at + 1) } else { String::new() };
            let name = format!("{}{machine}{part}", block.device);
            panels.push(Panel { name, runs: runs.iter().collect() });
        }
    }
    panels
}

fn legend(out: &mut Markup, panel: &Panel<'_>, markers: bool) {
    out.with("ul", &[("class", &"legend")], |out| {
        for run in &panel.runs {
            out.with("li", &[], |out| {
                svg::swatch(out, run.style, markers);
                out.text(&run.label);
            });
        }
    });
}
