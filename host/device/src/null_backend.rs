//! A device that computes nothing. It records every graph that is compiled for it, so that graphs of any size can be
//! inspected on any machine.
//!
//! Data written to a tensor can be read back, up to [`STORED_BYTES_MAX`] for all tensors together. All other tensors
//! read as zeros, including the outputs of programs. [`Backend::stores_data`] returns false, so initial weights are not
//! even computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_compile::{CompileError, compile_interruptible};
use saggar_tensor::{Descriptor, GraphPort, InterruptCheck, VerifiedGraph};

use crate::backend::{Backend, BufferStorage, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::{Meter, MeterCharge};

/// Maximum number of recorded graphs. Further graphs are only counted.
pub const RECORDED_GRAPHS_MAX: usize = 256;
/// Maximum bytes of written tensors that are stored.
pub const STORED_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the largest tensor that can be read.
const READ_BYTES_MAX: usize = 1 << 30;

/// The device. Clones share its recording and its stored tensors.
#[derive(Clone, Debug)]
pub struct NullBackend(Arc<NullBackendState>);

#[derive(Debug)]
struct NullBackendState {
    info: DeviceInfo,
    target: CompileTarget,
    phase: Mutex<String>,
    recorded: Mutex<GraphRecording>,
    stored_bytes: Arc<AtomicU64>,
}

/// The graphs that were compiled so far.
#[derive(Clone, Debug, Default)]
pub struct GraphRecording {
    /// Each graph once, in the order of first compilation.
    pub graphs: Vec<RecordedGraph>,
    /// Number of graphs beyond [`RECORDED_GRAPHS_MAX`].
    pub omitted_graphs: usize,
}

/// A graph that was compiled.
#[derive(Clone, Debug)]
pub struct RecordedGraph {
    /// The phase at its first compilation, as set by [`NullBackend::set_phase`].
    pub phase: String,
    /// The graph.
    pub graph: Arc<VerifiedGraph>,
}

impl NullBackend {
    /// Returns a device whose programs are compiled for `target`.
    pub fn new(target: CompileTarget) -> NullBackend {
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
        NullBackend(Arc::new(NullBackendState {
            info,
            target,
            phase: Mutex::default(),
            recorded: Mutex::default(),
            stored_bytes: Arc::default(),
        }))
    }

    /// Names the current phase, for graphs that are compiled from now on.
    pub fn set_phase(&self, phase: &str) {
        phase.clone_into(&mut self.lock_phase());
    }

    fn lock_phase(&self) -> MutexGuard<'_, String> {
        self.0.phase.lock()
    }

    /// Returns the graphs that were compiled so far.
    pub fn recording(&self) -> GraphRecording {
        self.lock_recording().clone()
    }

    fn lock_recording(&self) -> MutexGuard<'_, GraphRecording> {
        self.0.recorded.lock()
    }
}

/// A tensor's elements, if they were written and are stored.
#[derive(Debug)]
struct NullBuffer {
    written: Mutex<Option<Vec<u8>>>,
    stored_bytes: Arc<AtomicU64>,
    _charge: MeterCharge,
}

impl BufferStorage for NullBuffer {}

impl Drop for NullBuffer {
    fn drop(&mut self) {
        let written = self.written.get_mut();
        let bytes = written.as_ref().map_or(0, Vec::len) as u64;
        self.stored_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl NullBuffer {
    fn allocate(
        kept_bytes: &Arc<AtomicU64>,
        descriptor: &Descriptor,
        meter: &Meter,
    ) -> Result<DeviceBuffer, DeviceError> {
        let charge = meter.charge(descriptor.bytes() as u64)?;
        let sheet = NullBuffer { written: Mutex::default(), stored_bytes: Arc::clone(kept_bytes), _charge: charge };
        Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(sheet)))
    }

    fn lock_written(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.written.lock()
    }

    fn write(&self, bytes: &[u8]) {
        let mut written = self.lock_written();
        if let Some(written) = &mut *written {
            written.copy_from_slice(bytes);
            return;
        }
        let more = bytes.len() as u64;
        let add = |stored_bytes: u64| stored_bytes.checked_add(more).filter(|&sum| sum <= STORED_BYTES_MAX);
        if self.stored_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok() {
            *written = Some(bytes.to_vec());
        }
    }
}

impl Backend for NullBackend {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn target(&self) -> CompileTarget {
        self.0.target
    }

