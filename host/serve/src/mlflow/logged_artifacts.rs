//! Logged images, tables and histograms as artefacts: `logged/NAME/STEP` with the end of the kind, such as
//! `logged/validation/wrong/00000120.png`. An output of the same path hides one.

use saggar_store::{LoggedKey, LoggedKind, OutputFile, StoredItem};

/// The folder of logged items among a job's artefacts.
const FOLDER: &str = "logged";

/// Returns an item as a file among the outputs of its job.
pub(super) fn listed_file(item: &StoredItem) -> OutputFile {
    OutputFile { path: artifact_path(&item.key), bytes: item.bytes }
}

/// Returns the path of an item. Steps have leading zeros, so that they are in order in listings.
fn artifact_path(LoggedKey { step, kind, name }: &LoggedKey) -> String {
    format!("{FOLDER}/{name}/{step:08}{}", kind.file_suffix())
}

/// Returns the key of the item with this path, or `None` if no item has it.
pub(super) fn key_of_path(path: &str) -> Option<LoggedKey> {
    let (name, file) = path.strip_prefix(FOLDER)?.strip_prefix('/')?.rsplit_once('/')?;
    let found = |kind: LoggedKind| Some((kind, file.strip_suffix(kind.file_suffix())?));
    let (kind, step) = LoggedKind::ALL.into_iter().find_map(found)?;
    let step: u64 = step.parse().ok()?;
    // The form that is parsed has the checks of names.
    let key: LoggedKey = format!("{step}/{}/{name}", kind.name()).parse().ok()?;
    (artifact_path(&key) == path).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_its_own_path() {
        for (text, path) in [
            ("120/image/validation/wrong", "logged/validation/wrong/00000120.png"),
            ("0/table/recall", "logged/recall/00000000.table.json"),
            ("123456789/histogram/w.table.json", "logged/w.table.json/123456789.histogram.json"),
        ] {
            let key: LoggedKey = text.parse().unwrap();
            assert_eq!(artifact_path(&key), path);
            assert_eq!(key_of_path(path), Some(key));
        }
        let others = [
            "logged",
            "logged/a",
            "logged/a/1.png",
            "logged/a/00000001.gif",
            "logged/../a/00000001.png",
            "x/a/00000001.png",
        ];
        for path in others {
            assert_eq!(key_of_path(path), None, "{path}");
        }
    }
}
