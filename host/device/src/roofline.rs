//! Roofline: the peak throughput that a device reaches now. Measured with ordinary programs: a matrix product for
//! operations, and an element-wise kernel over long vectors for bytes. Unlike a data sheet's figure, kernels can come
//! near it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_compile::cost::kernel_cost;
use saggar_tensor::{DType, Descriptor, Graph, GraphBuilder, GraphError, Shape, verify};

use crate::backend::{Backend, DeviceBuffer};
use crate::error::DeviceError;
use crate::meter::Meter;

/// Rows and columns of the first product that is measured, and of the largest.
const MATRIX_SIDES: [usize; 2] = [256, 2048];
/// Elements of the first vector that is measured, and of the longest.
const VECTOR_ELEMENTS: [usize; 2] = [1 << 18, 1 << 24];
/// Shortest dispatch that can be measured well.
const DISPATCH_TIME_MIN: Duration = Duration::from_millis(25);
/// Time for repeated dispatches, of which the fastest counts: other processes use the machine too.
const MEASURE_TIME: Duration = Duration::from_millis(300);
/// Minimum number of repeated dispatches.
const REPEATS_MIN: usize = 3;

/// The peak throughput of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeakThroughput {
    /// Floating-point operations per second. A multiply-add counts as two.
    pub operations_per_second: f64,
    /// Bytes read and written per second.
    pub bytes_per_second: f64,
}

/// Measures `device` in about a second; a software adapter can take several. Blocks.
///
/// # Errors
/// Returns those of the device.
pub fn measure(device: &dyn Backend) -> Result<PeakThroughput, DeviceError> {
    let operations_per_second = measure_peak_rate(device, MATRIX_SIDES, 2, |side| {
        let mut g = GraphBuilder::new();
        let matrix = f32_descriptor(&[side, side])?;
        let (a, b) = (g.input("a", matrix.clone())?, g.input("b", matrix)?);
        let product = g.matmul(a, b)?;
        g.output("product", product)?;
        Ok((g.finish(), ThroughputUnit::Operations))
    })?;
    let bytes_per_second = measure_peak_rate(device, VECTOR_ELEMENTS, 4, |elements| {
        let mut g = GraphBuilder::new();
        let x = g.input("x", f32_descriptor(&[elements])?)?;
        let copy = g.variable("copy", f32_descriptor(&[elements])?)?;
        let negative = g.neg(x)?;
        g.assign_to(copy, negative)?;
        Ok((g.finish(), ThroughputUnit::Bytes))
    })?;
    Ok(PeakThroughput { operations_per_second, bytes_per_second })
}

#[derive(Clone, Copy, Debug)]
enum ThroughputUnit {
    Operations,
    Bytes,
}

fn f32_descriptor(dims: &[usize]) -> Result<Descriptor, GraphError> {
    Ok(Descriptor::new(DType::F32, Shape::new(dims)?))
}

/// Returns units per second of the first graph that takes at least `DISPATCH_TIME_MIN`, or of the largest graph.
fn measure_peak_rate(
    device: &dyn Backend,
    [mut size, size_max]: [usize; 2],
    factor: usize,
    graph: impl Fn(usize) -> Result<(Graph, ThroughputUnit), GraphError>,
) -> Result<f64, DeviceError> {
    let refused = |reason: String| DeviceError::Unsupported {
        device: device.info().name.clone(),
        kernel: "roofline measurement".to_owned(),
        reason,
    };
    loop {
        let (graph, unit) = graph(size).map_err(|error| refused(error.to_string()))?;
        let verified = verify(graph).map_err(|error| refused(error.to_string()))?;
        let program =
            saggar_compile::compile(&verified, &device.target()).map_err(|error| refused(error.to_string()))?;
        let costs = program.kernels.iter().map(|kernel| kernel_cost(&program, kernel));
        let units: u64 = costs
            .map(|cost| match unit {
                ThroughputUnit::Operations => cost.operations,
                ThroughputUnit::Bytes => cost.bytes,
            })
            .sum();
        let took = fastest_dispatch_time(device, program)?;
        if took >= DISPATCH_TIME_MIN || size >= size_max {
            return Ok(units as f64 / took.as_secs_f64().max(1e-9));
        }
        size = (size * factor).min(size_max);
    }
}

/// Returns the time of the fastest dispatch. Counts only its kernels if the device can measure them.
fn fastest_dispatch_time(device: &dyn Backend, program: saggar_compile::Program) -> Result<Duration, DeviceError> {
    let meter = Meter::unlimited();
    let program = Arc::new(program);
    let tensors = |ports: &[saggar_tensor::GraphPort]| {
        ports.iter().map(|port| device.allocate(&port.descriptor, &meter)).collect::<Result<Vec<DeviceBuffer>, _>>()
    };
    let (inputs, variables) = (tensors(&program.inputs)?, tensors(&program.variables)?);
    let executable = device.load(Arc::clone(&program), &meter)?;
    let once = || {
        device.synchronize()?;
        let began = Instant::now();
        let (outputs, kernels) = executable.profile(&inputs, &variables)?;
        device.synchronize()?;
        let all = began.elapsed();
        drop(outputs);
        Ok::<_, DeviceError>(kernels.map_or(all, |kernels| kernels.iter().sum()))
    };
    // The first dispatch fills caches, so later ones can be faster.
    let mut least = once()?;
    let (began, mut tries) = (Instant::now(), 0);
    while tries < REPEATS_MIN || (least >= DISPATCH_TIME_MIN / 2 && began.elapsed() < MEASURE_TIME) {
        least = least.min(once()?);
        tries += 1;
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_peaks_are_positive_and_finite() {
        let peak = measure(&*crate::cpu::open(None).unwrap()).unwrap();
        assert!(peak.operations_per_second > 1e6 && peak.bytes_per_second > 1e6, "{peak:?}");
        assert!(peak.operations_per_second.is_finite() && peak.bytes_per_second.is_finite(), "{peak:?}");
    }
}
