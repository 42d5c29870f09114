//! Points, with their names where there is room.

use super::chart::{ACROSS, Chart, UP};
use super::look::Style;
use super::mark::{Mark, at, text, text_width};

/// Height of a label, with a margin.
const LINE: f64 = 15.0;

/// A point of a plot.
#[derive(Debug)]
pub(crate) struct Point<'a> {
    /// Its values on both axes.
    pub at: (f64, f64),
    /// Its style, or `None` for a reference.
    pub style: Option<Style>,
    /// A range of the horizontal axis, whose upper end is marked.
    pub whisker: Option<(f64, f64)>,
    pub name: &'a str,
    /// The tooltip.
    pub tip: String,
}

impl Chart {
    /// Adds points with their names beside them. The legend shows a name for which there is no room.
    pub(crate) fn points(&mut self, points: &[Point<'_>]) {
        let place = |point: &Point<'_>| self.place(point.at);
        let places: Vec<_> = points.iter().map(place).collect();
        let around = |(x, y): &(f64, f64)| [x - 7.0, y - 7.0, x + 7.0, y + 7.0];
        let mut taken: Vec<[f64; 4]> = places.iter().map(around).collect();
        let (mut drawn, mut labels) = (Vec::new(), Vec::new());
        for (Point { at: value, style, whisker, tip, .. }, (x, y)) in points.iter().zip(&places) {
            if let Some(((low, high), style)) = whisker.zip(*style) {
                let [low, high] = [low, high].map(|end| self.place((end, value.1)).0);
                let (from, to) = (low.min(*x), high.max(*x));
                let path =
                    format!("M{} {}H{}M{} {}v8", at(from), at(*y), at(to), at(high), at(y - 4.0));
                drawn.push(Mark::new(format!("whisker {}", style.colour()), path).tip(tip));
                taken.push([from, y - 4.0, to, y + 4.0]);
            }
            let mark = style.map_or_else(|| target((*x, *y)), |style| style.marker((*x, *y)));
            drawn.push(mark.tip(tip));
        }
        for (Point { style, name, .. }, place) in points.iter().zip(places) {
            let class = match style {
                Some(style) => format!("label halo {}", style.colour()),
                None => "note halo".to_owned(),
            };
            if let Some((anchor, place, area)) = free_place(name, place, &taken) {
                labels.push(text(&class, anchor, place, name));
                taken.push(area);
            }
        }
        self.add(drawn);
        self.add(labels);
    }
}

/// Draws a reference's mark: a ring with a cross in it.
fn target((x, y): (f64, f64)) -> Mark {
    let ring = format!("M{} {}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", at(x - 5.0), at(y));
    Mark::new("target", ring + "m-3 0h16m-8 -8v16")
}

/// Finds room for a label beside, above or below a point. Returns the anchor, the position and the
/// area taken.
fn free_place(
    label: &str,
    (x, y): (f64, f64),
    taken: &[[f64; 4]],
) -> Option<(&'static str, (f64, f64), [f64; 4])> {
    // Labels are bold.
    let width = text_width(label) * 1.1;
    // A whisker extends to the right, so a label at its height goes to the left.
    let sides = |down: f64| match down == 0.0 {
        true => vec![("end", x - 11.0, down)],
        false => vec![("start", x - 6.0, down), ("end", x + 6.0, down)],
    };
    let places = [-LINE, LINE, 0.0, -2.0 * LINE, 2.0 * LINE].into_iter().flat_map(sides);
    places.into_iter().find_map(|(anchor, left, down)| {
        let from = if anchor == "end" { left - width } else { left };
        let middle = y + down;
        let area = [from, middle - LINE / 2.0, from + width, middle + LINE / 2.0];
        let inside =
            area[0] >= ACROSS.0 && area[2] <= ACROSS.1 && area[1] >= UP.1 && area[3] <= UP.0;
        let free = taken.iter().all(|other| !overlap(&area, other));
        (inside && free).then_some((anchor, (left, middle + 4.0), area))
    })
}

fn overlap(one: &[f64; 4], other: &[f64; 4]) -> bool {
    one[2] > other[0] && other[2] > one[0] && one[3] > other[1] && other[3] > one[1]
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
