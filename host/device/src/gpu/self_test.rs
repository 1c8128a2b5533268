//! Self-tests: runs graphs with known results to check features that an adapter reports.

use std::sync::Arc;

use saggar_compile::compile;
use saggar_tensor::VerifiedGraph;

use crate::backend::{Backend, DeviceBuffer};
use crate::error::DeviceError;
use crate::meter::Meter;

/// Runs a graph without variables on these inputs and returns its outputs.
///
/// # Errors
/// Returns the text of the compiler's or the device's error.
pub(super) fn run_graph(
    device: &dyn Backend,
    graph: &VerifiedGraph,
    inputs: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, String> {
    let program = Arc::new(compile(graph, &device.target()).map_err(|error| error.to_string())?);
    let run = || -> Result<Vec<Vec<u8>>, DeviceError> {
        let meter = Meter::unlimited();
        let given = program.inputs.iter().zip(inputs).map(|(port, bytes)| {
            let buffer = device.allocate(&port.descriptor, &meter)?;
            device.write(&buffer, bytes).map(|()| buffer)
        });
        let given = given.collect::<Result<Vec<DeviceBuffer>, _>>()?;
        let executable = device.load(Arc::clone(&program), &meter)?;
        executable.dispatch(&given, &[])?.iter().map(|output| device.read(output)).collect()
    };
    run().map_err(|error| error.to_string())
}
