//! Errors of datasets. Most of them name a position in a user's file.

use std::path::PathBuf;

use saggar_tensor::{DType, Descriptor};
use thiserror::Error;

use super::{FileProblem, StoreError};
use crate::digest::Digest;

/// Errors of importing, uploading and reading datasets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// An error of the files.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name that is not a valid directory name on every system.
    #[error(
        "`{name}` cannot be a name: 1 to 63 lower-case letters, digits, `.`, `_`, `-`, beginning \
         with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The dataset, version, upload or chunk does not exist.
    #[error("there is no {kind} {name}")]
    NotFound {
        /// The kind of object that was requested.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A file of a dataset version is damaged.
    #[error("{}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// A folder without any known format.
    #[error(
        "{folder}: no dataset found; expected dataset.json, files NAME.npy, NAME.npz, NAME.safetensors, \
         NAME.parquet, NAME.arrow, NAME.feather, NAME.jsonl or NAME.tar, one file NAME.csv[.gz], folders of PNG, JPEG and WebP images named as their classes, text files NAME.txt[.gz], the MNIST files \
         train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same with t10k-, or the CIFAR-10 files \
         data_batch_1.bin[.gz] to data_batch_5.bin[.gz] and test_batch.bin[.gz]{refused}"
    )]
    UnknownFormat {
        /// The folder.
        folder: String,
        /// Files of formats that are not supported; can be empty.
        refused: String,
    },
    /// A CSV file whose meaning cannot be inferred.
    #[error("{file}: {reason}; a file dataset.json beside it says what it means, for example: {example}")]
    Table {
        /// The file.
        file: String,
        /// The ambiguity.
        reason: String,
        /// An example of a description that resolves it.
        example: String,
    },
    /// An error in dataset.json.
    #[error("dataset.json: {reason}")]
    Description {
        /// The error, and what was expected.
        reason: String,
    },
    /// A file that the format requires is missing.
    #[error("{file}: missing, and {needed_by} needs it")]
    MissingFile {
        /// The file.
        file: String,
        /// The file that requires it.
        needed_by: String,
    },
    /// The magic number of a file is not that of its format.
    #[error("{file}: byte 0: magic number {found:#010x}, expected {expected:#010x} ({format})")]
    BadMagic {
        /// The file.
        file: String,
        /// The number found.
        found: u32,
        /// The number expected.
        expected: u32,
        /// The format.
        format: &'static str,
    },
    /// A file that ends too early.
    #[error("{file}: ends at byte {found} (decompressed), expected {expected} bytes")]
    Truncated {
        /// The file.
        file: String,
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A file with data after its expected end.
    #[error("{file}: has data after byte {expected} (decompressed), expected its end")]
    TooLong {
        /// The file.
        file: String,
        /// Bytes expected.
        expected: u64,
    },
    /// A file that cannot be decompressed or decoded.
    #[error("{file}: byte {offset} (decompressed): {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// Number of bytes read before the error.
        offset: u64,
        /// The reason.
        reason: String,
    },
    /// A file whose content does not match its format, or is not valid for a dataset.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file, with the position in it if there is one.
        file: String,
        /// The error, and what was expected.
        reason: String,
    },
    /// A column of a table that cannot become a field.
    #[error("{file}: column {column}: {reason}")]
    Column {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The error, its position, and what was expected.
        reason: String,
    },
    /// Two files of one dataset have different numbers of items.
    #[error("{file} has {found} items, and {other} has {expected}")]
    CountMismatch {
        /// The second file.
        file: String,
        /// Its items.
        found: u64,
        /// The first file.
        other: String,
        /// Its items.
        expected: u64,
    },
    /// Two files of one dataset have items of different shapes.
    #[error("{file} has items {found}, and {other} has {expected}")]
    ItemMismatch {
        /// The second file.
        file: String,
        /// Its items.
        found: Box<Descriptor>,
        /// The first file.
        other: String,
        /// Its items.
        expected: Box<Descriptor>,
    },
    /// Two images of one dataset have different sizes or channels.
    #[error("{file} has items {found}, and {other} has {expected}; `--resize WIDTHxHEIGHT` converts all to one size")]
    ImageMismatch {
        /// The second file.
        file: String,
        /// Its items.
        found: Box<Descriptor>,
        /// The first file.
        other: String,
        /// Its items.
        expected: Box<Descriptor>,
    },
    /// A label that is not less than the number of classes.
    #[error("{file}: byte {offset} (decompressed): label {label}, and there are {classes} classes")]
    LabelOutOfRange {
        /// The file.
        file: String,
        /// Position of the label in bytes.
        offset: u64,
        /// The label.
        label: u64,
        /// The number of classes.
        classes: usize,
    },
    /// A file of records that ends within a record.
    #[error("{file}: {found} bytes (decompressed), expected a multiple of the record size, {record} bytes")]
    BadRecords {
        /// The file.
        file: String,
        /// Its bytes.
        found: u64,
        /// Bytes of a record.
        record: usize,
    },
    /// A label in a record that is not less than the number of classes.
    #[error("{file}: record {record}: label {label}, and there are {classes} classes")]
    RecordLabel {
        /// The file.
        file: String,
        /// The record, counted from 1.
        record: u64,
        /// The label.
        label: u8,
        /// The number of classes.
        classes: usize,
    },
    /// A file with the wrong number of class names.
    #[error("{file}: {found} class names, expected {expected}, one a line")]
    ClassNames {
        /// The file.
        file: String,
        /// Names found.
        found: usize,
        /// Names expected.
        expected: usize,
    },
    /// A value of a CSV file that is not valid for its field.
    #[error("{file}:{line}:{column}: `{value}` is not {expected}")]
    BadValue {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The column, counted from 1.
        column: usize,
        /// The value.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// A cell of a CSV file without a value.
    #[error(
        "{file}:{line}:{column}: column {name} has no value; push with `--missing drop` to leave such rows out, or with \
         `--missing mean` to use the column's mean"
    )]
    MissingValue {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The column, counted from 1.
        column: usize,
        /// The column's name, or its number.
        name: String,
    },
    /// A text that is not UTF-8.
    #[error("{file}:{line}:{column}: {reason}")]
    BadEncoding {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The column, counted from 1.
        column: usize,
        /// The problem, and how to convert the file.
        reason: String,
    },
    /// A line of a CSV file with too few or too many columns.
    #[error(
        "{file}:{line}: {found} columns, expected {expected}; every line has as many as the first, and a cell that \
         contains the separator must be in double quotes"
    )]
    BadLine {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// Its columns.
        found: usize,
        /// The number of columns in the description.
        expected: usize,
    },
    /// A line of a text file that is not valid as an item.
    #[error("{file}:{line}: {reason}")]
    BadText {
        /// The file.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// The error.
        reason: String,
    },
    /// A column in memory whose size does not match the number of items.
    #[error("field {field}: {found} bytes, and {items} items take {expected}")]
    ColumnSize {
        /// The field.
        field: String,
        /// Bytes passed.
        found: u64,
        /// Bytes required.
        expected: u64,
        /// Items of the dataset.
        items: u64,
    },
    /// A dataset, line or file over a limit.
    #[error("{what}: more than {max} {unit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit.
        max: u64,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// Columns that would expand to many times the size of their source files.
    #[error(
        "{what}: more than {max} bytes, which is {ratio} times the {source_bytes} bytes of the files; send the files \
         uncompressed, and texts in lines of similar length"
    )]
    Expands {
        /// The column or dataset.
        what: String,
        /// Total size of the files in bytes.
        source_bytes: u64,
        /// The limit on bytes of columns.
        max: u64,
        /// The limit on the ratio of columns to files.
        ratio: u64,
    },
    /// A dataset without items.
    #[error("{file}: no items")]
    Empty {
        /// The file.
        file: String,
    },
    /// The field, split or item does not exist.
    #[error("the dataset has no {kind} `{name}`; it has {known}")]
    Unknown {
        /// `field`, `split` or `item`.
        kind: &'static str,
        /// The name that was requested.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A path in an upload that leaves its folder, or is not valid on every system.
    #[error(
        "`{path}` cannot be a path: relative, parts without `..`, `\\`, control characters or a \
         leading dot, and no file inside another"
    )]
    BadPath {
        /// The path.
        path: String,
    },
    /// Uploaded bytes do not match the announced digest.
    #[error("{what}: SHA-256 {found}, announced as {expected}")]
    WrongDigest {
        /// The chunk or file.
        what: String,
        /// The announced digest.
        expected: Digest,
        /// The digest of the received bytes.
        found: Digest,
    },
    /// The chunks of an uploaded file do not add up to its announced size.
    #[error("{path}: {found} bytes received, announced as {expected}")]
    WrongSize {
        /// The file.
        path: String,
        /// Announced bytes.
        expected: u64,
        /// Bytes of its chunks.
        found: u64,
    },
    /// A commit before all chunks were received.
    #[error("upload {id}: {missing} chunks are missing")]
    ChunksMissing {
        /// The upload.
        id: String,
        /// Number of missing chunks.
        missing: usize,
    },
    /// Not enough free disk space.
    #[error("the dataset needs {needed} bytes on the disk and {free} are free; delete something first")]
    DiskFull {
        /// Bytes required, including temporary files.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The queue of imports is full.
    #[error("{max} datasets are already waiting to be imported; try again later")]
    Busy {
        /// The maximum.
        max: usize,
    },
    /// A data type that is not valid for a dataset.
    #[error("field {field}: {dtype} cannot be {what}")]
    BadType {
        /// The field.
        field: String,
        /// Its type.
        dtype: DType,
        /// The role that was requested.
        what: &'static str,
    },
}
