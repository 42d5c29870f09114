//! The report as a picture: stacked bars for each device and size.

use meantime_report::picture::{Figure, Form, Picture, Series, svg};

use super::fast12::Fast12;
use super::results::{Anatomy, Bar};
use super::timeline::PARTS;
use crate::figures;

/// Draws the picture.
pub(super) fn draw(anatomy: &Anatomy) -> String {
    let is_same = |one: &Bar, other: &Bar| one.device == other.device && one.bytes == other.bytes;
    let rows = anatomy.bars.chunk_by(is_same).map(|bars| {
        let of = format!("{}, {}", bars[0].device, figures::bytes(bars[0].bytes));
        let mut row = vec![(of.clone(), stacks(bars, |bar| Some(parts(anatomy, bar))))];
        if let Some((kind, alone)) = &anatomy.competitor {
            let both = stacks(bars, |bar| {
                let times = Fast12::new(bar, alone)?;
                let of_io = figure("the I/O's: Ta + Tb", times.cost_ns());
                Some(vec![of_io, figure("the other program's: Tu", times.tu_ns)])
            });
            row.push((format!("with a second program ({kind}) on the CPU"), both));
        }
        row
    });
    let title = format!("Anatomy of one {}: the mean of the middle half", anatomy.what());
    let machine = anatomy.machine.line().replace('\n', " ");
    svg(&title, &machine, &rows.collect::<Vec<_>>())
}

/// Returns a stack of `figures` for each bar that has them.
fn stacks(bars: &[Bar], figures: impl Fn(&Bar) -> Option<Vec<Figure>>) -> Picture {
    let series = |bar: &Bar| Some(Series { name: bar.policy.to_string(), figures: figures(bar)? });
    let series = bars.iter().filter_map(series).collect();
    Picture { form: Form::Stacks, series, ..Picture::default() }
}

fn parts(anatomy: &Anatomy, bar: &Bar) -> Vec<Figure> {
    let parts = PARTS.iter().zip(bar.alone.typical().parts_ns);
    let shown = parts.filter(|(part, _)| anatomy.shows(part));
    shown.map(|(part, ns)| figure(part.name(bar.stamped), ns)).collect()
}

fn figure(name: &str, ns: f64) -> Figure {
    Figure { name: name.to_owned(), here: Some(ns), ..Figure::default() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::anatomy;
    use super::*;

    #[test]
    fn each_part_is_drawn_with_its_time() {
        let svg = draw(&anatomy(true));
        for tip in ["interrupt, wake: 4.00 µs", "poll, service: 2.90 µs"] {
            assert!(svg.contains(&format!("<title>{tip}</title>")), "{tip}: {svg}");
        }
        assert!(svg.contains("the other program&#39;s: Tu") && !svg.contains("b=<2>"));
        assert!(!draw(&anatomy(false)).contains("wake"));
    }
}
