//! Names for partial files. Content that arrives in pieces is written beside its destination under another name and
//! renamed when it is complete, so that an interrupted transfer never looks complete.

use std::path::{Path, PathBuf};

/// Returns the path to write to before renaming to `place`: a sibling of it, also if the path ends with a slash.
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
