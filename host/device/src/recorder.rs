//! A device that computes nothing: it keeps every graph that is compiled for it, so that what a plugin builds can be looked
//! at on any machine, however large it is.
//!
//! What is written to a tensor is read back, up to [`KEPT_BYTES_MAX`] for all tensors together; everything else is zeros,
//! the outputs of programs among it. It says that it keeps no elements, so that first values of weights are not
//! even made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use saggar_compile::program::Program;
use saggar_compile::target::Target;
use saggar_compile::{CompileError, compile_interruptible};
use saggar_tensor::{Descriptor, Interrupt, Port, VerifiedGraph};

use crate::backend::{Backend, Buffer, DeviceInfo, Executable, Storage, Ways};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::{Charge, Meter};

/// Graphs that are kept; more are counted.
pub const GRAPHS_MAX: usize = 256;
/// Bytes of tensors that are kept as they were written.
pub const KEPT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the largest tensor that can be read.
const READ_BYTES_MAX: usize = 1 << 30;

/// The device. Clones share what it keeps.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    info: DeviceInfo,
    target: Target,
    phase: Mutex<String>,
    recorded: Mutex<Recorded>,
    kept_bytes: Arc<AtomicU64>,
}

/// What was compiled so far.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// In the order in which they were first compiled, each once.
    pub graphs: Vec<RecordedGraph>,
    /// Graphs past [`GRAPHS_MAX`].
    pub left_out: usize,
}

/// A graph that was compiled.
#[derive(Clone, Debug)]
pub struct RecordedGraph {
    /// What went on when it was first compiled, as [`Recorder::begin`] was told.
    pub phase: String,
    /// The graph.
    pub graph: Arc<VerifiedGraph>,
}

impl Recorder {
    /// A device whose programs would be compiled for `target`.
    pub fn new(target: Target) -> Recorder {
        let info = DeviceInfo {
            name: "recorder".to_owned(),
            adapter: "none: it computes nothing".to_owned(),
            vendor: "saggar".to_owned(),
            driver: "none".to_owned(),
            backend: "recorder".to_owned(),
            software: true,
            exact_seconds: false,
            limits: Vec::new(),
            features: Vec::new(),
        };
        Recorder(Arc::new(Kept {
            info,
            target,
            phase: Mutex::default(),
            recorded: Mutex::default(),
            kept_bytes: Arc::default(),
        }))
    }

    /// Says what goes on from now on.
    pub fn begin(&self, phase: &str) {
        phase.clone_into(&mut self.phase());
    }

