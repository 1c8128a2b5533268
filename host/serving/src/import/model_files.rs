//! An ONNX model and its external files, in which it stores tensors.
//!
//! PyTorch's exporter writes `x.onnx` and `x.onnx.data`. The importing plugin reads one file, so a model with external
//! files is passed to it as a tar archive with the model first. Only the names of external files are read here. The
//! plugin reads everything else. Source: onnx's ExternalData.md.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use saggar_store::regular_file;

use super::import_error::ImportError;
use crate::limits::{EXTERNAL_FILES_MAX, EXTERNAL_NAME_BYTES_MAX};

/// A model and its external files, by their names in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFiles {
    model: Bytes,
    external: Vec<(String, Bytes)>,
}

impl ModelFiles {
    /// Returns `model` with its external files, each read by `read`.
    ///
    /// # Errors
    /// Returns the errors of [`external_names`] and of `read`.
    pub fn read_with(
        model: impl Into<Bytes>,
        mut read: impl FnMut(&str) -> Result<Bytes, ImportError>,
    ) -> Result<ModelFiles, ImportError> {
        let model = model.into();
        let names = external_names(&model)?;
        let external = names.into_iter().map(|name| read(&name).map(|bytes| (name, bytes)));
        Ok(ModelFiles { external: external.collect::<Result<_, _>>()?, model })
    }

    /// Reads the model at `path` and its external files as [`ModelFiles::read_external`] does, of at most `bytes_max`
    /// bytes together.
    ///
    /// # Errors
    /// Returns `Unreadable` and the errors of [`ModelFiles::read_external`].
    pub fn read(path: &Path, bytes_max: u64) -> Result<ModelFiles, ImportError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let model = regular_file::read(path, bytes_max).map_err(|error| read_error(&name, bytes_max, &error))?;
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        ModelFiles::read_external(model, folder, bytes_max)
    }

    /// Returns a model that was read from `folder` with its external files, which are in that folder or below, of at
    /// most `bytes_max` bytes together.
    ///
    /// # Errors
    /// Returns `MissingFile`, `Unreadable` (also for links that lead out of the folder), `BadFileName`, `TooManyFiles`
    /// or `TooLarge`.
    pub fn read_external(model: Vec<u8>, folder: &Path, bytes_max: u64) -> Result<ModelFiles, ImportError> {
        let mut left = bytes_max.saturating_sub(model.len() as u64);
        ModelFiles::read_with(model, |name| {
            let path = resolve_inside(folder, name)?;
            let bytes = regular_file::read(&path, left).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => ImportError::MissingFile { name: name.to_owned() },
                _ => read_error(name, bytes_max, &error),
            })?;
            left -= bytes.len() as u64;
            Ok(bytes.into())
        })
    }

    /// Returns the payload for the plugin: the model itself, or an archive if there are external files.
    ///
    /// # Errors
    /// Returns `BadFileName` for a name that does not fit an archive header.
    pub fn plugin_payload(&self) -> Result<Cow<'_, [u8]>, ImportError> {
        if self.external.is_empty() {
            return Ok(Cow::Borrowed(&self.model));
        }
        let capacity = self.bytes() + (self.external.len() + 4) * 1024;
        let mut archive = tar::Builder::new(Vec::with_capacity(capacity));
        let model = (MODEL_ENTRY, &self.model);
        for (name, bytes) in std::iter::once(model).chain(self.external.iter().map(|(name, bytes)| (&**name, bytes))) {
            let refused = |_: io::Error| ImportError::BadFileName { name: name.to_owned() };
            let mut header = tar::Header::new_ustar();
            // The name must fit the field of 100 bytes, because the plugin reads no extensions.
            let field = &mut header.as_old_mut().name;
            let fits = field.get_mut(..name.len()).ok_or_else(|| refused(io::Error::other("too long")))?;
            fits.copy_from_slice(name.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_cksum();
            archive.append(&header, &**bytes).map_err(refused)?;
        }
        let archive = archive.into_inner().map_err(|_| ImportError::BadFileName { name: String::new() })?;
        Ok(Cow::Owned(archive))
    }

    /// Returns the content of the model file.
    pub fn model(&self) -> &[u8] {
        &self.model
    }

    /// Returns the names and contents of the external files, in order of their names.
    pub fn external(&self) -> &[(String, Bytes)] {
        &self.external
    }

    /// Returns the total bytes of all files.
    pub fn bytes(&self) -> usize {
        self.model.len() + self.external.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }
}

