//! The page: a summary of all claims, and a section for each experiment.

use askama::Template;

use super::{Entry, Figure, Part, Reproduction, Series, Spread, Unit, drawing};
use crate::figures::none;
use crate::view::{self, Cell, Group, Head, Legend, Row, Table};

#[derive(Template)]
#[template(path = "reproduction.html")]
struct Page<'a> {
    generator: &'a str,
    title: &'static str,
    about: &'a [String],
    counts: [usize; 4],
    ours: [usize; 4],
    documents: Vec<Shown<'a>>,
}

struct Shown<'a> {
    part: &'a Part,
    entries: Vec<ShownEntry<'a>>,
}

struct ShownEntry<'a> {
    entry: &'a Entry,
    legend: Legend,
    plot: Option<crate::plot::Element>,
    table: Option<Table>,
}

/// Returns the page.
pub fn page(reproduction: &Reproduction) -> String {
    let documents = reproduction
        .documents
        .iter()
        .map(|part| Shown { part, entries: part.entries.iter().map(shown).collect() });
    view::page(&Page {
        generator: &reproduction.generator,
        title: "Five documents, measured again",
        about: &reproduction.about,
        counts: reproduction.counts(false),
        ours: reproduction.counts(true),
        documents: documents.collect(),
    })
}

fn shown(entry: &Entry) -> ShownEntry<'_> {
    let (legend, plot) = drawing::draw(&entry.title, &entry.picture)
        .map_or((Legend::default(), None), |(legend, plot)| (legend, Some(plot)));
    ShownEntry { entry, legend, plot, table: table(entry) }
}

/// Returns the figures in rows: ours, their spread, the document's.
fn table(entry: &Entry) -> Option<Table> {
    let series = entry.picture.series();
    if series.iter().all(|one| one.figures.is_empty()) {
        return None;
    }
    let unit = entry.picture.unit();
    let any = |of: fn(&Figure) -> bool| series.iter().flat_map(|one| &one.figures).any(of);
    let (has_spread, has_there) =
        (any(|figure| figure.spread.is_some()), any(|figure| figure.there.is_some()));
    let head = |text: &str| Head { text: text.to_owned(), ..Head::default() };
    let mut heads = vec![head("here")];
    heads.extend(has_spread.then(|| head("spread")));
    heads.extend(has_there.then(|| head("the document")));
    let rows = |one: &Series| {
        let row = |figure: &Figure| Row {
            name: figure.name.clone(),
            cells: cells(unit, figure, has_spread, has_there),
            ..Row::default()
        };
        one.figures.iter().map(row).collect()
    };
    let group = |one: &Series| Group {
        device: Some(view::Device { name: one.name.clone(), ..view::Device::default() }),
        rows: rows(one),
    };
    Some(Table {
        label: entry.title.clone(),
        first: "",
        heads,
        groups: series.iter().map(group).collect(),
    })
}

fn cells(unit: Unit, figure: &Figure, has_spread: bool, has_there: bool) -> Vec<Cell> {
    let text = |value: Option<f64>| value.map_or_else(none, |value| unit.text(value));
    let spread = figure.spread.map_or_else(none, |spread| match spread {
        Spread::Range(low, high) => format!("{} – {}", unit.text(low), unit.text(high)),
        Spread::Deviation(deviation) => format!("± {}", unit.text(deviation)),
    });
    let mut cells: Vec<Cell> = vec![text(figure.here).into()];
    cells.extend(has_spread.then(|| spread.into()));
    cells.extend(has_there.then(|| text(figure.there).into()));
    cells
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Picture, Tone};
    use super::*;

    fn figure(name: &str, here: f64, there: Option<f64>) -> Figure {
        Figure {
            name: name.to_owned(),
            here: Some(here),
            spread: Some(Spread::Range(here * 0.9, here * 1.1)),
            there,
        }
    }

    fn entry(picture: Picture) -> Entry {
        Entry {
            id: "fast12-figure1".to_owned(),
            title: "Latency <b>".to_owned(),
            claims: vec![Claim {
                text: "Polling answers sooner".to_owned(),
                verdict: "holds".to_owned(),
                tone: Tone::As,
                ours: false,
                figures: "−41 % against −42 %".to_owned(),
                reason: String::new(),
            }],
            picture,
            ..Entry::default()
        }
    }

    #[test]
    fn every_picture_is_drawn_with_its_figures() {
        let series = vec![Series {
            name: "4 KiB".to_owned(),
            figures: vec![figure("1", 4_000.0, Some(4_400.0)), figure("2", 7_000.0, None)],
        }];
        let curve = ("poll".to_owned(), vec![(1_000.0, 0.5), (2_000.0, 0.001)]);
        let pictures = [
            Picture::Bars(Unit::Time, series.clone()),
            Picture::Stacks(Unit::Time, series.clone()),
            Picture::Lines(Unit::Time, "KiB".to_owned(), true, series),
            Picture::Curves(true, vec![curve.clone()]),
            Picture::Curves(false, vec![curve]),
        ];
        let count = pictures.len();
        let part = Part {
            title: "A document".to_owned(),
            entries: pictures.into_iter().map(entry).collect(),
        };
        let page = page(&Reproduction { documents: vec![part], ..Reproduction::default() });
        assert_eq!(page.matches("<svg class=\"plot\"").count(), count);
        assert!(page.contains("4.40 µs") && page.contains("−41 % against −42 %"));
        assert!(page.contains("Latency &lt;b&gt;") && !page.contains("Latency <b>"));
        assert!(!page.contains("NaN") && !page.contains("inf\""));
    }
}
