//! Failures of datasets: most of them name a place in a user's file.

use std::path::PathBuf;

use saggar_tensor::{DType, Descriptor};
use thiserror::Error;

use super::{FileProblem, StoreError};
use crate::digest::Digest;

/// Failures of taking in, uploading and reading datasets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The files below failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name that cannot be a directory's on every system.
    #[error(
        "`{name}` cannot be a name: 1 to 63 lower-case letters, digits, `.`, `_`, `-`, beginning \
         with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// No such dataset, version, upload or chunk.
    #[error("there is no {kind} {name}")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A file of a dataset version is not as written.
    #[error("{}: {problem}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// A folder in which no known format is found.
    #[error(
        "{folder}: no dataset found; expected dataset.json, files NAME.npy, NAME.npz, NAME.safetensors or \
         NAME.parquet, one file NAME.csv[.gz], folders of PNG and JPEG images named as their classes, text files NAME.txt[.gz], the MNIST files \
         train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same with t10k-, or the CIFAR-10 files \
         data_batch_1.bin[.gz] to data_batch_5.bin[.gz] and test_batch.bin[.gz]{refused}"
    )]
    UnknownFormat {
        /// The folder.
        folder: String,
        /// What is there of formats that are not read; may be empty.
        refused: String,
    },
    /// A CSV file that does not say by itself what it means.
    #[error("{file}: {reason}; a file dataset.json beside it says what it means, for example: {example}")]
    Table {
        /// The file.
        file: String,
        /// What is not clear.
        reason: String,
        /// A description of it.
        example: String,
    },
    /// dataset.json is wrong.
    #[error("dataset.json: {reason}")]
    Description {
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// A file that the format needs is not there.
    #[error("{file}: missing, and {needed_by} needs it")]
    MissingFile {
        /// The file.
        file: String,
        /// Who needs it.
        needed_by: String,
    },
    /// A file's first bytes are not those of its format.
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
    /// A file that ends early.
    #[error("{file}: ends at byte {found} (decompressed), expected {expected} bytes")]
    Truncated {
        /// The file.
        file: String,
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A file that goes on after its end.
    #[error("{file}: goes on after byte {expected} (decompressed), where it should end")]
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
        /// Bytes read before it.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// A file that is not what its name says, or holds what no dataset can.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file, and the place in it where there is one.
        file: String,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// A column of a table that cannot be a field.
    #[error("{file}: column {column}: {reason}")]
    Column {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// What is wrong, where, and what is expected.
        reason: String,
    },
    /// Two files that belong together do not have the same number of items.
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
    /// Two files that belong together do not have items of the same shape.
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
    /// A class number without a class.
    #[error("{file}: byte {offset} (decompressed): label {label}, and there are {classes} classes")]
    LabelOutOfRange {
        /// The file.
        file: String,
        /// Where the label stands.
        offset: u64,
        /// The label.
        label: u64,
        /// The number of classes.
        classes: usize,
    },
    /// A file of records that ends within one.
    #[error("{file}: {found} bytes (decompressed), which are no whole number of records of {record} bytes")]
    BadRecords {
        /// The file.
        file: String,
        /// Its bytes.
        found: u64,
        /// Bytes of a record.
        record: usize,
    },
    /// A record whose class number has no class.
    #[error("{file}: record {record}: label {label}, and there are {classes} classes")]
    RecordLabel {
        /// The file.
        file: String,
        /// The record, from 1.
        record: u64,
        /// The label.
        label: u8,
        /// The number of classes.
        classes: usize,
    },
    /// A file of class names that are not as many as the format has classes.
    #[error("{file}: {found} class names, expected {expected}, one a line")]
    ClassNames {
        /// The file.
        file: String,
        /// Names found.
        found: usize,
        /// Names expected.
        expected: usize,
    },
    /// A value of a CSV file that cannot be an element.
    #[error("{file}:{line}:{column}: `{value}` is not {expected}")]
    BadValue {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: usize,
        /// The value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A line of a CSV file with too few or too many columns.
    #[error("{file}:{line}: {found} columns, expected {expected}")]
    BadLine {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// Its columns.
        found: usize,
        /// The columns described.
        expected: usize,
    },
    /// A line of a text file that cannot be an item.
    #[error("{file}:{line}: {reason}")]
    BadText {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A column made in memory that does not hold the items of its dataset.
    #[error("field {field}: {found} bytes, and {items} items take {expected}")]
    ColumnSize {
        /// The field.
        field: String,
        /// Bytes given.
        found: u64,
        /// Bytes needed.
        expected: u64,
        /// Items of the dataset.
        items: u64,
    },
    /// A dataset, line or file over a limit of ours.
    #[error("{what}: more than {max} {unit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit.
        max: u64,
        /// Of what.
        unit: &'static str,
    },
    /// Columns that would be many times as long as the files that they are in.
    #[error(
        "{what}: more than {max} bytes, which is {ratio} times the {source_bytes} bytes of the files; send the files \
         uncompressed, and texts in lines of similar length"
    )]
    Expands {
        /// What would become so large.
        what: String,
        /// Bytes of the files.
        source_bytes: u64,
        /// Bytes that the columns may have.
        max: u64,
        /// The limit on the ratio of the two.
        ratio: u64,
    },
    /// A dataset without items.
    #[error("{file}: no items")]
    Empty {
        /// The file.
        file: String,
    },
    /// No such field, or part, or item.
    #[error("the dataset has no {kind} `{name}`; it has {known}")]
    Unknown {
        /// `field`, `split` or `item`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A path of an upload that leaves its folder, or that some system cannot have.
    #[error(
        "`{path}` cannot be a path: relative, parts without `..`, `\\`, control characters or a \
         leading dot, and no file inside another"
    )]
    BadPath {
        /// The path.
        path: String,
    },
    /// Bytes of an upload that are not those that were announced.
    #[error("{what}: SHA-256 {found}, announced as {expected}")]
    WrongDigest {
        /// The chunk or file.
        what: String,
        /// The digest announced.
        expected: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// A file of an upload whose chunks do not add up to its size.
    #[error("{path}: {found} bytes came, announced as {expected}")]
    WrongSize {
        /// The file.
        path: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes of its chunks.
        found: u64,
    },
    /// A commit before all chunks came.
    #[error("upload {id}: {missing} chunks are missing")]
    ChunksMissing {
        /// The upload.
        id: String,
        /// Chunks to come.
        missing: usize,
    },
    /// Not enough room.
    #[error("the dataset needs {needed} bytes on the disk and {free} are free; delete something first")]
    DiskFull {
        /// Bytes needed, with those to work in.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// As many wait for their turn as may.
    #[error("{max} datasets wait to be taken in already; try again when they are")]
    Busy {
        /// The maximum.
        max: usize,
    },
    /// A type that a dataset cannot have.
    #[error("field {field}: {dtype} cannot be {what}")]
    BadType {
        /// The field.
        field: String,
        /// Its type.
        dtype: DType,
        /// What was asked of it.
        what: &'static str,
    },
}
