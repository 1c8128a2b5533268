//! A device wrapper that profiles each kernel of each dispatch. It waits for every dispatch, so the speed of a whole
//! training run must be measured without it.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use saggar_compile::CompileError;
use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::{Descriptor, InterruptCheck, VerifiedGraph};

use crate::backend::{Backend, DeviceBuffer, DeviceInfo, Executable, TuningRecords};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;

/// Maximum number of profiled kernels. Later ones run unprofiled.
pub const PROFILED_KERNELS_MAX: usize = 200_000;

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchRecord {
    /// Index of its program in [`DeviceProfile::programs`].
    pub program: usize,
    /// Start time, since the profiler was created.
    pub started: Duration,
    /// Time until the dispatch was done.
    pub duration: Duration,
    /// Duration of each of the program's kernels by the device's clock, or `None` if the device has no clock.
    pub kernels: Option<Vec<Duration>>,
}

/// The dispatches that were profiled.
#[derive(Clone, Debug, Default)]
pub struct DeviceProfile {
    /// The programs that were loaded, in order.
    pub programs: Vec<Arc<Program>>,
    /// The programs' dispatches, in order.
    pub dispatches: Vec<DispatchRecord>,
    /// Number of kernels in these dispatches.
    kernels: usize,
}

/// A device whose dispatches are profiled.
#[derive(Debug)]
pub struct ProfilingBackend {
    device: Arc<dyn Backend>,
    began: Instant,
    profile: Arc<Mutex<DeviceProfile>>,
}

#[derive(Debug)]
struct ProfiledExecutable {
    executable: Arc<dyn Executable>,
    device: Arc<dyn Backend>,
    number: usize,
    began: Instant,
    profile: Arc<Mutex<DeviceProfile>>,
}

impl ProfilingBackend {
    /// Returns a profiler that runs programs on `device`.
    pub fn new(device: Arc<dyn Backend>) -> ProfilingBackend {
        ProfilingBackend { device, began: Instant::now(), profile: Arc::default() }
    }

    /// Returns the profile so far.
    pub fn profile(&self) -> DeviceProfile {
        lock_profile(&self.profile).clone()
    }
}

fn lock_profile(profile: &Mutex<DeviceProfile>) -> MutexGuard<'_, DeviceProfile> {
    profile.lock()
}

impl Backend for ProfilingBackend {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn target(&self) -> CompileTarget {
        self.device.target()
    }

    fn compile(&self, graph: &VerifiedGraph, interrupt: &InterruptCheck<'_>) -> Result<Program, CompileError> {
        self.device.compile(graph, interrupt)
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
        let executable = self.device.load_cancellable(Arc::clone(&program), meter, cancel)?;
        let mut profile = lock_profile(&self.profile);
        let number = profile.programs.len();
        profile.programs.push(program);
        let (device, began, profile) = (Arc::clone(&self.device), self.began, Arc::clone(&self.profile));
        Ok(Arc::new(ProfiledExecutable { executable, device, number, began, profile }))
    }

    fn tuning_records(&self) -> TuningRecords {
        self.device.tuning_records()
    }

    fn load_tuning(&self, ways: &TuningRecords) {
        self.device.load_tuning(ways);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }
}

impl Executable for ProfiledExecutable {
    fn program(&self) -> &Program {
        self.executable.program()
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        let count = self.program().kernels.len();
        if lock_profile(&self.profile).kernels + count > PROFILED_KERNELS_MAX {
            return self.executable.dispatch_cancellable(inputs, variables, cancel);
        }
        // Earlier work must not be counted for this dispatch.
        self.device.synchronize()?;
        let (began, at) = (Instant::now(), self.began.elapsed());
        cancel.check()?;
        let (outputs, kernels) = self.executable.profile(inputs, variables)?;
        self.device.synchronize()?;
        let mut profile = lock_profile(&self.profile);
        profile.kernels += count;
        profile.dispatches.push(DispatchRecord {
            program: self.number,
            started: at,
            duration: began.elapsed(),
            kernels,
        });
        Ok(outputs)
    }
}
