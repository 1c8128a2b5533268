//! Import of ONNX models that were uploaded by a client or copied into the models directory.
//!
//! The reference plugin `onnx` reads the file in the sandbox. The result is published as a model version like that of a
//! training, and loaded in the same way. The same file with the same options results in the same version, which is
//! published once.

pub mod import_error;
mod import_options;
pub mod model_files;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saggar_clock::Clock;
use saggar_devices::RecoverableDevice;
use saggar_plugin::{ImportRequest, PluginEngine, PluginError};
use saggar_reference_plugins::{ONNX_PLUGIN, reference_plugin};
use saggar_store::digest::Digest;
use saggar_store::models::{ModelPublication, ModelRegistry, PublishedVersion};
use saggar_store::regular_file;

use crate::limits::{DROPPED_BYTES_MAX, IMPORT_OPTIONS_BYTES_MAX};
use import_error::ImportError;
use import_options::ImportOptions;
use model_files::{ModelFiles, external_names};

/// Imports model versions from files.
pub trait ModelImporter: Debug + Send + Sync {
    /// Imports `files` and publishes the result as a version of `model`. `options` is a JSON object: its member
    /// `image_inputs` is the preprocessing of image inputs, and the others are for the plugin that reads the files. Called from a blocking thread.
    ///
    /// # Errors
    /// Returns [`ImportError`], in which case nothing was published.
    fn import(&self, model: &str, files: &ModelFiles, options: &str) -> Result<PublishedVersion, ImportError>;
}

/// An importer that uses the plugin `onnx`.
#[derive(Debug)]
pub struct OnnxImporter {
    /// Compiles and runs the plugin, in this process or in a child process.
    pub host: PluginEngine,
    /// The device that the plugin runs on if no child process runs it.
    pub device: Arc<RecoverableDevice>,
    /// The registry that versions are published to.
    pub models: ModelRegistry,
    /// The file with the component, or `None` for the reference plugin inside the program.
    pub plugin_path: Option<PathBuf>,
    /// The clock for creation times of versions.
    pub clock: Arc<dyn Clock>,
    /// Maximum duration of an import.
    pub time: Duration,
}

impl ModelImporter for OnnxImporter {
    fn import(&self, model: &str, files: &ModelFiles, options: &str) -> Result<PublishedVersion, ImportError> {
        let component = self.load_plugin()?;
        let file = &*files.plugin_payload()?;
        let ImportOptions { plugin, image_inputs } = ImportOptions::read(options)?;
        let import = ImportRequest { component: &component, file, options: &plugin, time: self.time };
        let imported = import.run(&self.host, self.device.current())?;
        let source = format!("onnx-{}", &Digest::of(file).hex()[..12]);
        let published = self.models.publish(&ModelPublication {
            model,
            plugin: &component,
            variables: &imported.variables,
            config: &imported.config,
            inputs: image_inputs,
            source_job: &source,
            created_ms: self.clock.now_ms(),
            metrics: BTreeMap::new(),
            card: None,
            provenance: Default::default(),
        })?;
        tracing::info!(model, version = published.version, source, bytes = file.len(), "imported");
        Ok(published)
    }
}

impl OnnxImporter {
    fn load_plugin(&self) -> Result<Cow<'static, [u8]>, ImportError> {
        let Some(path) = &self.plugin_path else {
            let plugin = reference_plugin(ONNX_PLUGIN).expect("a reference plugin");
            return Ok(Cow::Borrowed(plugin.component()));
        };
        regular_file::read(path, u64::MAX).map(Cow::Owned).map_err(|error| {
            let (path, reason) = (path.clone(), error.to_string());
            tracing::warn!(path = %path.display(), reason, "the plugin that reads ONNX files cannot be read");
            ImportError::NoPlugin { path, reason }
        })
    }
}

/// Watches the models directory for models that are not imported yet: `NAME.onnx` and `NAME/ANY.onnx`. External files
/// are in the same folder, and an options file, if any, has the model's name with `.json` added. The files can be
/// created in any order.
#[derive(Debug)]
pub struct DroppedFiles {
    dir: PathBuf,
    importer: Arc<dyn ModelImporter>,
    /// The latest import attempt of each model file.
    attempts: BTreeMap<PathBuf, ImportAttempt>,
}

