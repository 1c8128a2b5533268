//! Removes versions, and models with all their files.

use std::fs;
use std::path::Path;

use super::{ModelRegistry, check_name};
use crate::error::ModelError;

impl ModelRegistry {
    /// Removes a version and returns its size in bytes. Its number is not reused, and processes that have its files
    /// open can still read them.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Store`.
    pub fn remove(&self, model: &str, version: u64) -> Result<u64, ModelError> {
        let dir = self.version_dir(model, version)?;
        let bytes = file_bytes(&dir);
        match self.versions.remove(model, version)? {
            true => Ok(bytes),
            false => Err(ModelError::NotFound { dir }),
        }
    }

    /// Removes a model: its versions, oldest first, then its settings and all other files in its directory. Returns the
    /// versions and their size in bytes. Calling it again completes an interrupted removal.
    ///
    /// # Errors
    /// Returns `BadName`; `Store`.
    pub fn remove_model(&self, model: &str) -> Result<(Vec<u64>, u64), ModelError> {
        check_name(model)?;
        let (mut removed, mut bytes) = (Vec::new(), 0);
        for version in self.versions.versions(model)? {
            match self.remove(model, version) {
                Ok(freed) => bytes += freed,
                // Another process removed it first.
                Err(ModelError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            }
            removed.push(version);
        }
        self.remove_shared_notes(model)?;
        self.versions.remove_rest(model)?;
        Ok((removed, bytes))
    }
}

/// Returns the size in bytes of the files in a directory; entries that cannot be read count as 0.
fn file_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|it| it.is_file()).map(|it| it.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::ModelPublication;
    use super::*;

    fn publish(models: &ModelRegistry, config: &str) -> u64 {
        let it = ModelPublication {
            model: "digits",
            plugin: b"wasm",
            variables: &[],
            config,
            inputs: Default::default(),
            source_job: "",
            created_ms: 1,
            metrics: Default::default(),
            card: None,
            provenance: Default::default(),
        };
        models.publish(&it).unwrap().version
    }

    #[test]
    fn the_number_of_a_removed_version_is_not_reused() {
        let place = tempfile::tempdir().unwrap();
        let models = ModelRegistry::new(place.path());
        let numbers = ["a", "b"].map(|config| publish(&models, config));
        assert_eq!(numbers, [1, 2]);
        assert!(models.remove("digits", 2).unwrap() > 4);
        assert!(matches!(models.remove("digits", 2), Err(ModelError::NotFound { .. })));
        assert!(matches!(models.remove("../x", 2), Err(ModelError::BadName { .. })));
        assert_eq!(publish(&models, "c"), 3);
        models.write_note("digits", "model.json", b"{}").unwrap();
        let (removed, bytes) = models.remove_model("digits").unwrap();
        assert_eq!((removed, bytes > 8), (vec![1, 3], true));
        assert!(!place.path().join("digits").exists() && models.names().unwrap().is_empty());
        assert_eq!(models.remove_model("digits").unwrap(), (Vec::new(), 0), "it can be called again");
        assert_eq!(publish(&models, "d"), 4);
    }
}
