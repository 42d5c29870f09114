//! CPU against latency: a point a result.

use super::Ranges;
use super::axes::{Axis, Scale};
use super::curves::{in_figures, label};
use super::frame::{ACROSS, UP, colour, line, marker, plot, text, text_width};
use crate::html::markup::Markup;
use crate::html::model::Run;

/// How high a label is, with air.
const LINE: f64 = 15.0;

/// A point a result at its mean latency and its CPU, with a whisker from the median to the 99th
/// percentile.
pub(crate) fn cpu_against_latency(out: &mut Markup, device: &str, runs: &[&Run], ranges: &Ranges) {
    let x = Axis::between(Scale::Log, ranges.typical, ACROSS);
    let y = Axis::over(Scale::Linear, std::iter::once(ranges.cpu_percent), UP);
    let label = label("CPU against mean latency", device, runs);
    let x_axis = (&x, &x.latency_ticks()[..], "mean latency, logarithmic; left is faster");
    plot(
        out,
        &label,
        x_axis,
        (&y, &y.linear_ticks(6.0), "CPU of the waiting threads, %; lower is cheaper"),
        |out| {
            let points: Vec<(&Run, (f64, f64))> = runs
                .iter()
                .filter_map(|run| {
                    Some((*run, (x.place(run.mean_ns()?), y.place(run.cpu_percent?))))
                })
                .collect();
            // From the median to the 99th percentile, and on to the mean if it lies outside.
            let whisker = |run: &Run| {
                let at = x.place(run.mean_ns()?);
                let (p50, p99) =
                    (run.latency.percentile_ns(50.0)?, run.latency.percentile_ns(99.0)?);
                Some((x.place(p50).min(at), x.place(p99), x.place(p99).max(at)))
            };
            let mut taken: Vec<[f64; 4]> = points.iter().map(|(_, at)| box_around(*at)).collect();
            taken.extend(points.iter().filter_map(|(run, at)| {
                let (from, _, to) = whisker(run)?;
                Some([from, at.1 - 4.0, to, at.1 + 4.0])
            }));
            for (run, at) in &points {
                out.with("g", &[("class", &"point")], |out| {
                    out.element("title", &[], &in_figures(run));
                    if let Some((from, p99, to)) = whisker(run) {
                        let class = format!("whisker {}", colour(run.style));
                        line(out, &class, (from, at.1), (to, at.1));
                        line(out, &class, (p99, at.1 - 4.0), (p99, at.1 + 4.0));
                    }
                    marker(out, run.style, *at);
                });
            }
            for (run, at) in &points {
                // Without a free place the legend has to do.
                if let Some((anchor, place, area)) = free_place(&run.label, *at, &taken) {
                    let class = format!("label halo {}", colour(run.style));
                    text(out, &class, anchor, place, &run.label);
                    taken.push(area);
                }
            }
        },
    );
}

/// The area of a point at this place: left, upper, right and lower end.
pub(crate) fn box_around((x, y): (f64, f64)) -> [f64; 4] {
    [x - 7.0, y - 7.0, x + 7.0, y + 7.0]
}

/// Beside, above or below a point, where nothing else is: anchor, place, and the area taken.
pub(crate) fn free_place(
    label: &str,
    (x, y): (f64, f64),
    taken: &[[f64; 4]],
) -> Option<(&'static str, (f64, f64), [f64; 4])> {
    // They are bold.
    let width = text_width(label) * 1.1;
    let near = [-LINE, LINE, 0.0, -2.0 * LINE, 2.0 * LINE];
    let mut places = Vec::new();
    for down in near {
        // The whisker goes to the right, so that a label at its height goes to the left.
        if down != 0.0 {
            places.push(("start", x - 6.0, down));
            places.push(("end", x + 6.0, down));
        } else {
            places.push(("end", x - 11.0, 0.0));
        }
    }
    places.into_iter().find_map(|(anchor, left, down)| {
        let from = if anchor == "end" { left - width } else { left };
        let middle = y + down;
        let area = [from, middle - LINE / 2.0, from + width, middle + LINE / 2.0];
        let inside =
            area[0] >= ACROSS.0 && area[2] <= ACROSS.1 && area[1] >= UP.1 && area[3] <= UP.0;
        let free = taken.iter().all(|other| {
            area[2] <= other[0] || other[2] <= area[0] || area[3] <= other[1] || other[3] <= area[1]
        });
        (inside && free).then_some((anchor, (left, middle + 4.0), area))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let mut taken: Vec<[f64; 4]> = Vec::new();
        let mut placed = 0;
        for at in 0..60 {
            let place = (200.0 + f64::from(at % 3), 100.0 + f64::from(at % 5));
            if let Some((_, _, area)) = free_place("interrupt", place, &taken) {
                taken.push(area);
                placed += 1;
            }
        }
        assert!((2..60).contains(&placed), "{placed}");
        for (at, one) in taken.iter().enumerate() {
            for other in &taken[at + 1..] {
                assert!(
                    one[2] <= other[0]
                        || other[2] <= one[0]
                        || one[3] <= other[1]
                        || other[3] <= one[1]
                );
            }
        }
    }
}
