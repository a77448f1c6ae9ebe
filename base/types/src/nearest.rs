//! The known word that is nearest to a mistyped one, for messages.

use alloc::vec::Vec;

/// The nearest of some known words, unless all of them are far from `word`: a third of its letters
/// may differ, and at least one. `-` and `_` are the same: `each-line` -> `each_line`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| -> Vec<char> {
        text.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
    };
    let word = letters(word);
    let distances = known.into_iter().map(|other| (distance(&word, &letters(other)), other));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (word.len() / 3).max(1)).then_some(nearest)
}

/// Number of letters to insert, remove, replace or swap with the next one (optimal string
/// alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = Vec::with_capacity(a.len() + 1);
    rows.push((0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_unless_all_are_far() {
        let known = ["command", "outputs", "each_line", "env"];
        for (word, expected) in [
            ("comand", Some("command")),
            ("output", Some("outputs")),
            ("ouptuts", Some("outputs")),
            ("each-line", Some("each_line")),
            ("Env", Some("env")),
            ("walltime", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