/// The stamps of a model's files at the latest import attempt.
#[derive(Debug)]
struct ImportAttempt {
    /// The model and its options.
    own: [ImportFileStamp; 2],
    /// The external files.
    external: Vec<(PathBuf, ImportFileStamp)>,
}

/// The size and modification time of a file, or `None` if the file does not exist.
type ImportFileStamp = Option<(u64, Option<SystemTime>)>;

impl DroppedFiles {
    /// Watches `dir` and imports with `importer`.
    pub fn new(dir: impl Into<PathBuf>, importer: Arc<dyn ModelImporter>) -> DroppedFiles {
        DroppedFiles { dir: dir.into(), importer, attempts: BTreeMap::new() }
    }

    /// Imports new and changed models. A refused model, for example one that is still being copied or whose external
    /// files are missing, is retried when one of its files changes. Blocks.
    pub fn import_changed(&mut self) {
        let files = self.model_files();
        self.attempts.retain(|path, _| files.iter().any(|(_, file)| file == path));
        for (model, path) in files {
            let own = [file_stamp(&path), file_stamp(&options_path(&path))];
            if self.attempts.get(&path).is_some_and(|tried| tried.is_unchanged(own)) {
                continue;
            }
            let folder = path.parent().unwrap_or(&self.dir);
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let read = regular_file::read(&path, DROPPED_BYTES_MAX);
            let names = read.as_ref().ok().and_then(|model| external_names(model).ok()).unwrap_or_default();
            // Taken before the files are read, so that a change during the import causes a retry.
            let external =
                names.iter().map(|name| folder.join(name)).map(|path| (path.clone(), file_stamp(&path))).collect();
            self.attempts.insert(path.clone(), ImportAttempt { own, external });
            let unreadable =
                |error: std::io::Error| ImportError::Unreadable { name: file.clone(), reason: error.to_string() };
            let files =
                read.map_err(unreadable).and_then(|model| ModelFiles::read_external(model, folder, DROPPED_BYTES_MAX));
            let imported = files.and_then(|files| {
                let options = read_options(&options_path(&path))?;
                self.importer.import(&model, &files, &options)
            });
            match imported {
                Ok(_) => {}
                Err(reason @ ImportError::MissingFile { .. }) => {
                    tracing::info!(model, file, %reason, "the model waits for an external file");
                }
                Err(reason) => {
                    if matches!(reason, ImportError::Plugin(PluginError::CompilerBusy { .. })) {
                        // The file is not at fault: the next scan retries it.
                        self.attempts.remove(&path);
                    }
                    tracing::warn!(model, file, %reason, "file refused; it is tried again when it changes");
                }
            }
        }
    }

    /// Returns the models' names and files, in order.
    fn model_files(&self) -> Vec<(String, PathBuf)> {
        let mut files = Vec::new();
        for path in directory_entries(&self.dir) {
            if is_onnx(&path) {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
                files.push((stem, path));
            } else if path.is_dir() {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let inside = directory_entries(&path).into_iter().filter(|path| is_onnx(path));
                files.extend(inside.map(|path| (name.clone(), path)));
            }
        }
        files
    }
}

/// Returns the entries of a directory, sorted. A directory that cannot be read is treated as empty.
fn directory_entries(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn is_onnx(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension == "onnx") && path.is_file()
}

fn options_path(path: &Path) -> PathBuf {
    path.with_added_extension("json")
}

/// Returns the options in a file, or `{}` if the file does not exist.
fn read_options(path: &Path) -> Result<String, ImportError> {
    match regular_file::read_to_string(path, IMPORT_OPTIONS_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok("{}".to_owned()),
        read => read.map_err(|error| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ImportError::Unreadable { name, reason: error.to_string() }
        }),
    }
}

impl ImportAttempt {
    /// Returns whether no file of the model has changed since. `own` is the current stamp of the model and its options.
    fn is_unchanged(&self, own: [ImportFileStamp; 2]) -> bool {
        self.own == own && self.external.iter().all(|(path, then)| file_stamp(path) == *then)
    }
}

