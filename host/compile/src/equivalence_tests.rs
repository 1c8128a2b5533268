//! Compiled programs compute what the graphs' definition says.

use saggar_tensor::arbitrary::{Case, cases, graph};
use saggar_tensor::interp::{Elements, Value, evaluate};
use saggar_tensor::{DType, VerifiedGraph};

use crate::{CompileError, Program, Target, compile, reference};

const WORDS: Target = Target { words: true, alignment_bytes: 256, slab_bytes_max: 128 << 20, kernel_values_max: 7 };

/// Fusion changes no rounding: everything is equal, and only the sign of a zero that sums nothing is left open.
fn same(a: &Value, b: &Value) -> bool {
    a.descriptor() == b.descriptor()
        && match (a.elements(), b.elements()) {
            (Elements::Float(a), Elements::Float(b)) => {
                a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
            }
            (Elements::Int(a), Elements::Int(b)) => a == b,
            (Elements::Float(_), Elements::Int(_)) | (Elements::Int(_), Elements::Float(_)) => false,
        }
}

fn check(name: &str, graph: &VerifiedGraph, inputs: &[Value], variables: &[Value], target: &Target) -> Option<Program> {
    let program = match compile(graph, target) {
        Ok(program) => program,
        Err(CompileError::Unsupported { dtype, .. }) if target.words => {
            assert!(matches!(dtype, DType::F16 | DType::I64 | DType::U64), "{name}: {dtype}");
            return None;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    assert_eq!(compile(graph, target).unwrap(), program, "{name}: compiling twice");
    for kernel in &program.kernels {
        assert!(kernel.body.values() <= target.kernel_values_max, "{name}: {kernel:?}");
    }
    let (mut expected_state, mut state) = (variables.to_vec(), variables.to_vec());
    for step in 0..2 {
        let expected = evaluate(graph, inputs, &mut expected_state).unwrap();
        let found = reference::run(&program, inputs, &mut state);
        for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert!(same(expected, found), "{name}: output {at} in step {step}\n{expected:?}\n{found:?}\n{program}");
        }
        for (at, (expected, found)) in expected_state.iter().zip(&state).enumerate() {
            assert!(same(expected, found), "{name}: variable {at} in step {step}\n{expected:?}\n{found:?}\n{program}");
        }
    }
    Some(program)
}

fn check_case(case: &Case) {
    for target in [Target::cpu(), WORDS] {
        check(&case.name, &case.verified(), &case.inputs, &case.variables, &target);
    }
}

#[test]
fn every_primitive_compiles_to_what_it_means() {
    for seed in 0..3 {
        cases(seed).iter().for_each(check_case);
    }
}

#[test]
fn random_graphs_compile_to_what_they_mean() {
    for seed in 0..300 {
        check_case(&graph(seed));
    }
}
