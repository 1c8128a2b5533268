//! Exports stored versions as files for other programs: a `.npy` file per column, and `dataset.json` for the rest.
//! Importing them again gives a dataset with the same digest.

use std::io::{self, Read, Write};

use saggar_clock::UnixMillis;
use saggar_tensor::Descriptor;
use serde_json::{Value, json};

use super::manifest::{DatasetManifest, file_name};
use super::{ColumnarDataset, DatasetStore, check_name, npy};
use crate::error::DatasetError;

/// Bytes of a block of a tar archive.
const BLOCK: u64 = 512;

/// The files of a version, written one after the other. Columns are not copied first.
#[derive(Debug)]
pub struct DatasetExport {
    dataset: ColumnarDataset,
    files: Vec<ExportedFile>,
    created_ms: UnixMillis,
}

/// A file of a [`DatasetExport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name, such as `image.npy`.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes before the column, or the whole file.
    head: Vec<u8>,
    /// The column's index.
    column: Option<usize>,
}

impl DatasetStore {
    /// Returns the files to which a version is exported.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Damaged`; `Store`.
    pub fn export(&self, name: &str, version: u64) -> Result<DatasetExport, DatasetError> {
        check_name(name)?;
        let dir = self.versions.local_directory(name, version)?;
        let manifest = DatasetManifest::read(&dir)?;
        let dataset = self.open_directory(&dir)?;
        let text = serde_json::to_vec_pretty(&description(&manifest)).expect("strings and numbers can be written");
        let mut files = vec![ExportedFile::new("dataset.json".to_owned(), text, None)];
        for (at, column) in manifest.columns.iter().enumerate() {
            files.push(ExportedFile::column(&column.name, manifest.items, &column.item, at));
        }
        Ok(DatasetExport { dataset, files, created_ms: manifest.created_ms })
    }
}

/// Returns the content of `dataset.json`.
fn description(manifest: &DatasetManifest) -> Value {
    let field = |column: &super::manifest::ManifestColumn| json!({ "name": column.name, "file": array_name(&column.name), "classes": column.classes });
    let split = |(name, start, end): &super::manifest::SplitRange| (name.clone(), json!([start, end]));
    json!({
        "format": "npy",
        "description": manifest.description,
        "fields": manifest.columns.iter().map(field).collect::<Vec<Value>>(),
        "splits": manifest.splits.iter().map(split).collect::<serde_json::Map<String, Value>>(),
    })
}

/// Returns the file name of a field's array.
fn array_name(field: &str) -> String {
    file_name(field).replace(".bin", ".npy")
}

impl ExportedFile {
    fn new(name: String, head: Vec<u8>, column: Option<usize>) -> ExportedFile {
        ExportedFile { name, bytes: head.len() as u64, head, column }
    }

    fn column(field: &str, items: u64, item: &Descriptor, at: usize) -> ExportedFile {
        let mut file = ExportedFile::new(array_name(field), npy::encode_header(items, item), Some(at));
        file.bytes += items * item.bytes() as u64;
        file
    }
}

impl DatasetExport {
    /// Returns the files, in the order in which they are written.
    pub fn files(&self) -> &[ExportedFile] {
        &self.files
    }

    /// Writes one of [`DatasetExport::files`].
    ///
    /// # Errors
    /// Returns any error of writing.
    pub fn write(&self, file: &ExportedFile, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&file.head)?;
        file.column.map_or(Ok(()), |column| out.write_all(&self.dataset.0.columns[column]))
    }

    /// Returns the size in bytes of [`DatasetExport::into_tar`].
    pub fn tar_bytes(&self) -> u64 {
        let file = |file: &ExportedFile| BLOCK + file.bytes.next_multiple_of(BLOCK);
        // A tar archive ends with two empty blocks.
        self.files.iter().map(file).sum::<u64>() + 2 * BLOCK
    }

    /// Returns all files as a tar archive, to be read in pieces. The same version gives the same bytes.
    pub fn into_tar(self) -> ExportedTar {
        let mut pieces = Vec::with_capacity(3 * self.files.len() + 1);
        for file in &self.files {
            pieces
                .push(TarPiece::Bytes([tar_header(file, self.created_ms).as_bytes().as_slice(), &file.head].concat()));
            pieces.extend(file.column.map(TarPiece::Column));
            let padding = file.bytes.next_multiple_of(BLOCK) - file.bytes;
            pieces.push(TarPiece::Bytes(vec![0; padding as usize]));
        }
        pieces.push(TarPiece::Bytes(vec![0; 2 * BLOCK as usize]));
        ExportedTar { export: self, pieces, piece: 0, at: 0 }
    }
}

/// Returns the tar header of a file. Names have at most 67 bytes. Large sizes use the binary encoding.
fn tar_header(file: &ExportedFile, created_ms: UnixMillis) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_path(&file.name).expect("a short name");
    header.set_size(file.bytes);
    header.set_mode(0o644);
    header.set_mtime(created_ms / 1000);
    header.set_cksum();
    header
}

/// A [`DatasetExport`] as a tar archive.
#[derive(Debug)]
pub struct ExportedTar {
    export: DatasetExport,
    pieces: Vec<TarPiece>,
    /// The piece that is being read, and the position in it.
    piece: usize,
    at: usize,
}

#[derive(Debug)]
enum TarPiece {
    Bytes(Vec<u8>),
    Column(usize),
}

impl Read for ExportedTar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(piece) = self.pieces.get(self.piece) {
            let bytes: &[u8] = match piece {
                TarPiece::Bytes(bytes) => bytes,
                TarPiece::Column(column) => &self.export.dataset.0.columns[*column],
            };
            let n = buffer.len().min(bytes.len() - self.at);
            buffer[..n].copy_from_slice(&bytes[self.at..self.at + n]);
            self.at += n;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            (self.piece, self.at) = (self.piece + 1, 0);
        }
        Ok(0)
    }
}
