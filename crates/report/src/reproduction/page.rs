//! The page: a summary of all claims, and a section for each experiment.

use askama::Template;

use super::{Entry, Figure, Part, Picture, Reproduction, Series, Spread, Unit, drawing};
use crate::table::{Column, Row, Table, Title, column};
use crate::view;

#[derive(Template)]
#[template(path = "reproduction.html")]
struct Page<'a> {
    generator: &'a str,
    title: &'static str,
    about: &'a [String],
    counts: [usize; 4],
    ours: [usize; 4],
    documents: &'a [Part],
}

/// Returns the page.
pub fn page(reproduction: &Reproduction) -> String {
    view::page(&Page {
        generator: &reproduction.generator,
        title: "Five documents, measured again",
        about: &reproduction.about,
        counts: reproduction.counts(false),
        ours: reproduction.counts(true),
        documents: &reproduction.documents,
    })
}

/// A figure with its unit.
type WithUnit<'a> = (Unit, &'a Figure);

/// The columns: ours, its spread, the document's.
fn columns<'a>() -> Vec<Column<WithUnit<'a>>> {
    vec![
        column("here", "", |(unit, figure)| Some(unit.text(figure.here?).into())),
        column("spread", "", |(unit, figure)| {
            let spread = match figure.spread? {
                Spread::Range(low, high) => format!("{} – {}", unit.text(low), unit.text(high)),
                Spread::Deviation(deviation) => format!("± {}", unit.text(deviation)),
            };
            Some(spread.into())
        }),
        column("the document", "", |(unit, figure)| Some(unit.text(figure.there?).into())),
    ]
}

/// Returns the figures in rows.
fn table(entry: &Entry) -> Option<Table> {
    let Picture { unit, series, .. } = &entry.picture;
    series.iter().find(|one| !one.figures.is_empty())?;
    let mut groups = Vec::new();
    for Series { name, figures } in series {
        let title = Title { name: name.clone(), ..Title::default() };
        let row = |of: &Figure| Row { name: of.name.clone(), ..Row::default() };
        let rows = figures.iter().map(|figure| (row(figure), (*unit, figure)));
        groups.push((Some(title), rows.collect()));
    }
    Some(Table::of(entry.title.clone(), "", columns(), groups))
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Form, Tone};
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
        let form = |form, series| Picture { form, series, ..Picture::default() };
        let of_curves = |form| Picture { form, curves: vec![curve.clone()], ..Picture::default() };
        let pictures = [
            form(Form::Bars, series.clone()),
            form(Form::Stacks, series.clone()),
            form(Form::Lines("KiB".to_owned(), true), series),
            of_curves(Form::Exceedance),
            of_curves(Form::Distribution),
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
