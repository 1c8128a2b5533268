use saggar_tensor::arbitrary::Random;

use super::*;
use crate::target::Class;

/// Random lifetimes of up to `length` kernels.
fn lifetimes(count: usize, length: usize) -> Vec<Lifetime> {
    let random = &mut Random::new(count as u64);
    let lifetime = |at: usize| {
        let from = random.below(count);
        Lifetime {
            nodes: vec![NodeId(at as u32)],
            class: random.pick(&[Class::F32, Class::F32, Class::I32]),
            bytes: 256 * random.between(1, 9),
            from,
            to: from + random.below(length),
        }
    };
    (0..count).map(lifetime).collect()
}

/// Checks that no two lifetimes share memory at the same time, and returns the bytes of all slabs.
fn check(lifetimes: &[Lifetime], places: &BTreeMap<NodeId, Place>, slabs: &[Slab], target: &Target) -> usize {
    let range = |lifetime: &Lifetime| {
        let place = places[&lifetime.nodes[0]];
        let Place::Slab { slab, offset_bytes } = place else { panic!("{place:?}") };
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
fn values_that_live_at_the_same_time_share_no_memory() {
    for (count, length, binding_bytes_max) in [(300, 4, 1 << 30), (300, 300, 1 << 30), (300, 40, 4096), (300, 40, 1024)]
    {
        let target = Target { binding_bytes_max, ..Target::gpu() };
        let lifetimes = lifetimes(count, length);
        let mut places = BTreeMap::new();
        let slabs = scratch(&lifetimes, &target, &mut places, &Interrupt::never()).unwrap();
        let packed = check(&lifetimes, &places, &slabs, &target);
        let (mut places, mut slabs) = (BTreeMap::new(), Vec::new());
        let all: Vec<&Lifetime> = lifetimes.iter().collect();
        sweep(&all, &target, &mut slabs, &mut places, &Interrupt::never()).unwrap();
        let swept = check(&lifetimes, &places, &slabs, &target);
        // Small bindings make many slabs, between which nothing is joined.
        let bound = if binding_bytes_max > packed { 2 * packed } else { usize::MAX };
        assert!(swept <= bound, "{swept} bytes in the order of time, {packed} in that of size");
    }
}
