//! What is written bit by bit: beside its place under another name, until it is whole. What broke off must not look like
//! what was wanted.

use std::path::{Path, PathBuf};

/// Where something is written before it moves to `place`: beside it, whether or not a slash ends its path.
pub(crate) fn partial_path(place: &Path) -> PathBuf {
    let mut part = place.components().as_path().as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    PathBuf::from(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_file_lies_beside_its_destination() {
        for place in ["out/digits", "out/digits/", "out/digits/."] {
            let part = partial_path(Path::new(place));
            assert_eq!(part.parent(), Some(Path::new("out")));
            assert!(part.file_name().unwrap().to_string_lossy().starts_with("digits."), "{}", part.display());
        }
    }
}
