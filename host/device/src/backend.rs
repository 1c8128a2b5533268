//! The interface that every device implements.

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

/// A device's description, for logs, job records, metrics and `saggar doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, `vulkan:0`, ...
    pub name: String,
    /// The name of the adapter or the processor.
    pub adapter: String,
    /// The vendor's name, if known.
    pub vendor: String,
    /// The driver and its version; for a processor, its instruction set.
    pub driver: String,
    /// `cpu`, `vulkan`, `metal`, `dx12`.
    pub backend: String,
    /// Whether shaders run on a processor (Mesa's lavapipe, SwiftShader).
    pub software: bool,
    /// Whether busy seconds are measured by the device's own clock. Otherwise they are wall time around the work.
    pub exact_seconds: bool,
    /// The device's limits, by names that end in the unit, such as `buffer_bytes_max`. Empty if memory is the only
    /// limit.
    pub limits: Vec<(String, u64)>,
    /// The optional features that kernels use, such as `shader_f16` and `subgroups_of_32`.
    pub features: Vec<String>,
}

/// The device memory of a [`DeviceBuffer`].
pub trait BufferStorage: Debug + Send + Sync + Any {}

/// A dense tensor on a device. Clones share the memory. It is freed and credited to its meter with the last clone.
#[derive(Clone, Debug)]
pub struct DeviceBuffer {
    descriptor: Descriptor,
    storage: Arc<dyn BufferStorage>,
}

impl DeviceBuffer {
    /// Wraps a device's memory. Only devices call this.
    pub fn new(descriptor: Descriptor, storage: Arc<dyn BufferStorage>) -> DeviceBuffer {
        DeviceBuffer { descriptor, storage }
    }

    /// Returns the data type and the shape.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns the storage as the type `S` of one device, or `None` if another device made this buffer.
    pub fn storage<S: BufferStorage>(&self) -> Option<&S> {
        let any: &dyn Any = &*self.storage;
        any.downcast_ref::<S>()
    }
}

/// Autotuning results: the selected candidate of each kernel, by what the kernel computes.
pub type TuningRecords = BTreeMap<String, String>;

/// A device. All methods can be called from any thread. Methods that block say so.
pub trait Backend: Debug + Send + Sync {
    /// Returns the device's description.
    fn info(&self) -> &DeviceInfo;

    /// Returns the target that programs for this device must be compiled for.
    fn target(&self) -> CompileTarget;

