//! Finds the key that an unknown one was probably meant to be.

/// Returns the element of `known` nearest to `key`, if it is near enough.
pub(super) fn nearest_key(
    key: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if key.chars().nth(32).is_some() {
        return None;
    }
    let key = key.to_ascii_lowercase().replace('-', "_");
    let near =
        known.map(|known| (edit_distance(&key, known), known)).min_by_key(|(far, _)| *far)?;
    let enough = (key.chars().count() / 3).clamp(1, 3);
    Some(near.1).filter(|known| near.0 <= enough && near.0 < known.len())
}

/// Returns Levenshtein's distance, with a swap of neighbours counted as one step.
pub(super) fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replace = rows[i][j] + usize::from(from != to);
            let mut best = replace.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("iodpeth", "iodepth"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
