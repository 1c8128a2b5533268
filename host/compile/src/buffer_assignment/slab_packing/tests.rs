use saggar_testgen::CaseRng;

use super::*;
use crate::target::StorageClass;

/// Returns random lifetimes of up to `length` kernels.
fn random_lifetimes(count: usize, length: usize) -> Vec<BufferLifetime> {
    let random = &mut CaseRng::new(count as u64);
    let lifetime = |at: usize| {
        let from = random.below(count);
        BufferLifetime {
            nodes: vec![NodeId(at as u32)],
            class: random.pick(&[StorageClass::F32, StorageClass::F32, StorageClass::I32]),
            bytes: 256 * random.between(1, 9),
            from,
            to: from + random.below(length),
        }
    };
    (0..count).map(lifetime).collect()
}

/// Checks that no two lifetimes share memory at the same time, and returns the bytes of all slabs.
fn check(
    lifetimes: &[BufferLifetime],
    places: &BTreeMap<NodeId, ValueLocation>,
    slabs: &[Slab],
    target: &CompileTarget,
) -> usize {
    let range = |lifetime: &BufferLifetime| {
        let place = places[&lifetime.nodes[0]];
        let ValueLocation::Slab { slab, offset_bytes } = place else { panic!("{place:?}") };
        (slab, offset_bytes, offset_bytes + lifetime.bytes)
    };
    for (at, one) in lifetimes.iter().enumerate() {
        let (slab, start, end) = range(one);
        assert_eq!(slabs[slab as usize].class, one.class);
        assert!(end <= slabs[slab as usize].bytes && end <= target.binding_bytes_max.max(one.bytes));
        for other in &lifetimes[at + 1..] {
            let (other_slab, other_start, other_end) = range(other);
            let together = one.from <= other.to && other.from <= one.to;
            let apart = slab != other_slab || end <= other_start || other_end <= start;
            assert!(!together || apart, "{start}..{end} and {other_start}..{other_end}");
        }
    }
    slabs.iter().map(|slab| slab.bytes).sum()
}

#[test]
fn values_with_overlapping_lifetimes_share_no_memory() {
    for (count, length, binding_bytes_max) in [(300, 4, 1 << 30), (300, 300, 1 << 30), (300, 40, 4096), (300, 40, 1024)]
    {
        let target = CompileTarget { binding_bytes_max, ..CompileTarget::gpu() };
        let lifetimes = random_lifetimes(count, length);
        let mut places = BTreeMap::new();
        let slabs = pack_slabs(&lifetimes, &target, &mut places, &InterruptCheck::never()).unwrap();
        let packed = check(&lifetimes, &places, &slabs, &target);
        let (mut places, mut slabs) = (BTreeMap::new(), Vec::new());
        let all: Vec<&BufferLifetime> = lifetimes.iter().collect();
        place_in_time_order(&all, &target, &mut slabs, &mut places, &InterruptCheck::never()).unwrap();
        let swept = check(&lifetimes, &places, &slabs, &target);
        // Small bindings make many slabs, and free ranges of different slabs cannot be joined.
        let bound = if binding_bytes_max > packed { 2 * packed } else { usize::MAX };
        assert!(swept <= bound, "{swept} bytes in the order of time, {packed} in that of size");
    }
}
