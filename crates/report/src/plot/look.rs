//! The look of policies: the same in every picture and on every page.

use super::mark::{Mark, at, curve};

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

/// Number of colours. There are five kinds of dashes and of markers, so there are forty looks.
pub(crate) const COLOURS: usize = 8;
const LOOKS: usize = 40;

/// The order of colours for names that are not policies: those of common policies come last.
const FREE: [usize; COLOURS] = [4, 7, 6, 2, 3, 0, 5, 1];

/// Returns the look of each of `names`, which are all names on a page. A policy always has its own
/// look. Other names get a colour of their own as long as there are any, then dashes. A policy with
/// something added (`hybrid=2us`, `poll, sched rr:1`) has the policy's colour unless it is taken.
pub(crate) fn looks(names: &[String]) -> Vec<usize> {
    let mut used: Vec<usize> = names.iter().filter_map(|name| known(name)).collect();
    let look = |name: &String| {
        if let Some(look) = known(name) {
            return look;
        }
        let own = || base_of(name).map(|base| base % COLOURS).into_iter();
        let colour = own().chain(FREE).find(|at| used.iter().all(|look| look % COLOURS != *at));
        let dashed = own().flat_map(|own| (1..5).map(move |nth| (own + COLOURS * nth) % LOOKS));
        let free = colour.or_else(|| dashed.chain(0..LOOKS).find(|look| !used.contains(look)));
        let look = free.unwrap_or(used.len() % LOOKS);
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

/// The style of a result: colour, dashes and marker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style(usize);

/// Dashes by style, for eyes and printers that cannot distinguish the colours. Five kinds of dashes
/// and eight colours make forty looks.
const DASHES: [&str; 5] = ["", "7 3", "2 2.5", "10 3 2 3", "4 2 1 2 1 2"];

impl Style {
    /// Returns the look of `name` among `names`.
    pub(crate) fn of(names: &[String], name: &str) -> Self {
        let at = names.iter().position(|other| other == name).unwrap_or(0);
        Self(looks(names).get(at).copied().unwrap_or(0))
    }

    /// Returns the style of the same policy in the `nth` file. It has the same colour.
    pub(crate) fn in_file(self, nth: usize) -> Self {
        Self((self.0 + COLOURS * nth) % LOOKS)
    }

    /// Returns the class that sets its colour.
    pub(crate) fn colour(self) -> String {
        format!("c{}", self.0 % COLOURS)
    }

    /// Returns a curve.
    pub(crate) fn curve(self, class: &str, places: &[(f64, f64)]) -> Mark {
        curve(&format!("{class} {}", self.colour()), DASHES[self.0 % DASHES.len()], places)
    }

    /// Returns a marker at a position: circle, square, triangle, diamond, cross.
    pub(crate) fn marker(self, (x, y): (f64, f64)) -> Mark {
        let begin = |left: f64, up: f64| format!("M{} {}", at(x - left), at(y - up));
        let shape = match self.0 % DASHES.len() {
            0 => begin(5.0, 0.0) + "a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
            1 => begin(4.4, 4.4) + "h8.8v8.8h-8.8z",
            2 => begin(0.0, 5.8) + "l5.6 10h-11.2z",
            3 => begin(0.0, 6.0) + "l6 6l-6 6l-6 -6z",
            _ => begin(5.0, 5.0) + "l10 10m0 -10l-10 10",
        };
        Mark::new(format!("marker {}", self.colour()), shape)
    }

    /// Returns a dot on a curve, at a known percentile.
    pub(crate) fn dot(self, (x, y): (f64, f64)) -> Mark {
        let circle = "a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0";
        Mark::new(format!("dot {}", self.colour()), format!("M{} {}{circle}", at(x - 2.6), at(y)))
    }

    /// Returns a sample for a legend, 34 units wide and 12 high: the marker or the curve.
    pub(crate) fn sample(self, with_marker: bool) -> Mark {
        match with_marker {
            true => self.marker((17.0, 6.0)),
            false => self.curve("curve", &[(1.0, 6.0), (33.0, 6.0)]),
        }
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
        assert_eq!(colours, [1, 4, 0, 3]);
        // More names than looks.
        let many: Vec<String> = (0..60).map(|nth| format!("way {nth}")).collect();
        assert!(looks(&many).iter().all(|look| *look < LOOKS));
    }

    #[test]
    fn what_is_no_policy_has_a_colour_of_its_own() {
        let names = owned(&["host: submits", "device", "poll", "host: wakes up", "completes"]);
        let looks = looks(&names);
        let colours: std::collections::BTreeSet<_> =
            looks.iter().map(|look| look % COLOURS).collect();
        assert_eq!((colours.len(), looks[2]), (5, 1));
    }

    #[test]
    fn styles_differ() {
        let look = |way: usize| (Style(way).colour(), DASHES[way % DASHES.len()]);
        let all: std::collections::BTreeSet<_> = (0..LOOKS).map(look).collect();
        assert_eq!(all.len(), LOOKS);
        let of_files: std::collections::BTreeSet<_> =
            (0..5).map(|nth| look(Style(1).in_file(nth).0)).collect();
        assert_eq!(of_files.len(), 5);
        assert!(of_files.iter().all(|(colour, _)| colour == "c1"));
    }
}
