//! Cases of windowed operators and their adjoints: padding, strides, dilations and groups, separately and together.

use super::GraphCase;
use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use saggar_tensor::DType;
use saggar_tensor::op::{Conv2d, ConvolutionOp, Op, Pool2d, PoolKind};

struct ConvolutionCase {
    name: &'static str,
    x: [usize; 4],
    filter: [usize; 4],
    conv: Conv2d,
}

const PLAIN: Conv2d = Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };

const GEOMETRIES: [ConvolutionCase; 8] = [
    ConvolutionCase { name: "plain", x: [2, 3, 5, 4], filter: [4, 3, 3, 2], conv: PLAIN },
    ConvolutionCase { name: "pointwise", x: [2, 3, 3, 3], filter: [5, 3, 1, 1], conv: PLAIN },
    ConvolutionCase {
        name: "padded",
        x: [1, 2, 4, 5],
        filter: [3, 2, 3, 3],
        conv: Conv2d { padding: [1, 2, 0, 1], ..PLAIN },
    },
    // The last rows and columns of the input are in no window.
    ConvolutionCase {
        name: "strided",
        x: [1, 2, 6, 7],
        filter: [2, 2, 3, 2],
        conv: Conv2d { strides: [2, 3], ..PLAIN },
    },
    ConvolutionCase {
        name: "dilated",
        x: [1, 1, 6, 7],
        filter: [2, 1, 2, 3],
        conv: Conv2d { dilations: [3, 2], ..PLAIN },
    },
    ConvolutionCase { name: "grouped", x: [2, 4, 3, 3], filter: [6, 2, 2, 2], conv: Conv2d { groups: 2, ..PLAIN } },
    ConvolutionCase { name: "depthwise", x: [1, 3, 4, 4], filter: [3, 1, 3, 3], conv: Conv2d { groups: 3, ..PLAIN } },
    ConvolutionCase {
        name: "everything",
        x: [2, 4, 7, 6],
        filter: [4, 2, 3, 2],
        conv: Conv2d { padding: [2, 1, 1, 0], strides: [2, 1], dilations: [1, 2], groups: 2 },
    },
];

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for dtype in [DType::F32, DType::F16] {
        for geometry in &GEOMETRIES {
            convolution_cases(random, dtype, geometry, cases);
        }
        for (name, x, pool) in pool_geometries() {
            pool_cases(random, dtype, name, x, pool, cases);
        }
    }
}

fn convolution_cases(random: &mut CaseRng, dtype: DType, geometry: &ConvolutionCase, cases: &mut Vec<GraphCase>) {
    let ConvolutionCase { name, x, filter, conv } = geometry;
    let window = [filter[2], filter[3]];
    let pool = Pool2d { window, padding: conv.padding, strides: conv.strides, dilations: conv.dilations };
    let [height, width] = pooled_size([x[2], x[3]], &pool);
    let y = [x[0], filter[0], height, width];
    let ops = [
        (ConvolutionOp::Conv2d(*conv), x, filter),
        (ConvolutionOp::Conv2dInputGrad { conv: *conv, size: [x[2], x[3]] }, &y, filter),
        (ConvolutionOp::Conv2dFilterGrad { conv: *conv, window }, x, &y),
    ];
    for (op, a, b) in ops {
        let operands = [(dtype, &a[..], ValueDistribution::Any), (dtype, &b[..], ValueDistribution::Any)];
        cases.push(single_op_case(
            random,
            format!("{} {dtype} {name}", op.name()),
            Op::Convolution(op),
            &operands,
            true,
        ));
    }
}

fn pool_geometries() -> [(&'static str, [usize; 4], Pool2d); 5] {
    let plain = Pool2d { window: [2, 2], padding: [0; 4], strides: [2, 2], dilations: [1, 1] };
    [
        ("plain", [2, 3, 4, 6], plain),
        ("overlapping", [1, 2, 5, 5], Pool2d { window: [3, 2], strides: [1, 1], ..plain }),
        ("padded", [1, 2, 5, 4], Pool2d { window: [3, 3], padding: [1, 0, 2, 1], ..plain }),
        ("dilated", [1, 1, 6, 6], Pool2d { dilations: [2, 3], padding: [0, 1, 0, 0], strides: [1, 1], ..plain }),
        ("whole", [2, 2, 3, 5], Pool2d { window: [3, 5], ..plain }),
    ]
}

type OperandSpec<'a> = (DType, &'a [usize], ValueDistribution);

fn pool_cases(random: &mut CaseRng, dtype: DType, name: &str, x: [usize; 4], pool: Pool2d, cases: &mut Vec<GraphCase>) {
    let [height, width] = pooled_size([x[2], x[3]], &pool);
    let y = [x[0], x[1], height, width];
    let ops: [(ConvolutionOp, &[OperandSpec], bool); 5] = [
        (ConvolutionOp::Pool2d { kind: PoolKind::Max, pool }, &[(dtype, &x, ValueDistribution::Distinct)], true),
        (ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool }, &[(dtype, &x, ValueDistribution::Any)], true),
        (
            ConvolutionOp::MaxPool2dGrad(pool),
            &[(dtype, &x, ValueDistribution::Distinct), (dtype, &y, ValueDistribution::Any)],
            false,
        ),
        (
            ConvolutionOp::MaxPool2dGrad(pool),
            &[(dtype, &x, ValueDistribution::Coarse), (dtype, &y, ValueDistribution::Any)],
            false,
        ),
        (ConvolutionOp::SumPool2dGrad { pool, size: [x[2], x[3]] }, &[(dtype, &y, ValueDistribution::Any)], true),
    ];
    for (position, (op, operands, smooth)) in ops.into_iter().enumerate() {
        let equals = if position == 3 { " of equals" } else { "" };
        let name = format!("{} {dtype} {name}{equals}", op.name());
        cases.push(single_op_case(random, name, Op::Convolution(op), operands, smooth));
    }
}

/// Returns the output's height and width.
pub(super) fn pooled_size(size: [usize; 2], pool: &Pool2d) -> [usize; 2] {
    let along = |axis: usize| {
        let padded = size[axis] + pool.padding[2 * axis] + pool.padding[2 * axis + 1];
        (padded - pool.dilations[axis] * (pool.window[axis] - 1) - 1) / pool.strides[axis] + 1
    };
    [along(0), along(1)]
}
