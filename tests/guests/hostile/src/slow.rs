//! Misbehaviours that keep the host busy in host functions, where no guest instruction runs.

use saggar_plugin::{DataType, Graph, Result, Tensor, descriptor};

/// The nodes of a graph that takes seconds to compile.
const NODES: usize = 20_000;
/// The rows and columns of the matrices that a long dispatch multiplies, and the number of products.
const SIZE: u32 = 512;
const PRODUCTS: usize = 2_000;

/// Compiles large graphs one after the other, all of them different.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub(crate) fn compile_large_graphs() -> Result<()> {
    for number in 0_u32.. {
        let graph = Graph::new();
        let (mut a, mut b) = (
            graph.scalar(DataType::Float32, f64::from(number))?,
            graph.input("x", &descriptor(DataType::Float32, [4]))?,
        );
        for _ in 0..NODES {
            let sum = a.add(&b)?;
            (a, b) = (b, sum);
        }
        graph.build([("y", &b)])?;
    }
    Ok(())
}

/// Runs long programs one after the other.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub(crate) fn run_long_dispatches() -> Result<()> {
    let shape = [SIZE, SIZE];
    let graph = Graph::new();
    let x = graph.input("x", &descriptor(DataType::Float32, shape))?;
    let mut product = x.matmul(&x)?;
    for _ in 1..PRODUCTS {
        product = product.matmul(&x)?;
    }
    let program = graph.build([("y", &product)])?;
    let zeros = Tensor::from_f32(&shape, &vec![0.0; (SIZE * SIZE) as usize])?;
    loop {
        program.dispatch([("x", &zeros)])?;
    }
}
