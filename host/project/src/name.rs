//! Names that are valid as parts of paths, addresses and metrics, and suggestions for mistyped names.

use crate::limits::NAME_LETTERS_MAX;

/// Returns whether `name` is 1 to 63 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or digit.
pub fn is_valid_name(name: &str) -> bool {
    (1..=NAME_LETTERS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// What the name and the value of a label must be.
pub const LABEL_RULE: &str = "1 to 63 letters, digits, '.', '_', '-' and '/'";

/// Returns whether a text can be the name or the value of a host's label, such as `gpu` or `a100`.
pub fn is_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    (1..=NAME_LETTERS_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Converts `text` to a valid name; invalid characters become `-`.
pub(crate) fn sanitize_name(text: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c) => c,
        _ => '-',
    };
    let like: String = text.chars().map(letter).take(NAME_LETTERS_MAX).collect();
    let like = like.trim_matches(['-', '.', '_']);
    if like.is_empty() { "name".to_owned() } else { like.to_owned() }
}

/// Returns the nearest of `known`, or `None` if none is near enough to be a likely typo.
pub(crate) fn nearest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(name);
    let distances = known.into_iter().map(|key| (edit_distance(&wanted, &plain(key)), key));
    let (distance, key) = distances.min_by_key(|(distance, _)| *distance)?;
    let letters = wanted.chars().count();
    (distance < letters && distance <= 1 + letters / 4).then_some(key)
}

/// Returns the number of characters to insert, remove or replace (Levenshtein 1966).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_corrected_and_unrelated_names_are_not() {
        let known = ["priority", "preemptible", "retry", "retry_on"];
        assert_eq!(nearest_name("priorty", known), Some("priority"));
        assert_eq!(nearest_name("retry-on", known), Some("retry_on"));
        assert_eq!(nearest_name("Retry", known), Some("retry"));
        assert_eq!(nearest_name("colour", known), None);
        assert_eq!((edit_distance("kitten", "sitting"), edit_distance("", "abc")), (3, 3));
    }

    #[test]
    fn valid_names_are_safe_in_paths() {
        assert!(is_valid_name("mnist-2.1_b") && is_valid_name("7"));
        for bad in ["", "-a", "..", "A", "a/b", "a b", &"a".repeat(64)] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }
}