/// The model's entry name in an archive.
const MODEL_ENTRY: &str = "model.onnx";

/// Returns the names of a model's external files, in order. Returns an empty list for bytes that are not an ONNX file.
///
/// # Errors
/// Returns `BadFileName` for a name that leads out of the model's folder or is too long, or `TooManyFiles`.
pub(crate) fn external_names(model: &[u8]) -> Result<Vec<String>, ImportError> {
    let Ok(model) = ModelNames::decode(model) else { return Ok(Vec::new()) };
    let mut names = BTreeSet::new();
    if let Some(graph) = model.graph {
        graph.collect_names(&mut names);
    }
    model.functions.into_iter().flat_map(|function| function.node).for_each(|node| node.collect_names(&mut names));
    if names.len() > EXTERNAL_FILES_MAX {
        return Err(ImportError::TooManyFiles { found: names.len(), most: EXTERNAL_FILES_MAX });
    }
    match names.iter().find(|name| !is_relative_inside(name)) {
        Some(name) => Err(ImportError::BadFileName { name: name.chars().take(EXTERNAL_NAME_BYTES_MAX).collect() }),
        None => Ok(names.into_iter().collect()),
    }
}

/// Returns whether a name is a relative path that stays in its folder.
fn is_relative_inside(name: &str) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    !name.is_empty()
        && name.len() <= EXTERNAL_NAME_BYTES_MAX
        && !name.contains(['\\', '\0'])
        && Path::new(name).components().all(plain)
}

fn read_error(name: &str, bytes_max: u64, error: &io::Error) -> ImportError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => ImportError::TooLarge { bytes_max },
        _ => ImportError::Unreadable { name: name.to_owned(), reason: error.to_string() },
    }
}

/// Returns the path of a file in `folder`, or an error if links lead out of it.
fn resolve_inside(folder: &Path, name: &str) -> Result<PathBuf, ImportError> {
    let path = folder.join(name);
    match (fs::canonicalize(folder), fs::canonicalize(&path)) {
        (Ok(folder), Ok(real)) if !real.starts_with(&folder) => {
            let reason = "it is a link that leads out of the model's folder".to_owned();
            Err(ImportError::Unreadable { name: name.to_owned(), reason })
        }
        _ => Ok(path),
    }
}

// The parts of an ONNX file that can contain names of external files. The decoder skips everything else, including
// tensor data. Field numbers are those of `onnx.proto3`.

#[derive(Clone, PartialEq, Message)]
struct ModelNames {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphNames>,
    #[prost(message, repeated, tag = "25")]
    functions: Vec<FunctionNames>,
}

#[derive(Clone, PartialEq, Message)]
struct FunctionNames {
    #[prost(message, repeated, tag = "7")]
    node: Vec<NodeNames>,
}

