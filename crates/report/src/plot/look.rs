//! The look of policies: the same in every picture and on every page.

use super::element::{Element, at, polyline};
use super::frame::view;

/// Policies with a look of their own. Related policies share a colour.
const KNOWN: [(&str, usize); 9] = [
    ("adaptive", 0),
    ("poll", 1),
    ("interrupt", 5),
    ("pas", 2),
    ("dpas", 10),
    ("hybrid", 3),
    ("hybrid-bucket", 11),
    ("hybrid-min", 19),
    ("ehp", 6),
];

/// The looks of all other policies, in this order.
const OTHERS: [usize; 10] = [4, 7, 12, 15, 20, 23, 28, 31, 36, 39];

/// Number of colours. There are five kinds of dashes and of markers, so there are forty looks.
pub const COLOURS: usize = 8;
const LOOKS: usize = 40;

/// The colours by number, on white and on black.
pub const PALETTE: [[&str; COLOURS]; 2] = [
    ["#0067b1", "#c4480a", "#00775c", "#9b3a94", "#7d6200", "#3d4148", "#00809c", "#8a4633"],
    ["#58b0ff", "#ff8f57", "#35cba0", "#ee8fe4", "#e0c245", "#cfd5dc", "#4fd2ee", "#d99c84"],
];

/// Returns the look of each of `names`, which are all names on a page. A policy with something
/// added (`hybrid=2us`, `poll, sched rr:1`) has the policy's colour, as long as there are looks of
/// that colour.
pub fn looks(names: &[String]) -> Vec<usize> {
    let mut used: Vec<usize> = KNOWN.iter().map(|(_, look)| *look).collect();
    let look = |name: &String| {
        if let Some(look) = known(name) {
            return look;
        }
        let base = base_of(name);
        let related =
            base.into_iter().flat_map(|base| (1..5).map(move |nth| (base + COLOURS * nth) % LOOKS));
        let free = related.chain(OTHERS).chain(0..LOOKS).find(|look| !used.contains(look));
        let look = free.unwrap_or(OTHERS[used.len() % OTHERS.len()]);
        used.push(look);
        look
    };
    names.iter().map(look).collect()
}

fn known(name: &str) -> Option<usize> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, look)| *look)
}

/// Returns the look of the policy that `name` is, or is made from.
fn base_of(name: &str) -> Option<usize> {
    name.split([':', '=', ',', ' ']).next().and_then(known)
}

/// Returns looks for a picture that has no more than `names`: what is no policy has a colour of its
/// own, as long as there are any.
fn looks_of_picture(names: &[String]) -> Vec<usize> {
    /// Colours for what is no policy: first those that are not a common policy's.
    const FREE: [usize; COLOURS] = [4, 7, 6, 2, 3, 0, 5, 1];
    let mut looks = looks(names);
    // Bars of the same colour cannot be told apart: only policies keep theirs.
    let is_policy = |at: usize| names.get(at).is_some_and(|name| known(name).is_some());
    let mut used: Vec<usize> =
        (0..looks.len()).filter(|at| is_policy(*at)).map(|at| looks[at] % COLOURS).collect();
    for at in (0..looks.len()).filter(|at| !is_policy(*at)) {
        let own = names.get(at).and_then(|name| base_of(name)).map(|base| base % COLOURS);
        if let Some(colour) = own.into_iter().chain(FREE).find(|colour| !used.contains(colour)) {
            looks[at] = colour;
            used.push(colour);
        }
    }
    looks
}

/// The style of a result: its policy decides colour, dashes and marker, its file weight and marks
/// along the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// The look of the policy.
    pub way: usize,
    /// Index of the file.
    pub source: usize,
}

/// Dashes by style: as different as the colours, for eyes and printers that cannot distinguish
/// those. (Five kinds and eight colours make forty looks.)
const DASHES: [&str; 5] = ["", "7 3", "2 2.5", "10 3 2 3", "4 2 1 2 1 2"];

impl Style {
    /// Returns the look of `name` among `names`.
    pub(crate) fn of(names: &[String], name: &str) -> Self {
        let at = names.iter().position(|other| other == name).unwrap_or(0);
        Self { way: looks(names).get(at).copied().unwrap_or(0), source: 0 }
    }

    /// Returns the look of `name` in a picture that has no more than `names`.
    pub(crate) fn in_picture(names: &[String], name: &str) -> Self {
        let at = names.iter().position(|other| other == name).unwrap_or(0);
        Self { way: looks_of_picture(names).get(at).copied().unwrap_or(0), source: 0 }
    }

    /// Returns the class that sets its colour.
    pub(crate) fn colour(self) -> String {
        format!("c{}", self.way % COLOURS)
    }

