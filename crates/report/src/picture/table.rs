//! Pictures as parts of a page.

use super::{Figure, Picture, Series, Unit, drawing};
use crate::table::{Column, Row, Table, Title, column};

/// A figure with its unit.
type WithUnit<'a> = (Unit, &'a Figure);

/// The columns: ours, its spread, the document's.
fn columns<'a>() -> Vec<Column<WithUnit<'a>>> {
    vec![
        column("here", "", |(unit, figure)| Some(unit.text(figure.here?).into())),
        column("spread", "", |(_, figure)| Some(figure.spread.clone()?.text.into())),
        column("the document", "", |(unit, figure)| Some(unit.text(figure.there?).into())),
    ]
}

impl Picture {
    /// Returns the HTML of the plot with its legend, or `None` without figures.
    pub fn plot(&self, title: &str) -> Option<String> {
        drawing::draw(title, self).map(|(legend, plot)| format!("{legend}\n{plot}"))
    }

    /// Returns the HTML of a table of the figures, or `None` without figures.
    pub fn table(&self, title: &str) -> Option<String> {
        self.series.iter().find(|one| !one.figures.is_empty())?;
        let groups = self.series.iter().map(|Series { name, figures }| {
            let title = Title { name: name.clone(), ..Title::default() };
            let row = |of: &Figure| Row { name: of.name.clone(), ..Row::default() };
            let rows = figures.iter().map(|figure| (row(figure), (self.unit, figure)));
            (Some(title), rows.collect())
        });
        Some(Table::of(title.to_owned(), "", columns(), groups.collect()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, Form, Spread};
    use super::*;

    fn figure(name: &str, here: f64, there: Option<f64>) -> Figure {
        Figure {
            name: name.to_owned(),
            here: Some(here),
            spread: Some(Spread { ends: (here * 0.9, here * 1.1), text: String::new() }),
            there,
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
        let html = pictures.each_ref().map(|picture| {
            let plot = picture.plot("Latency <b>").unwrap();
            assert_eq!(plot.matches("<svg class=\"plot\"").count(), 1);
            plot + &picture.table("Latency <b>").unwrap_or_default()
        });
        assert!(html[..3].iter().all(|html| html.contains(">4.40 µs</td>")));
        let html = html.concat();
        assert!(html.contains("Latency &lt;b&gt;") && !html.contains("Latency <b>"));
        assert!(!html.contains("NaN") && !html.contains("inf\""));
    }
}