    fn compile(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, CompileError> {
        let mut recorded = self.lock_recording();
        if !recorded.graphs.iter().any(|known| *known.graph == *graph) {
            if recorded.graphs.len() < RECORDED_GRAPHS_MAX {
                let phase = self.lock_phase().clone();
                recorded.graphs.push(RecordedGraph { phase, graph: Arc::new(graph.clone()) });
            } else {
                recorded.omitted_graphs += 1;
            }
        }
        drop(recorded);
        compile_interruptible(graph, &self.0.target, interrupt)
    }

    fn stores_data(&self) -> bool {
        false
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
        NullBuffer::allocate(&self.0.stored_bytes, descriptor, meter)
    }

    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], _: &CancelToken) -> Result<(), DeviceError> {
        let expected = buffer.descriptor().bytes();
        if bytes.len() != expected {
            return Err(mismatch("write", format!("{expected} bytes"), format!("{} bytes", bytes.len())));
        }
        null_buffer(buffer, "write")?.write(bytes);
        Ok(())
    }

    fn read_cancellable(&self, buffer: &DeviceBuffer, _: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        if let Some(written) = &*null_buffer(buffer, "read")?.lock_written() {
            return Ok(written.clone());
        }
        let bytes = buffer.descriptor().bytes();
        if bytes > READ_BYTES_MAX {
            return Err(mismatch("read", format!("at most {READ_BYTES_MAX} bytes"), format!("{bytes} bytes")));
        }
        Ok(vec![0; bytes])
    }

    fn read_if_stored(&self, buffer: &DeviceBuffer, _: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        Ok(null_buffer(buffer, "kept")?.lock_written().clone())
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        _: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        Ok(Arc::new(NullExecutable { program, meter: meter.clone(), stored_bytes: Arc::clone(&self.0.stored_bytes) }))
    }

    fn tuning_records(&self) -> TuningRecords {
        TuningRecords::new()
    }

    fn load_tuning(&self, _: &TuningRecords) {}

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A program that is never run.
#[derive(Debug)]
struct NullExecutable {
    program: Arc<Program>,
    meter: Meter,
    stored_bytes: Arc<AtomicU64>,
}

impl Executable for NullExecutable {
    fn program(&self) -> &Program {
        &self.program
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        _: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        check_ports("inputs", &self.program.inputs, inputs)?;
        check_ports("variables", &self.program.variables, variables)?;
        let output = |port: &GraphPort| NullBuffer::allocate(&self.stored_bytes, &port.descriptor, &self.meter);
        self.program.outputs.iter().map(output).collect()
    }
}

fn check_ports(kind: &str, ports: &[GraphPort], buffers: &[DeviceBuffer]) -> Result<(), DeviceError> {
    if ports.len() != buffers.len() {
        return Err(mismatch(kind, format!("{} tensors", ports.len()), format!("{} tensors", buffers.len())));
    }
    let wrong = ports.iter().zip(buffers).find(|(port, buffer)| port.descriptor != *buffer.descriptor());
    match wrong {
        None => Ok(()),
        Some((port, it)) => Err(mismatch(&port.name, port.descriptor.to_string(), it.descriptor().to_string())),
    }
}

fn null_buffer<'a>(buffer: &'a DeviceBuffer, port: &str) -> Result<&'a NullBuffer, DeviceError> {
    let other = || mismatch(port, "a tensor of the recorder".to_owned(), "a tensor of another device".to_owned());
    buffer.storage::<NullBuffer>().ok_or_else(other)
}

fn mismatch(port: &str, expected: String, actual: String) -> DeviceError {
    DeviceError::Mismatch { port: port.to_owned(), expected, actual }
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, GraphBuilder, Shape, verify};

    use super::*;

    fn vector_descriptor(elements: usize) -> Descriptor {
        Descriptor::new(DType::F32, Shape::new([elements]).unwrap())
    }

    #[test]
    fn each_graph_is_recorded_once_and_outputs_are_zeros() {
        let recorder = NullBackend::new(CompileTarget::cpu());
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", vector_descriptor(2)).unwrap();
        let sum = builder.add(x, x).unwrap();
        builder.output("y", sum).unwrap();
        let graph = verify(builder.finish()).unwrap();
        recorder.set_phase("training");
        let program = recorder.compile(&graph, &InterruptCheck::never()).unwrap();
        recorder.set_phase("prediction");
        recorder.compile(&graph, &InterruptCheck::never()).unwrap();
        let recorded = recorder.recording();
        assert_eq!(recorded.graphs.iter().map(|it| it.phase.as_str()).collect::<Vec<_>>(), ["training"]);

        let meter = Meter::unlimited();
        let executable = recorder.load(Arc::new(program), &meter).unwrap();
        let given = recorder.allocate(&vector_descriptor(2), &meter).unwrap();
        recorder.write(&given, &[1; 8]).unwrap();
        assert_eq!(recorder.read(&given).unwrap(), [1; 8]);
        let outputs = executable.dispatch(std::slice::from_ref(&given), &[]).unwrap();
        assert_eq!(recorder.read(&outputs[0]).unwrap(), [0; 8]);
        assert!(executable.dispatch(&[], &[]).is_err());
        drop((given, outputs));
        assert_eq!((meter.bytes(), recorder.0.stored_bytes.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn huge_tensors_allocate_no_host_memory() {
        let recorder = NullBackend::new(CompileTarget::cpu());
        let meter = Meter::unlimited();
        let huge: Vec<DeviceBuffer> =
            (0..512).map(|_| recorder.allocate(&vector_descriptor((1 << 31) - 1), &meter).unwrap()).collect();
        assert!(meter.bytes() > 4_000_000_000_000);
        assert!(matches!(recorder.read(&huge[0]), Err(DeviceError::Mismatch { .. })));
        assert_eq!(recorder.read_if_stored(&huge[0], &CancelToken::never()).unwrap(), None);
        let small = recorder.allocate(&vector_descriptor(1), &meter).unwrap();
        recorder.write(&small, &[1; 4]).unwrap();
        assert_eq!(recorder.read_if_stored(&small, &CancelToken::never()).unwrap(), Some(vec![1; 4]));
    }
}
