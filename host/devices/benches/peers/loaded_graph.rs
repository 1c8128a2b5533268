//! A graph compiled and loaded on the device, with its tensors.

use std::sync::Arc;

use saggar_compile::compile;
use saggar_compile::cost::kernel_cost;
use saggar_device::{Backend, DeviceBuffer, DeviceError, Executable, Meter};
use saggar_tensor::{GraphPort, VerifiedGraph};

use crate::interleaved_runs::{BenchContender, measure_batched_runs, measure_runs};

/// Returns the initial bytes of the tensor of this name, or `None`.
pub(crate) type InitialBytes<'a> = &'a dyn Fn(&str) -> Result<Option<Vec<u8>>, String>;

/// Runs whose kernels are timed.
const PROFILED_RUNS: usize = 15;

/// A loaded program with its tensors.
pub(crate) struct BenchProgram {
    backend: Arc<dyn Backend>,
    executable: Arc<dyn Executable>,
    inputs: Vec<DeviceBuffer>,
    variables: Vec<DeviceBuffer>,
    /// Counts the device's work for this program.
    pub(crate) meter: Meter,
}

impl BenchProgram {
    /// Compiles and loads a graph. `start` gives the initial bytes of inputs and variables by name; without bytes, they
    /// are zero.
    ///
    /// # Errors
    /// Returns an error if the graph cannot be compiled or loaded, or the error of `start`.
    pub(crate) fn new(
        backend: &Arc<dyn Backend>,
        graph: &VerifiedGraph,
        start: InitialBytes<'_>,
    ) -> Result<BenchProgram, String> {
        let meter = Meter::unlimited();
        let program = compile(graph, &backend.target()).map_err(|error| error.to_string())?;
        let buffer = |port: &GraphPort| -> Result<DeviceBuffer, String> {
            let buffer = backend.allocate(&port.descriptor, &meter).map_err(|error| error.to_string())?;
            if let Some(bytes) = start(&port.name)? {
                backend.write(&buffer, &bytes).map_err(|error| error.to_string())?;
            }
            Ok(buffer)
        };
        let inputs = program.inputs.iter().map(buffer).collect::<Result<_, _>>()?;
        let variables = program.variables.iter().map(buffer).collect::<Result<_, _>>()?;
        let executable = backend.load(Arc::new(program), &meter).map_err(|error| error.to_string())?;
        Ok(BenchProgram { backend: Arc::clone(backend), executable, inputs, variables, meter })
    }

    /// Runs the program once and returns its outputs.
    pub(crate) fn run(&self) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.executable.dispatch(&self.inputs, &self.variables)
    }

    /// Runs the program once and returns the numbers of its first output.
    ///
    /// # Errors
    /// Returns the device's error.
    pub(crate) fn first_output(&self) -> Result<Vec<f32>, String> {
        let outputs = self.run().map_err(|error| error.to_string())?;
        let bytes = self.backend.read(&outputs[0]).map_err(|error| error.to_string())?;
        crate::tensors::to_floats(outputs[0].descriptor(), &bytes)
    }

    /// Prints the time of each kernel: the fastest of several runs, because disturbances only make runs slower.
    ///
    /// # Errors
    /// Returns the device's error.
    pub(crate) fn print_kernel_times(&self) -> Result<(), String> {
        let program = self.executable.program();
        let mut times = vec![Vec::new(); program.kernels.len()];
        for _ in 0..PROFILED_RUNS {
            let (_, took) =
                self.executable.profile(&self.inputs, &self.variables).map_err(|error| error.to_string())?;
            let took = took.ok_or("the device cannot measure kernel times")?;
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took.as_secs_f64()));
        }
        let text = program.to_string();
        let titles = text.lines().filter(|line| !line.starts_with(' ') && !line.starts_with("slab"));
        for ((kernel, times), title) in program.kernels.iter().zip(&times).zip(titles) {
            let (seconds, cost) = (times.iter().copied().fold(f64::INFINITY, f64::min), kernel_cost(program, kernel));
            let speeds = [cost.operations, cost.bytes].map(|amount| amount as f64 / seconds / 1e9);
            println!("{:>9.1} us {:>7.1} GFLOP/s {:>6.1} GB/s {}", seconds * 1e6, speeds[0], speeds[1], title);
        }
        Ok(())
    }

    /// Waits for all runs so far.
    ///
    /// # Errors
    /// Returns the device's error.
    pub(crate) fn wait(&self) -> Result<(), String> {
        self.backend.synchronize().map_err(|error| error.to_string())
    }

    /// Returns a contender like [`BenchProgram::contender`], for a device whose dispatches return early; see
    /// [`measure_batched_runs`].
    pub(crate) fn submitting_contender(&self, each: bool) -> BenchContender<'_> {
        let run = || self.run().map(drop).map_err(|error| error.to_string());
        let turn = move |seconds| measure_batched_runs(seconds, each, run, || self.wait());
        BenchContender { name: "saggar".to_owned(), turn: Box::new(turn) }
    }

    /// Returns this program as a contender.
    pub(crate) fn contender(&self) -> BenchContender<'_> {
        let run = || self.run().map(drop).map_err(|error| error.to_string());
        BenchContender { name: "saggar".to_owned(), turn: Box::new(move |seconds| measure_runs(seconds, run)) }
    }
}
