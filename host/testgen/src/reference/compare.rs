//! Comparison of compiled programs with the interpreter, for tests, fuzz targets and random-graph campaigns.

use saggar_tensor::VerifiedGraph;
use saggar_tensor::interp::{InterpElements, InterpTensor, evaluate};

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_compile::{CompileError, compile};

/// Number of runs of a program. The second run sees the variables that the first wrote.
const COMPARED_STEPS: usize = 2;

/// Compiles `graph` and compares the program's results with the interpreter's.
///
/// # Errors
/// Returns the compiler's error if it refuses the graph; `Ok(Err)` describes the first difference.
///
/// # Panics
/// Panics if the values do not match the graph's ports, or if [`super::run_program`] panics.
pub fn compare_with_interpreter(
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &[InterpTensor],
    target: &CompileTarget,
) -> Result<Result<Program, String>, CompileError> {
    let program = compile(graph, target)?;
    let (mut expected_state, mut state) = (variables.to_vec(), variables.to_vec());
    for step in 0..COMPARED_STEPS {
        let expected = evaluate(graph, inputs, &mut expected_state).expect("values are those that the graph takes");
        let found = super::run_program(&program, inputs, &mut state);
        let outputs = expected.iter().zip(&found).map(|values| ("output", values));
        let held = expected_state.iter().zip(&state).map(|values| ("variable", values));
        for (at, (what, (expected, found))) in outputs.enumerate().chain(held.enumerate()) {
            if !is_equal_up_to_zero_sign(expected, found) {
                let text = format!("{what} {at} in step {step}\n{expected:?}\n{found:?}\n{program}");
                return Ok(Err(text));
            }
        }
    }
    Ok(Ok(program))
}

/// Returns whether two results are equal. Fusion changes no rounding, so everything must be equal, except the sign of
/// the zero of an empty sum.
fn is_equal_up_to_zero_sign(a: &InterpTensor, b: &InterpTensor) -> bool {
    a.descriptor() == b.descriptor()
        && match (a.elements(), b.elements()) {
            (InterpElements::Float(a), InterpElements::Float(b)) => {
                a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
            }
            (InterpElements::Int(a), InterpElements::Int(b)) => a == b,
            (InterpElements::Float(_), InterpElements::Int(_)) | (InterpElements::Int(_), InterpElements::Float(_)) => {
                false
            }
        }
}
