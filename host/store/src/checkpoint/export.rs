//! Exports a checkpoint as one safetensors file, in chunks, while its job can be running.
//!
//! The header comes first, so every offset follows from the manifest. Each part is verified before any byte of it is
//! sent, and at most two parts are in memory. The order of tensors is that of a published version: wider elements
//! first, then by name, so that each is aligned. Damage ends the stream with an error, so a damaged file is never
//! complete.
//!
//! Source: the format's description, <https://github.com/huggingface/safetensors>.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use safetensors::tensor::TensorInfo;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::listing::{ManifestEntry, checkpoint_folder, list_entries, part_object_name};
use super::load;
use super::manifest::{CheckpointManifest, CheckpointPart, CheckpointVariable};
use super::pack::PartRange;
use super::retention::{self, BestMetric};
use super::{CheckpointInfo, CheckpointStore};
use crate::error::CheckpointError;
use crate::limits::{EXPORT_PIECE_BYTES_MIN, WEIGHTS_HEADER_BYTES_MAX};
use crate::objects::ObjectStorage;
use crate::objects::files::ObjectPin;
use crate::safetensors_header::{METADATA, safetensors_dtype};

/// Selects a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointQuery {
    /// The checkpoint of a step; if several attempts saved it, the latest attempt's.
    Step(u64),
    /// The newest one whose parts all exist.
    Latest,
    /// The best one whose parts all exist.
    Best(BestMetric),
}

/// A checkpoint that is being read as one file. While this exists, [`CheckpointStore::prune`] does not delete the
/// checkpoint, in other processes either.
#[derive(Debug)]
pub struct CheckpointExport {
    info: CheckpointInfo,
    bytes: u64,
    reading: CheckpointExportReader,
}

impl CheckpointExport {
    /// Returns the checkpoint's description.
    pub fn info(&self) -> &CheckpointInfo {
        &self.info
    }

    /// Returns the size of the whole file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file in chunks of any size. An error ends the stream; the chunks before it are not a valid file.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, CheckpointError>> + Send + 'static {
        futures::stream::try_unfold(self.reading, |mut reading| async move {
            Ok(reading.next_chunk().await?.map(|bytes| (bytes, reading)))
        })
    }
}

pub(super) async fn export(
    checkpoints: &CheckpointStore,
    job: &str,
    wanted: &CheckpointQuery,
) -> Result<CheckpointExport, CheckpointError> {
    let folder = checkpoint_folder(job)?;
    let entry = select(checkpoints, &folder, job, wanted).await?;
    let pin = load::pin(checkpoints, job, &entry)?;
    let (mut manifest, digest) = load::read_own_manifest(checkpoints, job, &entry)
        .await
        .map_err(|obstacle| obstacle.into_checkpoint_error(&entry))?;
    let info = entry.info(&manifest, digest);
    manifest.variables.sort_by_cached_key(|it| (std::cmp::Reverse(it.tensor.dtype.bytes()), it.name.clone()));
    let header = encode_header(&manifest, &info).map_err(|reason| damaged_error(&entry, reason))?;
    let data: u64 = manifest.variables.iter().map(|variable| variable.tensor.bytes() as u64).sum();
    let bytes = header.len() as u64 + data;
    let pieces = manifest.variables.into_iter().flat_map(|variable| variable.pieces).collect();
    let objects = checkpoints.objects.clone();
    let (parts, header) = (manifest.parts, Some(header));
    let reading = CheckpointExportReader { objects, folder, entry, parts, header, pieces, shared: None, _pin: pin };
    Ok(CheckpointExport { info, bytes, reading })
}

/// Returns the selected checkpoint according to the manifests.
async fn select(
    checkpoints: &CheckpointStore,
    folder: &str,
    job: &str,
    wanted: &CheckpointQuery,
) -> Result<ManifestEntry, CheckpointError> {
    match wanted {
        CheckpointQuery::Step(step) => load::find(checkpoints, folder, job, *step).await,
        CheckpointQuery::Latest => {
            let newest = retention::newest_complete(checkpoints, folder).await?;
            newest.ok_or_else(|| load::not_found_error(job, String::new()))
        }
        CheckpointQuery::Best(by) => {
            let best = retention::best(checkpoints, job, by).await?.map(|best| best.file);
            let found =
                list_entries(checkpoints, folder).await?.into_iter().find(|entry| Some(&entry.file) == best.as_ref());
            found.ok_or_else(|| load::not_found_error(job, format!(" with the metric `{}`", by.metric)))
        }
    }
}