#[derive(Clone, PartialEq, Message)]
struct GraphNames {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeNames>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorNames>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeNames {
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeNames>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeNames {
    #[prost(message, optional, tag = "5")]
    tensor: Option<TensorNames>,
    #[prost(message, optional, tag = "6")]
    graph: Option<GraphNames>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorNames {
    #[prost(message, repeated, tag = "13")]
    external_data: Vec<ExternalEntry>,
    #[prost(int32, tag = "14")]
    data_location: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ExternalEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `TensorProto.data_location` of tensors stored in an external file.
const EXTERNAL: i32 = 1;

impl GraphNames {
    fn collect_names(self, names: &mut BTreeSet<String>) {
        self.initializer.into_iter().for_each(|tensor| tensor.collect_names(names));
        self.node.into_iter().for_each(|node| node.collect_names(names));
    }
}

impl NodeNames {
    fn collect_names(self, names: &mut BTreeSet<String>) {
        for attribute in self.attribute {
            if let Some(tensor) = attribute.tensor {
                tensor.collect_names(names);
            }
            if let Some(graph) = attribute.graph {
                graph.collect_names(names);
            }
        }
    }
}

impl TensorNames {
    fn collect_names(self, names: &mut BTreeSet<String>) {
        if self.data_location == EXTERNAL {
            names.extend(
                self.external_data.into_iter().filter(|entry| entry.key == "location").map(|entry| entry.value),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a model with a tensor in each of these files: the first is an initializer, the others are constants of
    /// nodes.
    fn model_with_external_files(names: &[&str]) -> Vec<u8> {
        let tensor = |name: &&str| {
            let entry = ExternalEntry { key: "location".to_owned(), value: (*name).to_owned() };
            TensorNames { external_data: vec![entry], data_location: EXTERNAL }
        };
        let mut tensors: Vec<TensorNames> = names.iter().map(tensor).collect();
        let initializer = tensors.pop().into_iter().collect();
        let attribute =
            tensors.into_iter().map(|tensor| AttributeNames { tensor: Some(tensor), graph: None }).collect();
        let graph = GraphNames { node: vec![NodeNames { attribute }], initializer };
        ModelNames { graph: Some(graph), functions: Vec::new() }.encode_to_vec()
    }

    #[test]
    fn external_files_are_read_only_from_the_model_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("models");
        fs::create_dir_all(folder.join("parts")).unwrap();
        fs::write(dir.path().join("secret"), "not for models").unwrap();
        fs::write(folder.join("x.onnx.data"), "weights").unwrap();
        fs::write(folder.join("parts/b"), "more").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), folder.join("link")).unwrap();
        let read = |names: &[&str]| {
            fs::write(folder.join("x.onnx"), model_with_external_files(names)).unwrap();
            ModelFiles::read(&folder.join("x.onnx"), 1000)
        };
        let files = read(&["x.onnx.data", "parts/b", "x.onnx.data"]).unwrap();
        let expected = [("parts/b", &b"more"[..]), ("x.onnx.data", b"weights")]
            .map(|(name, bytes)| (name.to_owned(), Bytes::from_static(bytes)));
        assert_eq!(files.external, expected);
        let long = "n".repeat(100);
        for bad in ["../secret", "/etc/passwd", "parts/../../secret", "", ".", &long, "a\\b"] {
            let error = read(&["x.onnx.data", bad]).unwrap_err();
            assert!(matches!(error, ImportError::BadFileName { .. }), "{bad}: {error}");
        }
        let link = read(&["link"]).unwrap_err();
        assert!(link.to_string().contains("a link that leads out of the model's folder"), "{link}");
        let missing = read(&["none.data"]).unwrap_err();
        assert_eq!(missing.to_string(), "the model keeps tensors in the file `none.data`, which is not with it");
        fs::write(folder.join("large"), vec![0; 1000]).unwrap();
        assert!(matches!(read(&["large"]).unwrap_err(), ImportError::TooLarge { bytes_max: 1000 }));
        let many: Vec<String> = (0..=EXTERNAL_FILES_MAX).map(|at| at.to_string()).collect();
        let many = external_names(&model_with_external_files(&many.iter().map(String::as_str).collect::<Vec<_>>()))
            .unwrap_err();
        assert!(matches!(many, ImportError::TooManyFiles { .. }), "{many}");
    }

    #[test]
    fn a_model_without_external_files_is_passed_unchanged() {
        for bytes in [&b"no model"[..], b"", &model_with_external_files(&[])] {
            let files = ModelFiles::read_with(bytes.to_vec(), |_| unreachable!("it names no file")).unwrap();
            assert_eq!(files.plugin_payload().unwrap(), bytes);
        }
    }

    #[test]
    fn the_model_is_the_first_archive_entry() {
        let bytes = model_with_external_files(&["a.data"]);
        let files = ModelFiles::read_with(bytes.clone(), |_| Ok(Bytes::from_static(b"weights"))).unwrap();
        let archive = files.plugin_payload().unwrap();
        let mut archive = tar::Archive::new(&archive[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            io::Read::read_to_end(&mut entry, &mut content).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), content)
        });
        let expected = [(MODEL_ENTRY.to_owned(), bytes), ("a.data".to_owned(), b"weights".to_vec())];
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
