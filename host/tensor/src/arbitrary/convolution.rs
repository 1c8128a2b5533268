//! Cases of windowed operators and their adjoints: padding, strides, dilations and groups, alone and together.

use super::Case;
use super::draft::single;
use super::values::{Random, Values};
use crate::DType;
use crate::op::{Conv2d, Convolution, Op, Pool, Pool2d};

struct Geometry {
    name: &'static str,
    x: [usize; 4],
    filter: [usize; 4],
    conv: Conv2d,
}

const PLAIN: Conv2d = Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };

const GEOMETRIES: [Geometry; 8] = [
    Geometry { name: "plain", x: [2, 3, 5, 4], filter: [4, 3, 3, 2], conv: PLAIN },
    Geometry { name: "pointwise", x: [2, 3, 3, 3], filter: [5, 3, 1, 1], conv: PLAIN },
    Geometry { name: "padded", x: [1, 2, 4, 5], filter: [3, 2, 3, 3], conv: Conv2d { padding: [1, 2, 0, 1], ..PLAIN } },
    // The last rows and columns of the input are in no window.
    Geometry { name: "strided", x: [1, 2, 6, 7], filter: [2, 2, 3, 2], conv: Conv2d { strides: [2, 3], ..PLAIN } },
    Geometry { name: "dilated", x: [1, 1, 6, 7], filter: [2, 1, 2, 3], conv: Conv2d { dilations: [3, 2], ..PLAIN } },
    Geometry { name: "grouped", x: [2, 4, 3, 3], filter: [6, 2, 2, 2], conv: Conv2d { groups: 2, ..PLAIN } },
    Geometry { name: "depthwise", x: [1, 3, 4, 4], filter: [3, 1, 3, 3], conv: Conv2d { groups: 3, ..PLAIN } },
    Geometry {
        name: "everything",
        x: [2, 4, 7, 6],
        filter: [4, 2, 3, 2],
        conv: Conv2d { padding: [2, 1, 1, 0], strides: [2, 1], dilations: [1, 2], groups: 2 },
    },
];

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    for dtype in [DType::F32, DType::F16] {
        for geometry in &GEOMETRIES {
            convolution(random, dtype, geometry, cases);
        }
        for (name, x, pool) in pools() {
            pooling(random, dtype, name, x, pool, cases);
        }
    }
}

fn convolution(random: &mut Random, dtype: DType, geometry: &Geometry, cases: &mut Vec<Case>) {
    let Geometry { name, x, filter, conv } = geometry;
    let window = [filter[2], filter[3]];
    let pool = Pool2d { window, padding: conv.padding, strides: conv.strides, dilations: conv.dilations };
    let [height, width] = pooled([x[2], x[3]], &pool);
    let y = [x[0], filter[0], height, width];
    let ops = [
        (Convolution::Conv2d(*conv), x, filter),
        (Convolution::Conv2dInputGrad { conv: *conv, size: [x[2], x[3]] }, &y, filter),
        (Convolution::Conv2dFilterGrad { conv: *conv, window }, x, &y),
    ];
    for (op, a, b) in ops {
        let operands = [(dtype, &a[..], Values::Any), (dtype, &b[..], Values::Any)];
        cases.push(single(random, format!("{} {dtype} {name}", op.name()), Op::Convolution(op), &operands, true));
    }
}

fn pools() -> [(&'static str, [usize; 4], Pool2d); 5] {
    let plain = Pool2d { window: [2, 2], padding: [0; 4], strides: [2, 2], dilations: [1, 1] };
    [
        ("plain", [2, 3, 4, 6], plain),
        ("overlapping", [1, 2, 5, 5], Pool2d { window: [3, 2], strides: [1, 1], ..plain }),
        ("padded", [1, 2, 5, 4], Pool2d { window: [3, 3], padding: [1, 0, 2, 1], ..plain }),
        ("dilated", [1, 1, 6, 6], Pool2d { dilations: [2, 3], padding: [0, 1, 0, 0], strides: [1, 1], ..plain }),
        ("whole", [2, 2, 3, 5], Pool2d { window: [3, 5], ..plain }),
    ]
}

type Operand<'a> = (DType, &'a [usize], Values);

fn pooling(random: &mut Random, dtype: DType, name: &str, x: [usize; 4], pool: Pool2d, cases: &mut Vec<Case>) {
    let [height, width] = pooled([x[2], x[3]], &pool);
    let y = [x[0], x[1], height, width];
    let ops: [(Convolution, &[Operand], bool); 5] = [
        (Convolution::Pool2d { kind: Pool::Max, pool }, &[(dtype, &x, Values::Distinct)], true),
        (Convolution::Pool2d { kind: Pool::Sum, pool }, &[(dtype, &x, Values::Any)], true),
        (Convolution::MaxPool2dGrad(pool), &[(dtype, &x, Values::Distinct), (dtype, &y, Values::Any)], false),
        (Convolution::MaxPool2dGrad(pool), &[(dtype, &x, Values::Coarse), (dtype, &y, Values::Any)], false),
        (Convolution::SumPool2dGrad { pool, size: [x[2], x[3]] }, &[(dtype, &y, Values::Any)], true),
    ];
    for (position, (op, operands, smooth)) in ops.into_iter().enumerate() {
        let equals = if position == 3 { " of equals" } else { "" };
        let name = format!("{} {dtype} {name}{equals}", op.name());
        cases.push(single(random, name, Op::Convolution(op), operands, smooth));
    }
}

/// The output's height and width.
pub(super) fn pooled(size: [usize; 2], pool: &Pool2d) -> [usize; 2] {
    let along = |axis: usize| {
        let padded = size[axis] + pool.padding[2 * axis] + pool.padding[2 * axis + 1];
        (padded - pool.dilations[axis] * (pool.window[axis] - 1) - 1) / pool.strides[axis] + 1
    };
    [along(0), along(1)]
}
