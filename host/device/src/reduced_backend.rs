//! A device whose programs are compiled without some optimizations, for a single model on a device that others use
//! with all of them.

use std::fmt::Display;
use std::sync::Arc;

use saggar_compile::DisabledOptimizations;
use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::Descriptor;

use crate::backend::{Backend, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;

/// A device that shares everything with another one except the target of its programs.
#[derive(Debug)]
struct ReducedBackend {
    device: Arc<dyn Backend>,
    without: DisabledOptimizations,
}

/// Returns `device` with a target without these optimizations. Its tensors and programs can be used with `device`, and
/// the other way round.
pub fn without_optimizations(device: Arc<dyn Backend>, without: DisabledOptimizations) -> Arc<dyn Backend> {
    if without.is_empty() { device } else { Arc::new(ReducedBackend { device, without }) }
}

impl Backend for ReducedBackend {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn target(&self) -> CompileTarget {
        self.device.target().without(self.without)
    }

    fn stores_data(&self) -> bool {
        self.device.stores_data()
    }

    fn has_discrete_memory(&self) -> bool {
        self.device.has_discrete_memory()
    }

    fn calls_driver(&self) -> bool {
        self.device.calls_driver()
    }

    fn check_memory(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        self.device.check_memory(what, bytes, meter)
    }

    fn check_alive(&self) -> Result<(), DeviceError> {
        self.device.check_alive()
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
        self.device.allocate(descriptor, meter)
    }

    fn write_cancellable(&self, buffer: &DeviceBuffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.device.write_cancellable(buffer, bytes, cancel)
    }

    fn read_cancellable(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        self.device.read_cancellable(buffer, cancel)
    }

    fn read_if_stored(&self, buffer: &DeviceBuffer, cancel: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        self.device.read_if_stored(buffer, cancel)
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        self.device.load_cancellable(program, meter, cancel)
    }

    fn tuning_records(&self) -> TuningRecords {
        self.device.tuning_records()
    }

    fn load_tuning(&self, records: &TuningRecords) {
        self.device.load_tuning(records);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }
}
