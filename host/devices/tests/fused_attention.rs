//! Tests of fused matmul kernels: attention and its gradients on every adapter against the reference interpreter, each
//! in one kernel. The kernels use workgroup memory, or run without it if a driver refuses that.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::program::KernelBody;
use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_testgen::{AttentionConfig, GraphCase, MASKS, MaskKind, attention_case};

const SIZES: AttentionConfig = AttentionConfig {
    batch: 2,
    heads: 2,
    queries: 40,
    keys: 34,
    width: 8,
    value_width: 12,
    mask: MaskKind::None,
    transposed: false,
    gradients: true,
};

/// Returns the adapters that support fused matmul kernels, in all variants: with subgroups if all have one size,
/// without them, and plain.
fn devices() -> Vec<Arc<dyn Backend>> {
    let mut devices = Vec::new();
    let shares: fn(&str) -> bool = |text| text.contains("var<workgroup>");
    for index in 0..support::adapters("") {
        let subgroup = saggar_gpu::subgroup_size(index);
        if subgroup.is_none() {
            println!("SKIP: adapter {index} has no subgroups of one size");
        }
        let mut ways = vec![(None, None), (None, Some(shares))];
        ways.extend(subgroup.map(|size| (Some(size), None)));
        for (subgroup, refuse) in ways {
            // Expect one workgroup at a time, so that a few rows keep the adapter busy and the compiler fuses.
            let tuning = ShaderTuning { subgroup, workgroups_at_once: 1, ..ShaderTuning::UNLIMITED };
            let options = saggar_gpu::GpuOptions {
                tuning: Some(tuning),
                fail_shaders: refuse,
                ..saggar_gpu::GpuOptions::default()
            };
            let device = saggar_gpu::open_with(index, options).unwrap();
            if device.target().chain_values_max == 0 {
                println!("SKIP: adapter {index} has too few bindings for fused matmul kernels");
                continue;
            }
            devices.push(device);
        }
    }
    devices
}

fn count_fused_matmuls(program: &Program) -> usize {
    program.kernels.iter().filter(|kernel| matches!(kernel.body, KernelBody::Chain { .. })).count()
}

/// Runs the case twice, checks that the outputs are equal, and returns them.
fn run_twice(device: &dyn Backend, case: &GraphCase) -> (Arc<Program>, Vec<InterpTensor>) {
    let graph = case.verified_graph();
    let (program, meter) = (Arc::new(compile(&graph, &device.target()).unwrap()), Meter::unlimited());
    let executable = device.load(Arc::clone(&program), &meter).unwrap();
    let buffer = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let inputs: Vec<_> = case.inputs.iter().map(buffer).collect();
    let run = || -> Vec<Vec<u8>> {
        executable.dispatch(&inputs, &[]).unwrap().iter().map(|output| device.read(output).unwrap()).collect()
    };
    let (found, again) = (run(), run());
    assert_eq!(found, again, "{}: the same bytes", case.name);
    let values = program.outputs.iter().zip(&found);
    let values =
        values.map(|(port, bytes)| InterpTensor::from_bytes(port.descriptor.clone(), bytes).unwrap()).collect();
    (program, values)
}

fn check(sizes: AttentionConfig) {
    let case = attention_case(sizes, 11);
    let expected = evaluate(&case.verified_graph(), &case.inputs, &mut []).unwrap();
    for device in devices() {
        let (program, found) = run_twice(&*device, &case);
        let expected_chains = if sizes.gradients { 5 } else { 1 };
        assert_eq!(count_fused_matmuls(&program), expected_chains, "{}\n{program}", case.name);
        for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let (expected, found) = (expected.to_f64_numbers(), found.to_f64_numbers());
            let scale = expected.iter().fold(1e-3, |largest: f64, number| largest.max(number.abs()));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                // The sums of some dozen products of numbers below 1 are in another order.
                let near = (expected - found).abs() <= 2e-5 * scale;
                assert!(near, "{}, output {at}, {place}: {found}, not {expected}", case.name);
            }
        }
    }
}

#[test]
fn fused_attention_and_its_gradients_match_the_interpreter() {
    for mask in MASKS {
        // Every second mask is tested with transposed operands.
        check(AttentionConfig { mask, transposed: mask == MaskKind::Causal || mask == MaskKind::Added, ..SIZES });
    }
}

#[test]
fn fused_attention_handles_sizes_that_tiles_do_not_divide() {
    let sizes =
        [[64, 64, 32, 32], [32, 96, 16, 64], [33, 31, 5, 3], [40, 100, 20, 100], [100, 40, 20, 128], [65, 48, 16, 33]];
    for [queries, keys, width, wide] in sizes {
        check(AttentionConfig {
            batch: 1,
            heads: 2,
            queries,
            keys,
            width,
            value_width: wide,
            mask: MaskKind::Causal,
            ..SIZES
        });
    }
}

#[test]
fn attention_of_one_head_and_one_sequence_is_fused() {
    for gradients in [false, true] {
        check(AttentionConfig {
            batch: 1,
            heads: 1,
            queries: 34,
            keys: 34,
            width: 8,
            value_width: 8,
            gradients,
            ..SIZES
        });
    }
}

#[test]
fn large_attention_scores_do_not_overflow() {
    let mut case = attention_case(AttentionConfig { gradients: false, ..SIZES }, 12);
    for value in &mut case.inputs[..2] {
        let numbers: Vec<f64> = value.to_f64_numbers().iter().map(|number| number * 300.0).collect();
        *value =
            InterpTensor::from_numbers(value.descriptor().dtype, value.descriptor().shape.clone(), &numbers).unwrap();
    }
    let expected = evaluate(&case.verified_graph(), &case.inputs, &mut []).unwrap();
    for device in devices() {
        let (_, found) = run_twice(&*device, &case);
        for (expected, found) in expected[0].to_f64_numbers().iter().zip(found[0].to_f64_numbers()) {
            // Scores are several thousand, so the last bits of their exponents differ.
            assert!((expected - found).abs() < 5e-3, "{found}, not {expected}");
        }
    }
}
