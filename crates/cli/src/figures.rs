//! Figures in words: bytes and times as people write them.

/// `4096` → `4 KiB`, `268435456` → `256 MiB`; bytes where nothing divides.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes >> shift > 0 {
            let whole = bytes as f64 / (1u64 << shift) as f64;
            return if bytes.is_multiple_of(1 << shift) {
                format!("{whole:.0} {unit}")
            } else {
                format!("{whole:.1} {unit}")
            };
        }
    }
    format!("{bytes} bytes")
}

/// `1234` → `1.23 µs`: three digits in the unit that suits.
pub(crate) fn time(ns: f64) -> String {
    let (scaled, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => return format!("{ns:.0} ns"),
    };
    let digits = match scaled {
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {unit}")
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
}