fn file_stamp(path: &Path) -> ImportFileStamp {
    fs::metadata(path).ok().map(|meta| (meta.len(), meta.modified().ok()))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// An importer that records its calls and refuses files that begin with `bad`.
    #[derive(Debug, Default)]
    struct RecordingImporter(Mutex<Vec<(String, Vec<u8>, String)>>);

    impl ModelImporter for RecordingImporter {
        fn import(&self, model: &str, files: &ModelFiles, options: &str) -> Result<PublishedVersion, ImportError> {
            let file = files.plugin_payload()?;
            self.0.lock().push((model.to_owned(), file.to_vec(), options.to_owned()));
            if file.starts_with(b"bad") {
                return Err(ImportError::NoPlugin { path: "nowhere".into(), reason: "not there".to_owned() });
            }
            Ok(PublishedVersion { version: 1, is_new: true, dir: PathBuf::new() })
        }
    }

    #[test]
    fn a_dropped_model_is_retried_when_its_external_files_arrive() {
        // A model with one initializer stored in `m.data`: fields 7, 5, 13 and 14.
        let model = b"\x3a\x18\x2a\x16\x6a\x12\x0a\x08location\x12\x06m.data\x70\x01";
        let dir = tempfile::tempdir().unwrap();
        let recorder = Arc::new(RecordingImporter::default());
        let mut dropped = DroppedFiles::new(dir.path(), Arc::clone(&recorder) as Arc<dyn ModelImporter>);
        let mut import_count = || {
            dropped.import_changed();
            std::mem::take(&mut *recorder.0.lock()).len()
        };
        fs::write(dir.path().join("m.onnx"), model).unwrap();
        assert_eq!((import_count(), import_count()), (0, 0), "its data is not there");
        fs::write(dir.path().join("m.data"), "weights").unwrap();
        assert_eq!((import_count(), import_count()), (1, 0), "once both are there");
        fs::write(dir.path().join("m.data"), "longer weights").unwrap();
        assert_eq!((import_count(), import_count()), (1, 0), "the data has changed");
        fs::create_dir(dir.path().join("n")).unwrap();
        fs::write(dir.path().join("n/m.data"), "weights").unwrap();
        assert_eq!(import_count(), 0, "the model is not there");
        fs::write(dir.path().join("n/n.onnx"), model).unwrap();
        assert_eq!((import_count(), import_count()), (1, 0), "once both are there");
    }

    #[test]
    fn dropped_files_are_imported_once_and_again_after_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Arc::new(RecordingImporter::default());
        let mut dropped = DroppedFiles::new(dir.path(), Arc::clone(&recorder) as Arc<dyn ModelImporter>);
        let imports = |dropped: &mut DroppedFiles| {
            dropped.import_changed();
            std::mem::take(&mut *recorder.0.lock())
        };
        let call = |model: &str, file: &[u8], options: &str| (model.to_owned(), file.to_vec(), options.to_owned());
        assert!(imports(&mut dropped).is_empty());
        fs::create_dir_all(dir.path().join("faces/3")).unwrap();
        fs::write(dir.path().join("Digits.onnx"), "bad: half of it").unwrap();
        fs::write(dir.path().join("faces/any.onnx"), "whole").unwrap();
        fs::write(dir.path().join("faces/any.onnx.json"), r#"{"batch": [1]}"#).unwrap();
        fs::write(dir.path().join(".digits.onnx"), "hidden").unwrap();
        fs::write(dir.path().join("notes.txt"), "no model").unwrap();
        let both = [call("digits", b"bad: half of it", "{}"), call("faces", b"whole", r#"{"batch": [1]}"#)];
        assert_eq!(imports(&mut dropped), both);
        assert!(imports(&mut dropped).is_empty(), "neither changed");
        fs::write(dir.path().join("Digits.onnx"), "now all of it is there").unwrap();
        assert_eq!(imports(&mut dropped), [call("digits", b"now all of it is there", "{}")]);
    }
}
