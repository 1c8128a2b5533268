//! The splits of a dataset: by the names of files, or of a table's items by shares.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::description::{DEFAULT_SPLIT, SplitAssigner};
use super::draft::DraftColumn;
use super::manifest::SplitRange;
use super::staging::StagingArea;
use crate::error::DatasetError;

/// Groups files, given with their names without ending, by the splits that the names mean. The files of one split alone
/// are `train`.
///
/// # Errors
/// Returns `MissingFile`, which names `pattern`, if there are no files.
pub(super) fn files_by_split(
    files: impl IntoIterator<Item = (String, PathBuf)>,
    pattern: &str,
) -> Result<BTreeMap<String, Vec<PathBuf>>, DatasetError> {
    let mut splits: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (stem, path) in files {
        splits.entry(split_name(&stem).to_owned()).or_default().push(path);
    }
    match splits.len() {
        0 => Err(DatasetError::MissingFile { file: pattern.to_owned(), needed_by: "dataset.json".to_owned() }),
        1 => Ok(splits.into_values().map(|paths| (DEFAULT_SPLIT.to_owned(), paths)).collect()),
        _ => Ok(splits),
    }
}

/// Returns the split of a file with this name, given without extension: the part before `-` and a number.
fn split_name(stem: &str) -> &str {
    let numbered = |(at, _): &(usize, &str)| {
        let rest = &stem[at + 1..];
        *at > 0 && rest.starts_with(|first: char| first.is_ascii_digit())
    };
    stem.match_indices('-').find(numbered).map_or(stem, |(at, _)| &stem[..at])
}

/// Reorders items by the splits that they are assigned to, in stable order within a split. Returns the splits.
pub(super) fn reorder_by_split(
    staging: &StagingArea<'_>,
    columns: &mut [DraftColumn],
    shares: &[(String, u64)],
    items: u64,
) -> Result<Vec<SplitRange>, DatasetError> {
    let dealer = || SplitAssigner::new(shares.iter().map(|(_, share)| *share));
    let mut counts = vec![0u64; shares.len()];
    let mut dealt = dealer();
    (0..items).for_each(|_| counts[dealt.next_split()] += 1);
    let mut end = 0;
    let range = |((name, _), count): (&(String, u64), &u64)| {
        let begin = end;
        end += count;
        (name.clone(), begin, end)
    };
    let splits: Vec<SplitRange> = shares.iter().zip(&counts).map(range).collect();
    if shares.len() < 2 {
        return Ok(splits);
    }
    for column in columns {
        let size = column.item.bytes() as u64;
        let mut parts = shares.iter().map(|_| staging.writer(shares.len())).collect::<Result<Vec<_>, _>>()?;
        let mut reader = column.data.reader()?;
        let mut dealt = dealer();
        for _ in 0..items {
            parts[dealt.next_split()].copy(&mut reader, size, &column.data)?;
        }
        let mut parts = parts.into_iter().map(|part| part.finish());
        let mut ordered = parts.next().expect("at least two shares")?;
        for part in parts {
            staging.append(&mut ordered, part?)?;
        }
        staging.remove(std::mem::replace(&mut column.data, ordered))?;
    }
    Ok(splits)
}
