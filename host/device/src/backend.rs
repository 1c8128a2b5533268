//! The interface every device implements.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use saggar_compile::CompileError;
use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::{Descriptor, InterruptCheck, VerifiedGraph};

use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;

/// What a device is, for logs, job records, metrics and `saggar doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, `vulkan:0`, ...
    pub name: String,
    /// The adapter's own name, or the processor's.
    pub adapter: String,
    /// Vendor, as far as it is known.
    pub vendor: String,
    /// Driver and its version; the instruction set for a processor.
    pub driver: String,
    /// `cpu`, `vulkan`, `metal`, `dx12`.
    pub backend: String,
    /// Whether shaders run on a processor (Mesa's lavapipe, SwiftShader).
    pub software: bool,
    /// Whether busy seconds come from the device's own clock; otherwise they are wall time around the work.
    pub exact_seconds: bool,
    /// What it can do at most, by names that end in the unit: `buffer_bytes_max`. Empty where memory is the only limit.
    pub limits: Vec<(String, u64)>,
    /// What it has that not all devices have and kernels make use of: `shader_f16`, `subgroups_of_32`.
    pub features: Vec<String>,
}

/// A device's memory behind a [`DeviceBuffer`].
pub trait BufferStorage: Debug + Send + Sync + Any {}

/// A dense tensor on a device. Clones share the memory, which is freed and given back to its meter with the last one.
#[derive(Clone, Debug)]
pub struct DeviceBuffer {
    descriptor: Descriptor,
    storage: Arc<dyn BufferStorage>,
}

impl DeviceBuffer {
    /// Wraps a device's memory; only devices call this.
    pub fn new(descriptor: Descriptor, storage: Arc<dyn BufferStorage>) -> DeviceBuffer {
        DeviceBuffer { descriptor, storage }
    }

    /// Data type and shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The device's own storage type, if this is it. A buffer of another device gives none.
    pub fn storage<S: BufferStorage>(&self) -> Option<&S> {
        let any: &dyn Any = &*self.storage;
        any.downcast_ref::<S>()
    }
}

/// Ways in which kernels are computed, by what they compute.
pub type TuningRecords = BTreeMap<String, String>;

/// A device. All methods may be called from any thread; those that wait say so.
pub trait Backend: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// What programs for it must be compiled for.
    fn target(&self) -> CompileTarget;

    /// The program that computes `graph` here, to be given to [`Backend::load`]. May take long, and stops soon after
    /// `interrupt` comes.
    ///
    /// # Errors
    /// Those of [`saggar_compile::compile_interruptible`].
    fn compile(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, CompileError> {
        saggar_compile::compile_interruptible(graph, &self.target(), interrupt)
    }

    /// Whether it computes with what is in its tensors. Asked before first values are made, which one that only looks at graphs
    /// is not given.
    fn stores_data(&self) -> bool {
        true
    }

    /// Whether tensors reach it by copies, so that what is used again is better kept there.
    fn has_discrete_memory(&self) -> bool {
        false
    }

    /// Whether its methods call a driver, and so may not return: some drivers block while the device does not finish its work.
    fn calls_driver(&self) -> bool {
        false
    }

    /// Whether `bytes` more of `what` would fit on the device now, as [`CompileTarget::tensor_bytes`] counts them: asked before many
    /// tensors are made, of which the first would fit.
    ///
    /// # Errors
    /// `OutOfMemory` past the limit of `meter`; `NoRoom`.
    fn check_memory(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        let _ = what;
        meter.charge(bytes).map(drop)
    }

    /// Whether the device is still there. Does not wait.
    ///
    /// # Errors
    /// `Lost`, once and for ever.
    fn check_alive(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// A tensor of zeros, charged to `meter`.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoRoom`, `Unsupported` (a data type the device lacks), `Lost`.
    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError>;

    /// Replaces a tensor's elements by dense little-endian bytes, after work already submitted.
    ///
    /// # Errors
    /// `Mismatch` where the length is wrong or the buffer is another device's; `Lost`.
    fn write(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_cancellable(buffer, bytes, &CancelToken::never())
    }

    /// As [`Backend::write`], given up once `cancel` says so: it may wait for work before it.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError>;

    /// A tensor's elements as dense little-endian bytes. Waits for the work that produces them.
    ///
    /// # Errors
    /// `Mismatch` where the buffer is another device's; `NoRoom` where the host has none for the copy; `Lost`.
    fn read(&self, buffer: &DeviceBuffer) -> Result<Vec<u8>, DeviceError> {
        self.read_cancellable(buffer, &CancelToken::never())
    }

    /// As [`Backend::read`], given up once `cancel` says so.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError>;

    /// As [`Backend::read_cancellable`], for what is saved; none where the device keeps no elements and was not given these, or too
    /// many.
    ///
    /// # Errors
    /// As there.
    fn read_if_stored(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        self.read_cancellable(buffer, cancel).map(Some)
    }

    /// Makes a program ready to run: allocates its scratch memory, uploads constants, creates pipelines. May take long.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoRoom`, `Unsupported`, `Lost`.
    fn load(&self, program: Arc<Program>, meter: &Meter) -> Result<Arc<dyn Executable>, DeviceError> {
        self.load_cancellable(program, meter, &CancelToken::never())
    }

    /// As [`Backend::load`], given up once `cancel` says so.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError>;

    /// The ways of those kernels that may be computed in several, where it has tried out which is fastest: results may differ in
    /// their last bits, so who must come to the same again keeps them.
    fn tuning_records(&self) -> TuningRecords;

    /// Has kernels that are loaded from now on computed in these ways, whatever it finds out.
    fn load_tuning(&self, ways: &TuningRecords);

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// `Lost`.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// A program loaded on a device.
pub trait Executable: Debug + Send + Sync {
    /// The program.
    fn program(&self) -> &Program;

    /// Runs the program once: inputs and variables in the program's order; returns fresh outputs in its order. On a GPU
    /// this returns when the work is submitted; reading an output waits for it. Dispatches take effect in call order.
    ///
    /// # Errors
    /// `Mismatch`, `OutOfMemory`, `NoRoom`, `Lost`.
    fn dispatch(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.dispatch_cancellable(inputs, variables, &CancelToken::never())
    }

    /// As [`Executable::dispatch`], given up once `cancel` says so. Variables that it writes may be half written then.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    fn dispatch_cancellable(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError>;

    /// As [`Executable::dispatch`], and what each of the program's kernels took, where the device can tell: it waits for the
    /// kernels then, and may run them slower than in a dispatch.
    ///
    /// # Errors
    /// Those of a dispatch.
    fn profile(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<ProfiledOutputs, DeviceError> {
        Ok((self.dispatch(inputs, variables)?, None))
    }
}

/// Outputs, and what each kernel took.
pub type ProfiledOutputs = (Vec<DeviceBuffer>, Option<Vec<Duration>>);
