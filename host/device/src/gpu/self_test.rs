//! Graphs whose results are known, to try out what an adapter says that it has.

use std::sync::Arc;

use saggar_compile::compile;
use saggar_tensor::VerifiedGraph;

use crate::backend::{Backend, DeviceBuffer};
use crate::error::DeviceError;
use crate::meter::Meter;

/// The outputs of a graph without variables for these inputs.
///
/// # Errors
/// What the device says against it, in words.
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