    /// Compiles `graph` for this device, for use with [`Backend::load`]. Can take long, and stops soon after
    /// `interrupt` asks for it.
    ///
    /// # Errors
    /// Returns those of [`saggar_compile::compile_interruptible`].
    fn compile(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, CompileError> {
        saggar_compile::compile_interruptible(graph, &self.target(), interrupt)
    }

    /// Returns whether the device stores the data of its tensors. Callers skip computing initial values if it does not,
    /// as on a device that only records graphs.
    fn stores_data(&self) -> bool {
        true
    }

    /// Returns whether tensors are copied to memory that only the device reads, so that data in repeated use should
    /// stay there.
    fn has_discrete_memory(&self) -> bool {
        false
    }

    /// Returns whether methods call a driver. Such methods may never return, because some drivers block while the
    /// device does not finish its work.
    fn calls_driver(&self) -> bool {
        false
    }

    /// Checks that `bytes` more of `what` fit on the device now, counted as in [`CompileTarget::tensor_bytes`]. Called
    /// before many tensors are allocated, when the first ones would fit and later ones would not.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if the limit of `meter` would be exceeded, and `InsufficientMemory` if the machine has too
    /// little.
    fn check_memory(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        let _ = what;
        meter.charge(bytes).map(drop)
    }

    /// Checks that the device is still usable. Does not wait.
    ///
    /// # Errors
    /// Returns `Lost` if the driver gave the device up. A lost device stays lost.
    fn check_alive(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Allocates a tensor of zeros and charges it to `meter`.
    ///
    /// # Errors
    /// Returns `OutOfMemory`, `InsufficientMemory`, `Unsupported` (the device lacks the data type) or `Lost`.
    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError>;

    /// Replaces a tensor's elements by dense little-endian bytes, after all work that was submitted before.
    ///
    /// # Errors
    /// Returns `Mismatch` if the length is wrong or the buffer belongs to another device, and `Lost`.
    fn write(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_cancellable(buffer, bytes, &CancelToken::never())
    }

    /// Like [`Backend::write`], but stops when `cancel` is cancelled, because it can wait for earlier work.
    ///
    /// # Errors
    /// Returns those of [`Backend::write`], and `Cancelled`.
    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError>;

    /// Returns a tensor's elements as dense little-endian bytes. Waits for the work that produces them.
    ///
    /// # Errors
    /// Returns `Mismatch` if the buffer belongs to another device, `InsufficientMemory` if the host has no memory for
    /// the copy, and `Lost`.
    fn read(&self, buffer: &DeviceBuffer) -> Result<Vec<u8>, DeviceError> {
        self.read_cancellable(buffer, &CancelToken::never())
    }

    /// Like [`Backend::read`], but stops when `cancel` is cancelled.
    ///
    /// # Errors
    /// Returns those of [`Backend::read`], and `Cancelled`.
    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError>;

    /// Like [`Backend::read_cancellable`], for data to save. Returns `None` if the device does not store data and
    /// either these elements were never written or there are too many to keep.
    ///
    /// # Errors
    /// Returns those of [`Backend::read_cancellable`].
    fn read_if_stored(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        self.read_cancellable(buffer, cancel).map(Some)
    }

    /// Prepares a program to run: allocates its scratch memory, uploads constants, creates pipelines. Can take long.
    ///
    /// # Errors
    /// Returns `OutOfMemory`, `InsufficientMemory`, `Unsupported` or `Lost`.
    fn load(&self, program: Arc<Program>, meter: &Meter) -> Result<Arc<dyn Executable>, DeviceError> {
        self.load_cancellable(program, meter, &CancelToken::never())
    }

    /// Like [`Backend::load`], but stops when `cancel` is cancelled.
    ///
    /// # Errors
    /// Returns those of [`Backend::load`], and `Cancelled`.
    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError>;

    /// Returns the autotuned candidates that were selected so far. Candidates can differ in the last bits of their
    /// results, so callers that must reproduce results store these records.
    fn tuning_records(&self) -> TuningRecords;

    /// Makes kernels that are loaded from now on use these candidates, whatever autotuning measures.
    fn load_tuning(&self, ways: &TuningRecords);

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// Returns `Lost`.
    fn synchronize(&self) -> Result<(), DeviceError>;
}

/// A program loaded on a device.
pub trait Executable: Debug + Send + Sync {
    /// Returns the program.
    fn program(&self) -> &Program;

    /// Runs the program once. Takes inputs and variables in the program's order and returns new outputs in its order.
    /// On a GPU this returns when the work is submitted; reading an output waits for it. Dispatches take effect in call
    /// order.
    ///
    /// # Errors
    /// Returns `Mismatch`, `OutOfMemory`, `InsufficientMemory` or `Lost`.
    fn dispatch(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.dispatch_cancellable(inputs, variables, &CancelToken::never())
    }

    /// Like [`Executable::dispatch`], but stops when `cancel` is cancelled. The variables that the program writes can
    /// be half written then.
    ///
    /// # Errors
    /// Returns those of [`Executable::dispatch`], and `Cancelled`.
    fn dispatch_cancellable(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError>;

    /// Like [`Executable::dispatch`], and also returns the duration of each of the program's kernels, or `None` if the
    /// device cannot measure it. Waits for the kernels, which can run slower than in a dispatch.
    ///
    /// # Errors
    /// Returns those of [`Executable::dispatch`].
    fn profile(&self, inputs: &[DeviceBuffer], variables: &[DeviceBuffer]) -> Result<ProfiledOutputs, DeviceError> {
        Ok((self.dispatch(inputs, variables)?, None))
    }
}

/// The outputs, and the duration of each kernel.
pub type ProfiledOutputs = (Vec<DeviceBuffer>, Option<Vec<Duration>>);
