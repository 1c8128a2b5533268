//! Movements, slices, repetitions and padding.

use saggar_tensor::op::Scalar;
use saggar_tensor::{Shape, nn};

use super::{OperatorEntry, concat_flat};

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("reshape", &[&[3, 4]], |g, x| g.reshape(x[0], &[2, 1, 6])),
    ("transpose", &[&[2, 3, 4]], |g, x| g.transpose(x[0], &[2, 0, 1])),
    ("expand", &[&[3, 1]], |g, x| g.broadcast_to(x[0], Shape::new([2, 3, 4])?)),
    ("expand, to nothing", &[&[3, 1]], |g, x| g.broadcast_to(x[0], Shape::new([3, 0])?)),
    ("slice", &[&[7, 6]], |g, x| g.slice(x[0], &[1, 2], &[2, 4], &[1, 1])),
    ("slice, by strides", &[&[7, 6]], |g, x| g.slice(x[0], &[1, 0], &[2, 3], &[3, 2])),
    ("concat", &[&[2, 3], &[2, 1], &[2, 0]], |g, x| g.concat(&[x[0], x[1], x[2], x[0]], 1)),
    ("split", &[&[3, 5]], |g, x| {
        let parts = nn::split(g, x[0], &[2, 1, 2], 1)?;
        let product = g.mul(parts[0], parts[2])?;
        g.sub(product, parts[1])
    }),
    ("pad", &[&[3, 2]], |g, x| g.pad(x[0], &[2, 0], &[1, 3], Scalar::Float(1.5))),
    ("pad, edge", &[&[3, 2]], |g, x| nn::pad_edge(g, x[0], &[2, 0], &[1, 3])),
    ("pad, reflection", &[&[4, 3]], |g, x| nn::pad_reflection(g, x[0], &[3, 0], &[1, 2])),
    ("pad, symmetric", &[&[4, 3]], |g, x| nn::pad_symmetric(g, x[0], &[4, 0], &[1, 3])),
    ("reverse", &[&[2, 3, 4]], |g, x| g.reverse(x[0], &[2, 0])),
    ("tile", &[&[2, 3]], |g, x| nn::tile(g, x[0], &[3, 2])),
    ("tile, to nothing", &[&[2, 3]], |g, x| nn::tile(g, x[0], &[0, 2])),
    ("triangular", &[&[2, 3, 4]], |g, x| nn::triangular(g, x[0], true, 1)),
    ("triangular, lower", &[&[4, 3]], |g, x| nn::triangular(g, x[0], false, -1)),
    ("concat, of parts of itself", &[&[4]], |g, x| {
        let back = g.reverse(x[0], &[0])?;
        let product = g.mul(x[0], back)?;
        concat_flat(g, &[product, x[0], back])
    }),
];
