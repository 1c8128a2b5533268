//! Tests of workgroup reductions on every adapter against the reference interpreter: contiguous rows and strided
//! columns, through workgroup memory and with subgroups.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::{Program, compile};
use saggar_device::Meter;
use saggar_gpu::wgsl::{self, ShaderTuning};
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

const KINDS: [&str; 4] = ["sum", "product", "largest", "smallest"];

/// Returns every kind of reduction of `dims` along `axis`, and a value whose reductions are exact in every order.
fn reduction_graph(dtype: DType, dims: [usize; 2], axis: usize) -> (VerifiedGraph, InterpTensor) {
    let mut g = GraphBuilder::new();
    let shape = Shape::new(dims).unwrap();
    let x = g.input("x", Descriptor::new(dtype, shape.clone())).unwrap();
    for kind in KINDS {
        let fold = match kind {
            "sum" => g.reduce_sum(x, &[axis], false),
            "product" => g.reduce_product(x, &[axis], false),
            "largest" => g.reduce_max(x, &[axis], false),
            _ => g.reduce_min(x, &[axis], false),
        };
        g.output(kind, fold.unwrap()).unwrap();
    }
    // A few twos among ones: sums and products are exact.
    let number = |at: usize| if (at * 7919 + at / dims[1]).is_multiple_of(613) { 2.0 } else { 1.0 };
    let numbers: Vec<f64> = (0..shape.elements()).map(number).collect();
    (verify(g.finish()).unwrap(), InterpTensor::from_numbers(dtype, shape, &numbers).unwrap())
}

fn count_subgroup_kernels(program: &Program, tuning: ShaderTuning) -> usize {
    let text = |kernel| wgsl::shader_passes(program, kernel, tuning).unwrap()[0].source.clone();
    program.kernels.iter().filter(|kernel| text(*kernel).contains("subgroupShuffleXor")).count()
}

#[test]
fn workgroup_reductions_match_the_interpreter() {
    for index in 0..support::adapters("") {
        let subgroup = saggar_gpu::subgroup_size(index);
        if subgroup.is_none() {
            println!("SKIP: adapter {index} has no subgroups of one size");
        }
        for subgroup in [None].into_iter().chain(subgroup.map(Some)) {
            let tuning = ShaderTuning { subgroup, ..ShaderTuning::UNLIMITED };
            let device = saggar_gpu::open_tuned(index, tuning).unwrap();
            for dtype in [DType::F32, DType::F16, DType::I32, DType::U32, DType::U8, DType::I64] {
                // Large and small workgroups, with and without remainders, one element and many.
                for (dims, axis) in [([3, 200], 1), ([1, 5000], 1), ([130, 33], 0), ([2500, 16], 0), ([140, 1], 0)] {
                    let (graph, value) = reduction_graph(dtype, dims, axis);
                    let (program, meter) = (Arc::new(compile(&graph, &device.target()).unwrap()), Meter::unlimited());
                    let wide = dtype == DType::I64;
                    if !wide {
                        // A subgroup must hold more lanes than a workgroup has neighbouring columns.
                        let columns = if axis == 0 { dims[1].next_power_of_two().min(16) } else { 1 };
                        let fits = subgroup.is_some_and(|size| columns < size);
                        let expected = if fits { program.kernels.len() } else { 0 };
                        assert_eq!(
                            count_subgroup_kernels(&program, tuning),
                            expected,
                            "{dtype} {dims:?} {axis} {subgroup:?}"
                        );
                    }
                    let executable = device.load(Arc::clone(&program), &meter).unwrap();
                    let input = device.allocate(value.descriptor(), &meter).unwrap();
                    device.write(&input, &value.to_bytes()).unwrap();
                    let found = executable.dispatch(&[input], &[]).unwrap();
                    let expected = evaluate(&graph, std::slice::from_ref(&value), &mut []).unwrap();
                    for (kind, (found, expected)) in KINDS.iter().zip(found.iter().zip(&expected)) {
                        let found = device.read(found).unwrap();
                        assert_eq!(found, expected.to_bytes(), "{kind} of {dtype} {dims:?} {axis} {subgroup:?}");
                    }
                }
            }
        }
    }
}
