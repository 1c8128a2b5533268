//! Attention and its gradients on every adapter, against the reference interpreter: in one kernel each, staged in the memory
//! that lanes share and, where a driver refuses that, without it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::program::Body;
use saggar_compile::wgsl::Tuning;
use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter, gpu};
use saggar_tensor::arbitrary::{Attention, Case, MASKS, Mask, attention};
use saggar_tensor::interp::{Value, evaluate};

const SIZES: Attention = Attention {
    batch: 2,
    heads: 2,
    queries: 40,
    keys: 34,
    width: 8,
    wide: 12,
    mask: Mask::None,
    turned: false,
    gradients: true,
};

/// Adapters with chains, in all variants: by subgroups where there are any of one size, without them, and plain.
fn devices() -> Vec<Arc<dyn Backend>> {
    let mut devices = Vec::new();
    let shares: fn(&str) -> bool = |text| text.contains("var<workgroup>");
    for index in 0..support::adapters("") {
        let subgroup = gpu::subgroup(index);
        if subgroup.is_none() {
            println!("SKIP: adapter {index} has no subgroups of one size");
        }
        let mut ways = vec![(None, None), (None, Some(shares))];
        ways.extend(subgroup.map(|size| (Some(size), None)));
        for (subgroup, refuse) in ways {
            // So few workgroups that a handful of rows keeps them busy.
            let tuning = Tuning { subgroup, workgroups_at_once: 1, ..Tuning::UNLIMITED };
            let options = gpu::Options { tuning: Some(tuning), refuse, ..gpu::Options::default() };
            let device = gpu::open_with(index, options).unwrap();
            if device.target().chain_values_max == 0 {
                println!("SKIP: adapter {index} has too few bindings for chains");
                continue;
            }
            devices.push(device);
        }
    }
    devices
}

fn chains(program: &Program) -> usize {
    program.kernels.iter().filter(|kernel| matches!(kernel.body, Body::Chain { .. })).count()
}

/// The case's outputs on a device, twice the same.
fn outputs(device: &dyn Backend, case: &Case) -> (Arc<Program>, Vec<Value>) {
    let graph = case.verified();
    let (program, meter) = (Arc::new(compile(&graph, &device.target()).unwrap()), Meter::unlimited());
    let executable = device.load(Arc::clone(&program), &meter).unwrap();
    let buffer = |value: &Value| {
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
    let values = values.map(|(port, bytes)| Value::from_bytes(port.descriptor.clone(), bytes).unwrap()).collect();
    (program, values)
}

fn check(sizes: Attention) {
    let case = attention(sizes, 11);
    let expected = evaluate(&case.verified(), &case.inputs, &mut []).unwrap();
    for device in devices() {
        let (program, found) = outputs(&*device, &case);
        let expected_chains = if sizes.gradients { 5 } else { 1 };
        assert_eq!(chains(&program), expected_chains, "{}\n{program}", case.name);
        for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let (expected, found) = (expected.numbers(), found.numbers());
            let scale = expected.iter().fold(1e-3, |largest: f64, number| largest.max(number.abs()));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                // Sums of some dozen products of numbers below 1, in another order.
                let near = (expected - found).abs() <= 2e-5 * scale;
                assert!(near, "{}, output {at}, {place}: {found}, not {expected}", case.name);
            }
        }
    }
}

#[test]
fn attention_and_its_gradients_are_what_they_should_be() {
    for mask in MASKS {
        // The other way round for every second one.
        check(Attention { mask, turned: mask == Mask::Causal || mask == Mask::Added, ..SIZES });
    }
}

#[test]
fn every_side_may_have_a_remainder_or_none() {
    let sizes =
        [[64, 64, 32, 32], [32, 96, 16, 64], [33, 31, 5, 3], [40, 100, 20, 100], [100, 40, 20, 128], [65, 48, 16, 33]];
    for [queries, keys, width, wide] in sizes {
        check(Attention { batch: 1, heads: 2, queries, keys, width, wide, mask: Mask::Causal, ..SIZES });
    }
}

#[test]
fn one_head_of_one_sequence_has_attention_too() {
    for gradients in [false, true] {
        check(Attention { batch: 1, heads: 1, queries: 34, keys: 34, width: 8, wide: 8, gradients, ..SIZES });
    }
}

#[test]
fn large_scores_overflow_nothing() {
    let mut case = attention(Attention { gradients: false, ..SIZES }, 12);
    for value in &mut case.inputs[..2] {
        let numbers: Vec<f64> = value.numbers().iter().map(|number| number * 300.0).collect();
        *value = Value::from_numbers(value.descriptor().dtype, value.descriptor().shape.clone(), &numbers).unwrap();
    }
    let expected = evaluate(&case.verified(), &case.inputs, &mut []).unwrap();
    for device in devices() {
        let (_, found) = outputs(&*device, &case);
        for (expected, found) in expected[0].numbers().iter().zip(found[0].numbers()) {
            // Scores of some thousands, so their exponents are off by some of their last bits.
            assert!((expected - found).abs() < 5e-3, "{found}, not {expected}");
        }
    }
}
