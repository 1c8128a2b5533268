//! Packs variables into parts: large ones get their own parts, small ones share parts.

use bytes::Bytes;

use crate::limits::{OWN_PART_BYTES_MIN, PART_BYTES_MAX, SHARED_PART_BYTES_MAX};

/// A range of stored bytes: the part's number, the offset in it, the length.
pub(super) type PartRange = (usize, u64, u64);

/// Packs variables into parts.
#[derive(Default)]
pub(super) struct PartPacker {
    /// Each part, as a list of consecutive byte ranges.
    pub(super) parts: Vec<Vec<Bytes>>,
    /// The number and size of the shared part that is not full yet.
    open: Option<(usize, usize)>,
}

impl PartPacker {
    /// Adds bytes and returns the ranges where they are stored.
    pub(super) fn add(&mut self, bytes: &Bytes) -> Vec<PartRange> {
        if bytes.is_empty() {
            return Vec::new();
        }
        if bytes.len() < OWN_PART_BYTES_MIN {
            return vec![self.add_to_shared_part(bytes)];
        }
        let starts = (0..bytes.len()).step_by(PART_BYTES_MAX);
        let pieces = starts.map(|start| {
            let end = bytes.len().min(start + PART_BYTES_MAX);
            self.parts.push(vec![bytes.slice(start..end)]);
            (self.parts.len() - 1, 0, (end - start) as u64)
        });
        pieces.collect()
    }

    fn add_to_shared_part(&mut self, bytes: &Bytes) -> PartRange {
        let fits = |&(_, size): &(usize, usize)| size + bytes.len() <= SHARED_PART_BYTES_MAX;
        let (part, size) = self.open.filter(fits).unwrap_or_else(|| {
            self.parts.push(Vec::new());
            (self.parts.len() - 1, 0)
        });
        self.parts[part].push(bytes.clone());
        self.open = Some((part, size + bytes.len()));
        (part, size as u64, bytes.len() as u64)
    }
}

/// Returns the bytes of these ranges, or why they are not valid. Copies only if there are several ranges.
pub(super) fn unpack(parts: &[Bytes], pieces: &[PartRange]) -> Result<Bytes, String> {
    let stretch = |&(part, offset, length): &PartRange| {
        let found = parts.get(part).ok_or_else(|| format!("there is no part number {part}"))?;
        let end = offset.checked_add(length).filter(|end| *end <= found.len() as u64);
        let end = end.ok_or_else(|| format!("part number {part} ends before its piece does"))?;
        Ok(found.slice(offset as usize..end as usize))
    };
    match pieces {
        [] => Ok(Bytes::new()),
        [piece] => stretch(piece),
        pieces => {
            let mut whole = Vec::new();
            for piece in pieces {
                whole.extend_from_slice(&stretch(piece)?);
            }
            Ok(whole.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_are_unpacked_unchanged() {
        let sizes = [0, 1, 7, OWN_PART_BYTES_MIN - 1, OWN_PART_BYTES_MIN, PART_BYTES_MAX + 5, 3];
        let variables: Vec<Bytes> = sizes.iter().enumerate().map(|(at, &size)| vec![at as u8; size].into()).collect();
        let mut packer = PartPacker::default();
        let pieces: Vec<_> = variables.iter().map(|bytes| packer.add(bytes)).collect();
        // The four small variables share a part; the large ones take one part and two parts.
        assert_eq!(packer.parts.len(), 4);
        let parts: Vec<Bytes> = packer.parts.iter().map(|part| part.concat().into()).collect();
        for (bytes, pieces) in variables.iter().zip(&pieces) {
            assert!(unpack(&parts, pieces).unwrap() == *bytes);
        }
        assert!(unpack(&parts, &[(9, 0, 1)]).is_err());
        assert!(unpack(&parts, &[(0, u64::MAX, 2)]).is_err());
    }

    #[test]
    fn small_variables_share_parts() {
        let mut packer = PartPacker::default();
        let small = Bytes::from(vec![0; 100]);
        (0..100_000).for_each(|_| drop(packer.add(&small)));
        assert_eq!(packer.parts.len(), 3);
    }
}
