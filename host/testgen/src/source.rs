//! Cases of sources, including assigned variables.

use super::values::{CaseRng, ValueDistribution, random_value};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{BinaryOp, Op, RandomDistribution, Scalar};
use saggar_tensor::{DType, Descriptor, Shape};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for dtype in DType::ALL {
        let mut draft = CaseBuilder::default();
        let x = draft.input(random, dtype, &[3, 2], ValueDistribution::Any);
        cases.push(draft.finish(format!("input {dtype}"), &[x], dtype.is_float()));

        let mut draft = CaseBuilder::default();
        let known = random_value(random, dtype, &[2, 5], ValueDistribution::Any);
        let node = draft.builder.constant(known.descriptor().clone(), known.to_bytes()).expect("as many bytes");
        cases.push(draft.finish(format!("constant {dtype}"), &[node], false));

        for (dims, axis) in [(&[7][..], 0), (&[3, 4], 0), (&[3, 4, 2], 1), (&[2, 0], 0)] {
            let mut draft = CaseBuilder::default();
            let node = draft.builder.iota(descriptor(dtype, dims), axis).expect("small coordinates");
            cases.push(draft.finish(format!("iota {dtype} {dims:?} along {axis}"), &[node], false));
        }
        let fills: &[Scalar] = match dtype {
            DType::F32 | DType::F16 => &[Scalar::Float(0.1), Scalar::Float(-0.0), Scalar::Float(f64::INFINITY)],
            DType::I64 | DType::I32 | DType::I8 => &[Scalar::Int(-128), Scalar::Int(127)],
            DType::U64 | DType::U32 | DType::U8 => &[Scalar::Int(0), Scalar::Int(255)],
        };
        for &scalar in fills {
            let mut draft = CaseBuilder::default();
            let node = draft.builder.fill(descriptor(dtype, &[2, 3]), scalar).expect("fits every type");
            cases.push(draft.finish(format!("fill {dtype} {scalar:?}"), &[node], false));
        }
        cases.push(variable_swap_case(random, dtype));
    }
    for distribution in RandomDistribution::ALL {
        for (dims, stream) in [(&[11][..], 0), (&[2, 3, 2], 7), (&[], u32::MAX)] {
            cases.push(random_source_case(random, distribution, dims, stream));
        }
    }
}

fn descriptor(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).expect("a small shape"))
}

/// Returns a graph with two variables that exchange values, and a third that counts: reads see the values before the
/// dispatch.
fn variable_swap_case(random: &mut CaseRng, dtype: DType) -> GraphCase {
    let mut draft = CaseBuilder::default();
    let [a, b, counter] = [(); 3].map(|()| draft.variable(random_value(random, dtype, &[3], ValueDistribution::Any)));
    let step = draft.input(random, dtype, &[3], ValueDistribution::Any);
    let sum = draft.node(Op::Binary(BinaryOp::Add), &[counter, step]);
    for (variable, value) in [(a, b), (b, a), (counter, sum)] {
        draft.builder.assign_to(variable, value).expect("one data type and shape");
    }
    draft.finish(format!("variables {dtype} exchanged"), &[a, sum], false)
}

fn random_source_case(
    random: &mut CaseRng,
    distribution: RandomDistribution,
    dims: &[usize],
    stream: u32,
) -> GraphCase {
    let mut draft = CaseBuilder::default();
    let words: Vec<f64> = (0..4).map(|_| (random.bits() >> 32) as f64).collect();
    let shape = Shape::new([4]).expect("a small shape");
    let key = draft.input_with_value(InterpTensor::from_numbers(DType::U32, shape, &words).expect("four words"));
    let shape = Shape::new(dims).expect("a small shape");
    let node = draft.builder.random(shape, key, stream, distribution).expect("a key");
    draft.finish(format!("random {distribution:?} {dims:?} stream {stream}"), &[node], false)
}
