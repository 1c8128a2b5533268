//! The devices that run the cases.

use std::collections::HashMap;
use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::{GraphBuilder, NodeId, VerifiedGraph, verify};

use super::build::build_step;
use super::case::{WebnnCase, descriptor, value};
use super::compare::compare;

/// The CPU device and every GPU adapter. The interpreter is not a device.
#[derive(Debug)]
pub struct WebnnDevices(Vec<Arc<dyn Backend>>);

impl WebnnDevices {
    /// Opens the devices.
    ///
    /// # Errors
    /// Returns an error if there is no GPU adapter, or one does not open.
    pub fn open() -> Result<WebnnDevices, String> {
        let mut devices = vec![saggar_cpu::open(None).map_err(|error| error.to_string())?];
        let count = saggar_gpu::adapters().len();
        if count == 0 {
            return Err("there is no GPU adapter; Debian's mesa-vulkan-drivers brings one in software".to_owned());
        }
        for index in 0..count {
            devices.push(saggar_gpu::open(index).map_err(|error| error.to_string())?);
        }
        Ok(WebnnDevices(devices))
    }

    /// Returns their names, beginning with the interpreter's.
    pub fn names(&self) -> Vec<String> {
        let adapters = self.0.iter().map(|device| format!("{} ({})", device.info().name, device.info().adapter));
        ["interpreter".to_owned()].into_iter().chain(adapters).collect()
    }

    /// Checks that every device gives the outputs that the case expects.
    ///
    /// # Errors
    /// Returns the device and the first element outside the tolerance, or what could not be built.
    pub fn check(&self, case: &WebnnCase) -> Result<(), String> {
        let (graph, inputs) = graph(case)?;
        let expected: Vec<InterpTensor> = case.expected.values().map(value).collect::<Result<_, _>>()?;
        let interpreted = evaluate(&graph, &inputs, &mut []).map_err(|error| error.to_string())?;
        check_outputs(case, "interpreter", &expected, &interpreted)?;
        for device in &self.0 {
            let name = &device.info().name;
            let found = dispatch(&**device, &graph, &inputs).map_err(|error| format!("{name}: {error}"))?;
            check_outputs(case, name, &expected, &found)?;
        }
        Ok(())
    }
}

fn check_outputs(
    case: &WebnnCase,
    device: &str,
    expected: &[InterpTensor],
    found: &[InterpTensor],
) -> Result<(), String> {
    for ((name, expected), found) in case.expected.keys().zip(expected).zip(found) {
        compare(expected, found, case.tolerance).map_err(|reason| format!("{device}, {name}: {reason}"))?;
    }
    Ok(())
}

/// Returns the case's graph with its outputs in the order of the expected ones, and the values of its inputs in the
/// graph's order.
fn graph(case: &WebnnCase) -> Result<(VerifiedGraph, Vec<InterpTensor>), String> {
    let mut g = GraphBuilder::new();
    let mut nodes: HashMap<String, NodeId> = HashMap::new();
    let mut inputs = Vec::new();
    for (name, tensor) in &case.inputs {
        let (descriptor, value) = (descriptor(tensor)?, value(tensor)?);
        let node = if tensor["constant"].as_bool().unwrap_or(false) {
            g.constant(descriptor, value.to_bytes())
        } else {
            inputs.push(value);
            g.input(name, descriptor)
        };
        nodes.insert(name.clone(), node.map_err(|error| error.to_string())?);
    }
    for json in &case.steps {
        build_step(&mut g, &mut nodes, json)?;
    }
    for name in case.expected.keys() {
        let node = nodes.get(name).ok_or_else(|| format!("no step makes {name}"))?;
        g.output(name, *node).map_err(|error| error.to_string())?;
    }
    Ok((verify(g.finish()).map_err(|error| error.to_string())?, inputs))
}

fn dispatch(device: &dyn Backend, graph: &VerifiedGraph, inputs: &[InterpTensor]) -> Result<Vec<InterpTensor>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let meter = Meter::unlimited();
    let program = compile(graph, &device.target()).map_err(|error| text(&error))?;
    let executable = device.load(Arc::new(program), &meter).map_err(|error| text(&error))?;
    let mut buffers = Vec::new();
    for value in inputs {
        let buffer = device.allocate(value.descriptor(), &meter).map_err(|error| text(&error))?;
        device.write(&buffer, &value.to_bytes()).map_err(|error| text(&error))?;
        buffers.push(buffer);
    }
    let outputs = executable.dispatch(&buffers, &[]).map_err(|error| text(&error))?;
    let read = |buffer: &saggar_device::DeviceBuffer| {
        let bytes = device.read(buffer).map_err(|error| text(&error))?;
        InterpTensor::from_bytes(buffer.descriptor().clone(), &bytes).map_err(|error| text(&error))
    };
    outputs.iter().map(read).collect()
}
