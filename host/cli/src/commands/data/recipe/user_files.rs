//! Recipes for files that the user has.

use std::path::{Path, PathBuf};

use saggar_store::Digest;

use crate::exit::{self, CliError};

/// A file that a recipe needs, as it is or compressed with the ending `.gz`.
pub(super) struct NeededFile {
    pub(super) name: &'static str,
    /// SHA-256 of the file and of the compressed file, if they are known.
    pub(super) sha256: Option<[&'static str; 2]>,
}

/// MNIST's IDX files.
pub(super) static MNIST: [NeededFile; 4] = [
    NeededFile {
        name: "train-images-idx3-ubyte",
        sha256: Some([
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ]),
    },
    NeededFile {
        name: "train-labels-idx1-ubyte",
        sha256: Some([
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ]),
    },
    NeededFile {
        name: "t10k-images-idx3-ubyte",
        sha256: Some([
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ]),
    },
    NeededFile {
        name: "t10k-labels-idx1-ubyte",
        sha256: Some([
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ]),
    },
];

/// Fashion-MNIST's IDX files, which have the names of MNIST's.
pub(super) static FASHION_MNIST: [NeededFile; 4] = [
    NeededFile { name: "train-images-idx3-ubyte", sha256: None },
    NeededFile { name: "train-labels-idx1-ubyte", sha256: None },
    NeededFile { name: "t10k-images-idx3-ubyte", sha256: None },
    NeededFile { name: "t10k-labels-idx1-ubyte", sha256: None },
];

/// CIFAR-10's binary version.
pub(super) static CIFAR_10: [NeededFile; 7] = [
    NeededFile { name: "data_batch_1.bin", sha256: None },
    NeededFile { name: "data_batch_2.bin", sha256: None },
    NeededFile { name: "data_batch_3.bin", sha256: None },
    NeededFile { name: "data_batch_4.bin", sha256: None },
    NeededFile { name: "data_batch_5.bin", sha256: None },
    NeededFile { name: "test_batch.bin", sha256: None },
    NeededFile { name: "batches.meta.txt", sha256: None },
];

/// Returns the paths of the files in `dir`, whose digests are checked where they are known.
///
/// # Errors
/// Returns `invalid` without a directory, or with both digests of a file that is another one, and `not_found` with every
/// missing file.
pub(super) fn find_files(recipe: &str, needed: &[NeededFile], dir: Option<&Path>) -> Result<Vec<PathBuf>, CliError> {
    let names: Vec<&str> = needed.iter().map(|file| file.name).collect();
    let Some(dir) = dir else {
        let message = format!("{recipe} is made of your files: {}", names.join(", "));
        return Err(CliError::invalid(message)
            .with_hint("`--from DIR` names the directory with them; each can be compressed, with the ending .gz"));
    };
    let find = |file: &NeededFile| {
        let plain = dir.join(file.name);
        let packed = dir.join(format!("{}.gz", file.name));
        [(plain, 0), (packed, 1)].into_iter().find(|(path, _)| path.is_file())
    };
    let found: Vec<Option<(PathBuf, usize)>> = needed.iter().map(find).collect();
    let missing: Vec<&str> = names.iter().zip(&found).filter(|(_, it)| it.is_none()).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let message = format!("{} has no {}", dir.display(), missing.join(", "));
        return Err(CliError::new(exit::NOT_FOUND, "not_found", message)
            .with_hint("each file can also have the ending .gz; nothing was stored"));
    }
    let mut paths = Vec::new();
    for (file, (path, form)) in needed.iter().zip(found.into_iter().flatten()) {
        if let Some(known) = file.sha256 {
            check_digest(&path, known[form])?;
        }
        paths.push(path);
    }
    Ok(paths)
}

fn check_digest(path: &Path, expected: &str) -> Result<(), CliError> {
    let read = Digest::of_file(path);
    let (found, _) =
        read.map_err(|error| CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display())))?;
    if found.hex() == expected {
        return Ok(());
    }
    Err(CliError::invalid(format!("{}: SHA-256 {found}, expected {expected}", path.display())).with_hint(
        "it is another file, or was changed; `saggar data push DIR --name NAME` stores any files of this form",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_wrong_files_are_named() {
        let without = find_files("mnist", &MNIST, None).unwrap_err();
        assert!(without.message.contains("t10k-labels-idx1-ubyte") && without.hint.unwrap().contains("--from"));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("train-images-idx3-ubyte.gz"), b"x").unwrap();
        let missing = find_files("mnist", &MNIST, Some(dir.path())).unwrap_err();
        assert_eq!(missing.exit_code, exit::NOT_FOUND);
        assert!(missing.message.ends_with("t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"), "{}", missing.message);
        for file in &MNIST {
            std::fs::write(dir.path().join(file.name), b"x").unwrap();
        }
        let wrong = find_files("mnist", &MNIST, Some(dir.path())).unwrap_err();
        assert_eq!(wrong.exit_code, exit::INVALID);
        assert!(wrong.message.contains(&Digest::of(b"x").hex()), "{}", wrong.message);
        assert!(wrong.message.contains("ba891046e6505d7a"), "{}", wrong.message);
        assert_eq!(find_files("fashion-mnist", &FASHION_MNIST, Some(dir.path())).unwrap().len(), 4);
    }
}