    /// Returns its dashes.
    pub(crate) fn dashes(self) -> &'static str {
        DASHES[self.way % DASHES.len()]
    }

    /// Returns the classes of a curve.
    pub(crate) fn curve(self, class: &str) -> String {
        format!("{class} {}{}", self.colour(), if self.source > 0 { " later" } else { "" })
    }

    /// Returns a marker at a position: circle, square, triangle, diamond, cross; hollow for later
    /// files.
    pub(crate) fn marker(self, place: (f64, f64)) -> Element {
        let hollow = if self.source > 0 || self.way % 5 == 4 { " hollow" } else { "" };
        let marker = Element::new("path").set("class", format!("marker {}{hollow}", self.colour()));
        marker.set("d", shape(self.way, place, 1.0))
    }

    /// Returns marks along the curve of a result of the second or a later file, which distinguish
    /// it from the first file's.
    pub(crate) fn marks(self, places: &[(f64, f64)]) -> Vec<Element> {
        const EVERY: f64 = 60.0;
        let mut marks = Vec::new();
        if self.source == 0 {
            return marks;
        }
        // Curves that overlap should not have their marks at the same positions.
        let mut since = EVERY * (0.3 + 0.17 * self.way as f64).fract();
        for pair in places.windows(2) {
            let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
            let length = dx.hypot(dy);
            let mut along = EVERY - since;
            while along <= length && length > 0.0 {
                let share = along / length;
                marks.push(self.mark((pair[0].0 + dx * share, pair[0].1 + dy * share)));
                along += EVERY;
            }
            since = length - (along - EVERY);
        }
        marks
    }

    fn mark(self, place: (f64, f64)) -> Element {
        let class = format!("mark-on-curve {}", self.colour());
        let mark = Element::new("path").set("class", class);
        mark.set("d", shape(self.source.saturating_sub(1), place, 0.625))
    }

    /// Returns a dot on a curve, at a known percentile.
    pub(crate) fn dot(self, (x, y): (f64, f64)) -> Element {
        let dot = Element::new("circle").set("class", format!("dot {}", self.colour()));
        dot.places([("cx", x), ("cy", y), ("r", 2.6)])
    }

    /// Returns a legend's sample: the marker or the curve.
    pub(crate) fn swatch(self, with_marker: bool) -> Element {
        const SIZE: (f64, f64) = (34.0, 12.0);
        let middle = SIZE.1 / 2.0;
        let swatch =
            Element::new("svg").set("class", "swatch").set("viewBox", view(SIZE.0, SIZE.1));
        let swatch = swatch.places([("width", SIZE.0), ("height", SIZE.1)]);
        let swatch = swatch.set("aria-hidden", true);
        if with_marker {
            return swatch.with([self.marker((SIZE.0 / 2.0, middle))]);
        }
        let ends = [(1.0, middle), (SIZE.0 - 1.0, middle)];
        let mark = (self.source > 0).then(|| self.mark((SIZE.0 / 2.0, middle)));
        swatch.with([polyline(&self.curve("curve"), self.dashes(), &ends, "")]).with(mark)
    }
}

/// Returns the outline of a marker, `size` times as large as usual.
fn shape(kind: usize, (x, y): (f64, f64), size: f64) -> String {
    let begin = |left: f64, up: f64| format!("M{} {}", at(x - left * size), at(y - up * size));
    let [r, d] = [5.0 * size, 10.0 * size];
    match kind % 5 {
        0 => format!("{}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", begin(5.0, 0.0)),
        1 => format!("{}h{s}v{s}h-{s}z", begin(4.4, 4.4), s = 8.8 * size),
        2 => format!("{}l{} {d}h-{}z", begin(0.0, 5.8), 5.6 * size, 11.2 * size),
        3 => format!("{}l{s} {s}l-{s} {s}l-{s} -{s}z", begin(0.0, 6.0), s = 6.0 * size),
        _ => format!("{}l{d} {d}m0 -{d}l-{d} {d}", begin(5.0, 5.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn looks_are_of_their_own() {
        let names: Vec<String> = KNOWN
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .chain((0..10).map(|at| format!("hybrid={at}us")))
            .collect();
        let looks: std::collections::BTreeSet<_> =
            looks(&names).into_iter().map(|look| (look % COLOURS, look % 5)).collect();
        assert_eq!(looks.len(), names.len());
    }

    #[test]
    fn a_way_looks_the_same_beside_whatever() {
        assert_eq!(looks(&owned(&["poll"])), [1]);
        assert_eq!(looks(&owned(&["interrupt", "fio", "poll"]))[2], 1);
        let colours = looks(&owned(&["poll", "poll, sched rr:1", "adaptive:cpu=30", "hybrid=2us"]));
        let colours: Vec<usize> = colours.into_iter().map(|look| look % COLOURS).collect();
        assert_eq!(colours, [1, 1, 0, 3]);
        // More names than looks.
        let many: Vec<String> = (0..60).map(|nth| format!("way {nth}")).collect();
        assert!(looks(&many).iter().all(|look| *look < LOOKS));
    }

    #[test]
    fn parts_of_a_picture_have_colours_of_their_own() {
        let names = owned(&["host: submits", "device", "poll", "host: wakes up", "completes"]);
        let looks = looks_of_picture(&names);
        let colours: std::collections::BTreeSet<_> =
            looks.iter().map(|look| look % COLOURS).collect();
        assert_eq!((colours.len(), looks[2]), (5, 1));
    }

    /// The style sheet has the same colours.
    #[test]
    fn the_page_has_the_same_colours() {
        let css = include_str!("../../templates/style.css");
        for colours in PALETTE {
            let line: Vec<String> = colours
                .iter()
                .enumerate()
                .map(|(at, colour)| format!("--c{at}: {colour};"))
                .collect();
            assert!(css.contains(&line.join(" ")), "{line:?}");
        }
    }

    #[test]
    fn styles_differ() {
        let style = |way| Style { way, source: 0 };
        let look = |way| (style(way).colour(), style(way).dashes());
        let all: std::collections::BTreeSet<_> = (0..40).map(look).collect();
        assert_eq!(all.len(), 40);
        assert_eq!(style(1000).colour(), "c0");
    }

    #[test]
    fn later_files_have_marks_along_their_curves() {
        let places = [(0.0, 0.0), (100.0, 0.0), (100.0, 250.0), (100.0, 250.0)];
        let count = |style: Style| style.marks(&places).len();
        assert_eq!(count(Style { way: 1, source: 0 }), 0);
        assert!((5..=6).contains(&count(Style { way: 1, source: 1 })));
    }
}
