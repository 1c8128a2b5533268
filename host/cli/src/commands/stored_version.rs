//! Opens a model version on disk, for commands without a server.

use std::path::Path;

use saggar_store::checkpoint::SavedVariable;
use saggar_store::models::{self, VersionFiles};
use saggar_store::{ModelError, ModelRegistry};

use crate::exit::{self, CliError};

/// Opens and verifies a version's files and weights. `text` is a version's directory, or a model of the directory
/// `models`: `digits@3`, or `digits` for its newest intact version. `hint` is the hint of an error.
///
/// # Errors
/// Returns `no_model` if nothing of that name exists, and `invalid` with the reason if the version is damaged or cannot
/// be read.
pub(crate) fn open_version(
    text: &str,
    models: Option<&Path>,
    hint: &str,
) -> Result<(VersionFiles, Vec<SavedVariable>), CliError> {
    let not_found = |reason: String| CliError::new(exit::NOT_FOUND, "no_model", reason).with_hint(hint);
    if Path::new(text).join(models::MANIFEST_FILE).is_file() {
        return models::load(Path::new(text)).map_err(|error| CliError::invalid(error.to_string()));
    }
    let Some(models) = models else {
        return Err(not_found(format!("there is no model {text}, and no state directory")));
    };
    let (name, number) = match text.split_once('@') {
        Some((name, number)) => (name, Some(number)),
        None => (text, None),
    };
    let number = number.map(|number| number.parse().map_err(|_| not_found(format!("{text}: a version is a number"))));
    ModelRegistry::new(models).open(name, number.transpose()?).map_err(|error| match error {
        ModelError::NotFound { .. } | ModelError::BadName { .. } => {
            not_found(format!("there is no model {text} in {}", models.display()))
        }
        error => CliError::invalid(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use saggar_store::models::ModelPublication;

    use super::*;

    #[test]
    fn a_model_name_opens_its_newest_complete_version() {
        let place = tempfile::tempdir().unwrap();
        let publish = |config| {
            let it = ModelPublication {
                model: "digits",
                plugin: b"wasm",
                variables: &[],
                config,
                inputs: Default::default(),
                source_job: "",
                created_ms: Default::default(),
                metrics: Default::default(),
                card: None,
                provenance: Default::default(),
            };
            ModelRegistry::new(place.path()).publish(&it).unwrap().dir
        };
        let whole = publish("1");
        std::fs::remove_file(publish("2").join("plugin.wasm")).unwrap();
        let open =
            |text: &str| open_version(text, Some(place.path()), "a hint").map(|(files, _)| files.manifest.config);
        assert_eq!(open("digits").unwrap(), "1", "the second one is not whole");
        assert_eq!(
            (open("digits@1").unwrap(), open(whole.to_str().unwrap()).unwrap()),
            ("1".to_owned(), "1".to_owned())
        );
        assert_eq!(open("digits@2").unwrap_err().code, "invalid");
        for missing in ["digits@3", "digits@", "digits@x", "other", "No/Name"] {
            let failure = open(missing).unwrap_err();
            assert_eq!((failure.exit_code, failure.code.as_str()), (exit::NOT_FOUND, "no_model"), "{missing}");
            assert!(failure.message.contains(missing) && failure.hint.is_some(), "{failure}");
        }
        assert!(open_version("digits", None, "a hint").unwrap_err().message.contains("no state directory"));
        // An unreadable directory must not be reported as a missing model.
        std::fs::write(place.path().join("file"), "").unwrap();
        assert_eq!(open("file").unwrap_err().code, "invalid");
    }
}
