//! Points, with their names where there is room.

use super::element::{Element, text};
use super::frame::{ACROSS, UP, text_width};

/// Height of a label, with a margin.
const LINE: f64 = 15.0;

/// A point of a plot.
#[derive(Debug)]
pub(crate) struct Point<'a> {
    /// Its position.
    pub at: (f64, f64),
    /// The elements drawn there.
    pub marks: Vec<Element>,
    /// The whisker's extent, from left to right at the point's height.
    pub whisker: Option<(f64, f64)>,
    /// The tooltip.
    pub tip: String,
    /// The name, and the class of its text.
    pub label: (&'a str, String),
}

/// Returns points with their names beside them. The legend shows a name for which there is no room.
pub(crate) fn points(points: Vec<Point<'_>>) -> Vec<Element> {
    let mut taken: Vec<[f64; 4]> = points.iter().map(|point| box_around(point.at)).collect();
    taken.extend(points.iter().filter_map(|Point { at, whisker, .. }| {
        whisker.map(|(from, to)| [from, at.1 - 4.0, to, at.1 + 4.0])
    }));
    let (mut drawn, mut labels) = (Vec::new(), Vec::new());
    for Point { at, marks, tip, label: (label, class), .. } in points {
        drawn.push(Element::new("g").set("class", "point").tip(&tip).with(marks));
        if let Some((anchor, place, area)) = free_place(label, at, &taken) {
            labels.push(text(&class, anchor, place, label));
            taken.push(area);
        }
    }
    drawn.extend(labels);
    drawn
}

/// Returns the area of a point at this position: left, upper, right and lower end.
fn box_around((x, y): (f64, f64)) -> [f64; 4] {
    [x - 7.0, y - 7.0, x + 7.0, y + 7.0]
}

/// Finds room for a label beside, above or below a point: anchor, position, and the area taken.
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
