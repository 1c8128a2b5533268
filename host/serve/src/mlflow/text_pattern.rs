//! Patterns of SQL's `LIKE`: `%` stands for any text, `_` for any character.

/// Returns whether the whole text matches.
pub(super) fn matches_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The last `%`, and the text that it covers so far.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('%') => {
                retry = Some((of, at));
                of += 1;
            }
            Some(&expected) if expected == '_' || expected == text[at] => {
                at += 1;
                of += 1;
            }
            _ => match &mut retry {
                Some((star, covered)) => {
                    *covered += 1;
                    (of, at) = (*star + 1, *covered);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|&rest| rest == '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (text, pattern) in [
            ("digits", "digits"),
            ("digits", "d%s"),
            ("digits", "%"),
            ("", "%"),
            ("", ""),
            ("äb", "_b"),
            ("aXbXc", "a%X_"),
        ] {
            assert!(matches_like(text, pattern), "{text} {pattern}");
        }
        for (text, pattern) in [("digits", "digit"), ("digits", "D%"), ("", "_"), ("ab", "a"), ("ab", "%c%")] {
            assert!(!matches_like(text, pattern), "{text} {pattern}");
        }
        // Linear in the product of the lengths.
        assert!(!matches_like(&"a".repeat(2000), &format!("{}b", "a%".repeat(1000))));
    }
}
