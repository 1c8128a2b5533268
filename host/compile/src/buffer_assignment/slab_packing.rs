//! Slab packing: offsets of scratch values in slabs that they share over time.

mod interval_sweep;
mod timeline;

use std::collections::BTreeMap;

use saggar_tensor::{InterruptCheck, InterruptedError, NodeId};

use super::BufferLifetime;
use crate::limits::PLACEMENT_VISITS_MAX;
use crate::program::{Slab, ValueLocation};
use crate::target::CompileTarget;
use interval_sweep::place_in_time_order;
use timeline::{PlacedLifetime, SlabTimeline};

/// Places lifetimes, the largest first, each into the tightest gap that stays free during its lifetime. If very many
/// values live at the same time, that would take too long; the smallest ones are then placed in time order.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn pack_slabs(
    lifetimes: &[BufferLifetime],
    target: &CompileTarget,
    places: &mut BTreeMap<NodeId, ValueLocation>,
    interrupt: &InterruptCheck<'_>,
) -> Result<Vec<Slab>, InterruptedError> {
    let kernels = lifetimes.iter().map(|lifetime| lifetime.to + 1).max().unwrap_or(0);
    let mut slabs: Vec<(Slab, SlabTimeline)> = Vec::new();
    let mut order: Vec<&BufferLifetime> = lifetimes.iter().collect();
    order.sort_by_key(|lifetime| (std::cmp::Reverse(lifetime.bytes), lifetime.from, lifetime.nodes[0]));
    let mut visits = 0;
    let mut rest = order.iter();
    for lifetime in rest.by_ref() {
        interrupt.check()?;
        let mut fits = |(slab, timeline): &(Slab, SlabTimeline)| {
            let offset = (slab.class == lifetime.class).then(|| tightest_gap(timeline, lifetime, &mut visits))?;
            // A value larger than one binding must start at the beginning of a slab.
            (offset + lifetime.bytes <= target.binding_bytes_max.max(lifetime.bytes)).then_some(offset)
        };
        let found = slabs.iter().enumerate().find_map(|(at, slab)| Some((at, fits(slab)?)));
        let (at, offset) = found.unwrap_or_else(|| {
            slabs.push((Slab { class: lifetime.class, bytes: 0 }, SlabTimeline::new(kernels)));
            (slabs.len() - 1, 0)
        });
        let (slab, timeline) = &mut slabs[at];
        slab.bytes = slab.bytes.max(offset + lifetime.bytes);
        timeline.insert_lifetime(PlacedLifetime {
            offset,
            bytes: lifetime.bytes,
            from: lifetime.from,
            to: lifetime.to,
        });
        let place = ValueLocation::Slab { slab: at as u32, offset_bytes: offset };
        places.extend(lifetime.nodes.iter().map(|&node| (node, place)));
        if visits > PLACEMENT_VISITS_MAX {
            break;
        }
    }
    let mut slabs = slabs.into_iter().map(|(slab, _)| slab).collect();
    place_in_time_order(rest.as_slice(), target, &mut slabs, places, interrupt)?;
    Ok(slabs)
}

/// Returns the offset of the tightest gap between values that live at the same time, or the offset after all of them.
fn tightest_gap(timeline: &SlabTimeline, lifetime: &BufferLifetime, visits: &mut usize) -> usize {
    let mut others = timeline.overlapping(lifetime.from, lifetime.to);
    *visits += 1 + others.len();
    others.sort_unstable_by_key(|other| other.offset);
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0;
    for other in others {
        if other.offset >= end + lifetime.bytes {
            let size = other.offset - end;
            if best.is_none_or(|(smallest, _)| size < smallest) {
                best = Some((size, end));
            }
        }
        end = end.max(other.offset + other.bytes);
    }
    best.map_or(end, |(_, offset)| offset)
}

#[cfg(test)]
mod tests;
