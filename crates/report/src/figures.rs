//! Figures as text: bytes and times as people write them.

/// Formats `4096` as `4 KiB` and `268435456` as `256 MiB`. Figures that no unit divides stay in
/// bytes.
pub fn bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
        return format!("{bytes} bytes");
    };
    let whole = bytes as f64 / (1u64 << shift) as f64;
    let digits = usize::from(!bytes.is_multiple_of(1 << shift));
    format!("{whole:.digits$} {unit}")
}

/// Formats `1234` as `1.23 µs`: three digits in a suitable unit.
pub fn time(ns: f64) -> String {
    let (scaled, unit) = in_unit(ns);
    let digits = if unit == "ns" { 0 } else { digits(scaled) };
    format!("{scaled:.digits$} {unit}")
}

/// Returns a time in a suitable unit, and the unit.
fn in_unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    }
}

/// Returns the number of decimals that gives a figure three digits.
fn digits(figure: f64) -> usize {
    match figure {
        figure if figure < 9.995 => 2,
        figure if figure < 99.95 => 1,
        _ => 0,
    }
}

/// Formats the label of a tick: `500 ns`, `1.5 µs`, and `0`.
pub fn short_time(ns: f64) -> String {
    let (value, unit) = in_unit(ns);
    if ns == 0.0 { "0".to_owned() } else { format!("{} {unit}", (value * 100.0).round() / 100.0) }
}

/// Formats at most four digits, then k or M: `987`, `12.3k`, `131k`, `4.12M`.
pub fn iops(figure: f64) -> String {
    with_prefix(figure, 1000.0, &["", "k", "M", "G"])
}

/// Formats as `iops`, with other prefixes, each `base` times the one before.
pub(crate) fn with_prefix(mut figure: f64, base: f64, prefixes: &[&str]) -> String {
    let mut at = 0;
    // 999.5 would be shown as 1000.
    while figure >= base - 0.5 && at + 1 < prefixes.len() {
        figure /= base;
        at += 1;
    }
    let digits = if at == 0 { 0 } else { digits(figure) };
    format!("{figure:.digits$}{}", prefixes[at])
}

/// Formats µs with only the useful digits: `7.61`, `182.4`, `34,392`.
pub fn us(ns: f64) -> String {
    match ns / 1e3 {
        us if us < 99.995 => format!("{us:.2}"),
        us if us < 999.95 => format!("{us:.1}"),
        us => grouped(us),
    }
}

/// Returns the text of an unknown figure.
pub fn none() -> String {
    "–".to_owned()
}

/// Formats the change from `first` in percent, with a true minus sign.
pub fn change(mean_ns: f64, first_ns: f64) -> String {
    if mean_ns == 0.0 || first_ns == 0.0 {
        return none();
    }
    let percent = ((mean_ns / first_ns - 1.0) * 100.0).round();
    match percent {
        percent if percent < 0.0 => format!("−{:.0} %", -percent),
        percent if percent > 0.0 => format!("+{percent:.0} %"),
        _ => "0 %".to_owned(),
    }
}

/// Formats a count in groups of three digits: `34,392`.
pub fn grouped(count: f64) -> String {
    let digits = format!("{count:.0}");
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Returns the median, or `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Wraps `text` into lines of at most `columns`; a wider word stays whole.
pub fn wrapped(text: &str, columns: usize) -> String {
    let (mut out, mut at) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if at > 0 {
            let fits = at + 1 + width <= columns;
            out.push(if fits { ' ' } else { '\n' });
            at = if fits { at + 1 } else { 0 };
        }
        out.push_str(word);
        at += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        assert_eq!(bytes(512), "512 bytes");
        assert_eq!(
            (bytes(4096), bytes(256 << 20), bytes(1 << 40)),
            ("4 KiB".into(), "256 MiB".into(), "1 TiB".into())
        );
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(
            (time(0.0), time(118.4), time(1234.0)),
            ("0 ns".into(), "118 ns".into(), "1.23 µs".into())
        );
        assert_eq!((time(123_456.0), time(2e9)), ("123 µs".into(), "2.00 s".into()));
    }

    #[test]
    fn latencies_in_us() {
        let shown = [0.0, 7_614.0, 182_400.0, 999_949.0, 999_950.0, 34_392_000.0, 1.5e12].map(us);
        assert_eq!(shown, ["0.00", "7.61", "182.4", "999.9", "1,000", "34,392", "1,500,000,000"]);
    }

    #[test]
    fn changes() {
        assert_eq!(change(58.0, 100.0), "−42 %");
        assert_eq!(change(100.1, 100.0), "0 %");
        assert_eq!(change(250.0, 100.0), "+150 %");
        assert_eq!(change(0.0, 100.0), "–");
    }
}
