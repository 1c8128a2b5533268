//! Names for partial files. Content that arrives in pieces is written beside its destination under another name and
//! renamed when it is complete, so that an interrupted transfer never looks complete.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::exit::{self, CliError};

/// Returns the path to write to before renaming to `place`: a sibling of it, also if the path ends with a slash.
pub(crate) fn partial_path(place: &Path) -> PathBuf {
    let mut part = place.components().as_path().as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    PathBuf::from(part)
}

/// Writes content to a file, which exists only once it is complete. Returns its size in bytes.
pub(crate) fn write_atomically(mut content: impl Read, place: &Path) -> Result<u64, CliError> {
    let refused = |at: &Path| {
        let at = at.display().to_string();
        move |error: std::io::Error| CliError::new(exit::UNEXPECTED, "write", format!("{at}: {error}"))
    };
    let directory = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(refused(directory))?;
    let part = partial_path(place);
    let copied = File::create(&part).and_then(|mut file| std::io::copy(&mut content, &mut file));
    let moved = copied.and_then(|bytes| std::fs::rename(&part, place).map(|()| bytes));
    if moved.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    moved.map_err(refused(place))
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
