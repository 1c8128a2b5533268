//! Gather and scatter with repeated, negative and out-of-range indices.

use saggar_tensor::nn;
use saggar_tensor::op::ScatterCombine;
use saggar_tensor::{GraphBuilder, NodeId};

use super::{NodeResult, OperatorEntry, floats, ints};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("gather", &[&[3, 4]], |g, x| {
        let places = ints(g, &[2, 2], &[0.0, -1.0, 3.0, 3.0])?;
        g.gather(x[0], places, 1)
    }),
    ("gather-elements", &[&[3, 4]], |g, x| {
        let places = ints(g, &[2, 3], &[2.0, 0.0, 0.0, -1.0, 0.0, 9.0])?;
        nn::gather_elements(g, x[0], places, 0)
    }),
    ("gather-nd", &[&[3, 4, 2]], |g, x| {
        let places = ints(g, &[3, 2], &[2.0, 0.0, -1.0, 3.0, 2.0, 0.0])?;
        nn::gather_nd(g, x[0], places)
    }),
    ("scatter-elements", &[&[4, 2], &[3, 2]], |g, x| elements(g, x, ScatterCombine::Replace)),
    ("scatter-elements, added", &[&[4, 2], &[3, 2]], |g, x| elements(g, x, ScatterCombine::Add)),
    ("scatter-elements, multiplied", &[&[4, 2], &[3, 2]], |g, x| elements(g, x, ScatterCombine::Mul)),
    ("scatter-elements, smallest", &[&[4, 2], &[3, 2]], |g, x| elements(g, x, ScatterCombine::Min)),
    ("scatter-elements, largest", &[&[4, 2], &[3, 2]], |g, x| elements(g, x, ScatterCombine::Max)),
    ("scatter-nd", &[&[3, 2, 2], &[4, 2]], |g, x| rows(g, x, ScatterCombine::Replace)),
    ("scatter-nd, added", &[&[3, 2, 2], &[4, 2]], |g, x| rows(g, x, ScatterCombine::Add)),
    ("scatter-nd, multiplied", &[&[3, 2, 2], &[4, 2]], |g, x| rows(g, x, ScatterCombine::Mul)),
    ("scatter-nd, smallest", &[&[3, 2, 2], &[4, 2]], |g, x| rows(g, x, ScatterCombine::Min)),
    ("scatter-nd, largest", &[&[3, 2, 2], &[4, 2]], |g, x| rows(g, x, ScatterCombine::Max)),
    // Elements with one zero factor, with two, and with the element itself zero.
    ("scatter-nd, multiplied by zeros", &[&[4], &[6]], |g, x| {
        let holes = floats(g, &[4], &[1.0, 1.0, 0.0, 1.0], x[0])?;
        let zeros = floats(g, &[6], &[0.0, 1.0, 0.0, 0.0, 1.0, 1.0], x[0])?;
        let (x, updates) = (g.mul(x[0], holes)?, g.mul(x[1], zeros)?);
        let places = ints(g, &[6, 1], &[0.0, 0.0, 1.0, 1.0, 2.0, 1.0])?;
        nn::scatter_nd(g, x, places, updates, ScatterCombine::Mul)
    }),
];

/// Updates of columns, two of them at one position.
fn elements(g: &mut GraphBuilder, x: &[NodeId], combine: ScatterCombine) -> NodeResult {
    let places = ints(g, &[3, 2], &[1.0, 0.0, 1.0, -1.0, 2.0, 3.0])?;
    nn::scatter_elements(g, x[0], places, x[1], 0, combine)
}

/// Updates of rows, three of them at one position.
fn rows(g: &mut GraphBuilder, x: &[NodeId], combine: ScatterCombine) -> NodeResult {
    let places = ints(g, &[4, 2], &[2.0, 0.0, 0.0, 1.0, 2.0, 0.0, -1.0, 0.0])?;
    nn::scatter_nd(g, x[0], places, x[1], combine)
}
