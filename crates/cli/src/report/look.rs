//! How ways to wait look: the same in every picture and on every page.

/// Ways with a look of their own. Relatives have one colour.
const KNOWN: [(&str, usize); 10] = [
    ("adaptive", 0),
    ("auto", 8),
    ("poll", 1),
    ("interrupt", 5),
    ("pas", 2),
    ("dpas", 10),
    ("hybrid", 3),
    ("hybrid-bucket", 11),
    ("hybrid-min", 19),
    ("ehp", 6),
];

/// For all others, one after the other.
const OTHERS: [usize; 10] = [4, 7, 12, 15, 20, 23, 28, 31, 36, 39];

/// How many colours there are. Dashes and markers come in fives, so that there are forty looks.
pub(crate) const COLOURS: usize = 8;
const LOOKS: usize = 40;

/// The colours by their numbers, on white and on black.
pub(crate) const PALETTE: [[&str; COLOURS]; 2] = [
    ["#0067b1", "#c4480a", "#00775c", "#9b3a94", "#7d6200", "#3d4148", "#00809c", "#8a4633"],
    ["#58b0ff", "#ff8f57", "#35cba0", "#ee8fe4", "#e0c245", "#cfd5dc", "#4fd2ee", "#d99c84"],
];

/// The look of each of `names`, which are all that a page shows: a way with something more
/// (`hybrid=2us`, `poll, sched rr:1`) has the way's colour, as long as there are looks of that
/// colour.
pub(crate) fn looks(names: &[String]) -> Vec<usize> {
    let known = |name: &str| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, look)| *look);
    let mut used: Vec<usize> = KNOWN.iter().map(|(_, look)| *look).collect();
    let look = |name: &String| {
        if let Some(look) = known(name) {
            return look;
        }
        let base = name.split([':', '=', ',', ' ']).next().and_then(known);
        let related =
            base.into_iter().flat_map(|base| (1..5).map(move |nth| (base + COLOURS * nth) % LOOKS));
        let free = related.chain(OTHERS).chain(0..LOOKS).find(|look| !used.contains(look));
        let look = free.unwrap_or(OTHERS[used.len() % OTHERS.len()]);
        used.push(look);
        look
    };
    names.iter().map(look).collect()
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
        // More than there are looks.
        let many: Vec<String> = (0..60).map(|nth| format!("way {nth}")).collect();
        assert!(looks(&many).iter().all(|look| *look < LOOKS));
    }

    /// The style sheet's colours are these.
    #[test]
    fn the_page_has_the_same_colours() {
        let css = include_str!("../html/style.css");
        for colours in PALETTE {
            let line: Vec<String> = colours
                .iter()
                .enumerate()
                .map(|(at, colour)| format!("--c{at}: {colour};"))
                .collect();
            assert!(css.contains(&line.join(" ")), "{line:?}");
        }
    }
}
