//! Shuffling: the permutation of an epoch depends only on the shuffle seed and the epoch's number, so a resumed
//! training sees the same items.

use saggar_tensor::interp::philox4x32_10;

/// Returns the order of an epoch's items: each of `0..items` once.
///
/// Source: Fisher-Yates (Durstenfeld's form) with numbers from Philox4x32-10, with the seed as key and the epoch in the
/// counter. A 64-bit random word is scaled to the range by its high product; the bias is below `items / 2^64`.
pub(crate) fn epoch_permutation(seed: u64, epoch: u64, items: u32) -> Vec<u32> {
    let key = [seed as u32, (seed >> 32) as u32];
    let mut order: Vec<u32> = (0..items).collect();
    for last in (1..items).rev() {
        let block = philox4x32_10([last / 2, 0, epoch as u32, (epoch >> 32) as u32], key);
        let half = 2 * (last as usize % 2);
        let word = u64::from(block[half]) | u64::from(block[half + 1]) << 32;
        let other = ((u128::from(word) * (u128::from(last) + 1)) >> 64) as u32;
        order.swap(last as usize, other as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_contains_every_item_once() {
        for items in [0, 1, 2, 3, 1000] {
            let mut order = epoch_permutation(3, 5, items);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..items));
        }
    }

    #[test]
    fn the_permutation_depends_only_on_seed_and_epoch() {
        let order = epoch_permutation(1, 0, 100);
        assert_eq!(order, epoch_permutation(1, 0, 100));
        assert_ne!(order, epoch_permutation(2, 0, 100));
        assert_ne!(order, epoch_permutation(1, 1, 100));
        assert_ne!(epoch_permutation(1 << 32, 0, 100), epoch_permutation(0, 0, 100), "both halves of the seed count");
        assert_ne!(epoch_permutation(0, 1 << 32, 100), epoch_permutation(0, 0, 100), "both halves of the epoch count");
    }

    #[test]
    fn all_permutations_are_equally_likely() {
        let mut seen = std::collections::BTreeMap::new();
        for epoch in 0..24_000 {
            *seen.entry(epoch_permutation(11, epoch, 4)).or_insert(0i32) += 1;
        }
        assert_eq!(seen.len(), 24);
        // 1000 are expected each; five standard deviations are 155.
        assert!(seen.values().all(|&count| (count - 1000).abs() < 155), "{seen:?}");
    }
}
