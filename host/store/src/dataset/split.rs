//! Splits the items of a table by shares.

use super::description::SplitAssigner;
use super::draft::DraftColumn;
use super::manifest::SplitRange;
use super::staging::StagingArea;
use crate::error::DatasetError;

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