    fn phase(&self) -> MutexGuard<'_, String> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was compiled so far.
    pub fn so_far(&self) -> Recorded {
        self.recorded().clone()
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tensor's elements, where they were written and are kept.
#[derive(Debug)]
struct Sheet {
    written: Mutex<Option<Vec<u8>>>,
    kept_bytes: Arc<AtomicU64>,
    _charge: Charge,
}

impl Storage for Sheet {}

impl Drop for Sheet {
    fn drop(&mut self) {
        let written = self.written.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = written.as_ref().map_or(0, Vec::len) as u64;
        self.kept_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Sheet {
    fn buffer(kept_bytes: &Arc<AtomicU64>, descriptor: &Descriptor, meter: &Meter) -> Result<Buffer, DeviceError> {
        let charge = meter.charge(descriptor.bytes() as u64)?;
        let sheet = Sheet { written: Mutex::default(), kept_bytes: Arc::clone(kept_bytes), _charge: charge };
        Ok(Buffer::new(descriptor.clone(), Arc::new(sheet)))
    }

    fn written(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, bytes: &[u8]) {
        let mut written = self.written();
        if let Some(written) = &mut *written {
            written.copy_from_slice(bytes);
            return;
        }
        let more = bytes.len() as u64;
        let add = |kept: u64| kept.checked_add(more).filter(|&sum| sum <= KEPT_BYTES_MAX);
        if self.kept_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok() {
            *written = Some(bytes.to_vec());
        }
    }
}

impl Backend for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn target(&self) -> Target {
        self.0.target
    }

    fn compile(&self, graph: &VerifiedGraph, interrupt: &Interrupt<'_>) -> Result<Program, CompileError> {
        let mut recorded = self.recorded();
        if !recorded.graphs.iter().any(|known| *known.graph == *graph) {
            if recorded.graphs.len() < GRAPHS_MAX {
                let phase = self.phase().clone();
                recorded.graphs.push(RecordedGraph { phase, graph: Arc::new(graph.clone()) });
            } else {
                recorded.left_out += 1;
            }
        }
        drop(recorded);
        compile_interruptible(graph, &self.0.target, interrupt)
    }

    fn keeps_elements(&self) -> bool {
        false
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<Buffer, DeviceError> {
        Sheet::buffer(&self.0.kept_bytes, descriptor, meter)
    }

    fn write_cancellable(&self, buffer: &Buffer, bytes: &[u8], _: &CancelToken) -> Result<(), DeviceError> {
        let expected = buffer.descriptor().bytes();
        if bytes.len() != expected {
            return Err(mismatch("write", format!("{expected} bytes"), format!("{} bytes", bytes.len())));
        }
        sheet(buffer, "write")?.write(bytes);
        Ok(())
    }

    fn read_cancellable(&self, buffer: &Buffer, _: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        if let Some(written) = &*sheet(buffer, "read")?.written() {
            return Ok(written.clone());
        }
        let bytes = buffer.descriptor().bytes();
        if bytes > READ_BYTES_MAX {
            return Err(mismatch("read", format!("at most {READ_BYTES_MAX} bytes"), format!("{bytes} bytes")));
        }
        Ok(vec![0; bytes])
    }

    fn kept(&self, buffer: &Buffer, _: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        Ok(sheet(buffer, "kept")?.written().clone())
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        _: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(Unrun { program, meter: meter.clone(), kept_bytes: Arc::clone(&self.0.kept_bytes) }))
    }

    fn ways(&self) -> Ways {
        Ways::new()
    }

    fn keep_ways(&self, _: &Ways) {}

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A program that is not run.
#[derive(Debug)]
struct Unrun {
    program: Arc<Program>,
    meter: Meter,
    kept_bytes: Arc<AtomicU64>,
}

impl Executable for Unrun {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        _: &CancelToken,
    ) -> Result<Vec<Buffer>, DeviceError> {
        check("inputs", &self.program.inputs, inputs)?;
        check("variables", &self.program.variables, variables)?;
        let output = |port: &Port| Sheet::buffer(&self.kept_bytes, &port.descriptor, &self.meter);
        self.program.outputs.iter().map(output).collect()
    }
}

fn check(kind: &str, ports: &[Port], buffers: &[Buffer]) -> Result<(), DeviceError> {
    if ports.len() != buffers.len() {
        return Err(mismatch(kind, format!("{} tensors", ports.len()), format!("{} tensors", buffers.len())));
    }
    let wrong = ports.iter().zip(buffers).find(|(port, buffer)| port.descriptor != *buffer.descriptor());
    match wrong {
        None => Ok(()),
        Some((port, it)) => Err(mismatch(&port.name, port.descriptor.to_string(), it.descriptor().to_string())),
    }
}

fn sheet<'a>(buffer: &'a Buffer, port: &str) -> Result<&'a Sheet, DeviceError> {
    let other = || mismatch(port, "a tensor of the recorder".to_owned(), "another device's".to_owned());
    buffer.storage::<Sheet>().ok_or_else(other)
}

fn mismatch(port: &str, expected: String, actual: String) -> DeviceError {
    DeviceError::Mismatch { port: port.to_owned(), expected, actual }
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, GraphBuilder, Shape, verify};

    use super::*;

    fn vector(elements: usize) -> Descriptor {
        Descriptor::new(DType::F32, Shape::new([elements]).unwrap())
    }

    #[test]
    fn graphs_are_kept_once_and_outputs_are_zeros() {
        let recorder = Recorder::new(Target::cpu());
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", vector(2)).unwrap();
        let sum = builder.add(x, x).unwrap();
        builder.output("y", sum).unwrap();
        let graph = verify(builder.finish()).unwrap();
        recorder.begin("training");
        let program = recorder.compile(&graph, &Interrupt::never()).unwrap();
        recorder.begin("prediction");
        recorder.compile(&graph, &Interrupt::never()).unwrap();
        let recorded = recorder.so_far();
        assert_eq!(recorded.graphs.iter().map(|it| it.phase.as_str()).collect::<Vec<_>>(), ["training"]);

        let meter = Meter::unlimited();
        let executable = recorder.load(Arc::new(program), &meter).unwrap();
        let given = recorder.allocate(&vector(2), &meter).unwrap();
        recorder.write(&given, &[1; 8]).unwrap();
        assert_eq!(recorder.read(&given).unwrap(), [1; 8]);
        let outputs = executable.dispatch(std::slice::from_ref(&given), &[]).unwrap();
        assert_eq!(recorder.read(&outputs[0]).unwrap(), [0; 8]);
        assert!(executable.dispatch(&[], &[]).is_err());
        drop((given, outputs));
        assert_eq!((meter.bytes(), recorder.0.kept_bytes.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn tensors_that_no_machine_holds_cost_nothing() {
        let recorder = Recorder::new(Target::cpu());
        let meter = Meter::unlimited();
        let huge: Vec<Buffer> = (0..512).map(|_| recorder.allocate(&vector((1 << 31) - 1), &meter).unwrap()).collect();
        assert!(meter.bytes() > 4_000_000_000_000);
        assert!(matches!(recorder.read(&huge[0]), Err(DeviceError::Mismatch { .. })));
        assert_eq!(recorder.kept(&huge[0], &CancelToken::never()).unwrap(), None);
        let small = recorder.allocate(&vector(1), &meter).unwrap();
        recorder.write(&small, &[1; 4]).unwrap();
        assert_eq!(recorder.kept(&small, &CancelToken::never()).unwrap(), Some(vec![1; 4]));
    }
}