fn damaged_error(entry: &ManifestEntry, reason: String) -> CheckpointError {
    CheckpointError::Damaged { file: entry.file.clone(), reason }
}

/// The rest of the file.
#[derive(Debug)]
struct CheckpointExportReader {
    objects: ObjectStorage,
    folder: String,
    entry: ManifestEntry,
    parts: Vec<CheckpointPart>,
    header: Option<Bytes>,
    pieces: VecDeque<PartRange>,
    /// The last part that was read and is shared by several variables, with its number.
    shared: Option<(usize, Bytes)>,
    _pin: ObjectPin,
}

impl CheckpointExportReader {
    /// Returns the next bytes of the file: several small ranges together, or one large range.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, CheckpointError> {
        if let Some(header) = self.header.take() {
            return Ok(Some(header));
        }
        let Some(first) = self.pieces.pop_front() else { return Ok(None) };
        let bytes = self.read_piece(first).await?;
        if bytes.len() >= EXPORT_PIECE_BYTES_MIN {
            return Ok(Some(bytes));
        }
        let mut together = BytesMut::from(bytes);
        while together.len() < EXPORT_PIECE_BYTES_MIN
            && let Some(&next) = self.pieces.front()
            && next.2 < EXPORT_PIECE_BYTES_MIN as u64
        {
            self.pieces.pop_front();
            together.extend_from_slice(&self.read_piece(next).await?);
        }
        Ok(Some(together.freeze()))
    }

    async fn read_piece(&mut self, (number, offset, length): PartRange) -> Result<Bytes, CheckpointError> {
        let place = offset as usize..(offset + length) as usize;
        if let Some((_, part)) = self.shared.as_ref().filter(|(shared, _)| *shared == number) {
            return Ok(part.slice(place));
        }
        let stored = &self.parts[number];
        let name = part_object_name(&self.folder, stored);
        let part = load::read_with_retry(&self.objects, &name, Some(&stored.sha256)).await;
        let part = part.map_err(|reason| damaged_error(&self.entry, reason))?;
        if part.len() as u64 != self.parts[number].bytes {
            return Err(damaged_error(&self.entry, format!("part number {number} has {} bytes", part.len())));
        }
        if length < part.len() as u64 {
            self.shared = Some((number, part.clone()));
        }
        Ok(part.slice(place))
    }
}

/// The header's JSON: an entry for the file, and one for each tensor.
struct ExportHeader<'a> {
    about: BTreeMap<&'static str, String>,
    variables: &'a [CheckpointVariable],
}

impl Serialize for ExportHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.variables.len() + 1))?;
        map.serialize_entry(METADATA, &self.about)?;
        let mut begin = 0;
        for variable in self.variables {
            let end = begin + variable.tensor.bytes();
            let dtype = safetensors_dtype(variable.tensor.dtype);
            let shape = variable.tensor.shape.dims().to_vec();
            map.serialize_entry(&variable.name, &TensorInfo { dtype, shape, data_offsets: (begin, end) })?;
            begin = end;
        }
        map.end()
    }
}

/// Returns the header, preceded by its length, or why it cannot be encoded.
fn encode_header(manifest: &CheckpointManifest, info: &CheckpointInfo) -> Result<Bytes, String> {
    if manifest.variables.iter().any(|variable| variable.name == METADATA) {
        return Err(format!("a variable is called {METADATA}, which safetensors files keep for themselves"));
    }
    let about = BTreeMap::from([
        ("job", manifest.job.clone()),
        ("step", manifest.step.to_string()),
        ("digest", info.digest.hex()),
        ("plugin", manifest.plugin.clone()),
    ]);
    let header = ExportHeader { about, variables: &manifest.variables };
    let mut text = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
    // Padding with spaces aligns the tensors after the header.
    text.resize(text.len().next_multiple_of(8), b' ');
    let length = text.len() as u64;
    if length > WEIGHTS_HEADER_BYTES_MAX {
        return Err(format!("a header of {length} bytes is more than safetensors files may have"));
    }
    Ok([&length.to_le_bytes()[..], &text].concat().into())
}
