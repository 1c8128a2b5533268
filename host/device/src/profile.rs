//! A device that writes down what each kernel of each dispatch took: the device within it does the work, and each dispatch is
//! waited for. So figures of a whole training are taken without it.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_compile::CompileError;
use saggar_compile::program::Program;
use saggar_compile::target::Target;
use saggar_tensor::{Descriptor, Interrupt, VerifiedGraph};

use crate::backend::{Backend, Buffer, DeviceInfo, Executable, Ways};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::Meter;

/// Kernels that are written down; later ones run as ever.
pub const KERNELS_MAX: usize = 200_000;

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    /// The number of its program in [`Profile::programs`].
    pub program: usize,
    /// When it began, since the profiler was made.
    pub at: Duration,
    /// Until it was done.
    pub took: Duration,
    /// What each of the program's kernels took by the device's clock; none where it has no clock.
    pub kernels: Option<Vec<Duration>>,
}

/// What was written down.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The programs that were loaded, in order.
    pub programs: Vec<Arc<Program>>,
    /// Their dispatches, in order.
    pub dispatches: Vec<Dispatched>,
    /// Kernels of those.
    kernels: usize,
}

/// A device whose dispatches are written down.
#[derive(Debug)]
pub struct Profiler {
    device: Arc<dyn Backend>,
    began: Instant,
    profile: Arc<Mutex<Profile>>,
}

#[derive(Debug)]
struct Profiled {
    executable: Arc<dyn Executable>,
    device: Arc<dyn Backend>,
    number: usize,
    began: Instant,
    profile: Arc<Mutex<Profile>>,
}

impl Profiler {
    /// Has `device` do the work.
    pub fn new(device: Arc<dyn Backend>) -> Profiler {
        Profiler { device, began: Instant::now(), profile: Arc::default() }
    }

    /// What was written down so far.
    pub fn profile(&self) -> Profile {
        lock(&self.profile).clone()
    }
}

fn lock(profile: &Mutex<Profile>) -> MutexGuard<'_, Profile> {
    profile.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Profiler {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn target(&self) -> Target {
        self.device.target()
    }

    fn compile(&self, graph: &VerifiedGraph, interrupt: &Interrupt<'_>) -> Result<Program, CompileError> {
        self.device.compile(graph, interrupt)
    }

    fn keeps_elements(&self) -> bool {
        self.device.keeps_elements()
    }

    fn is_apart(&self) -> bool {
        self.device.is_apart()
    }

    fn calls_driver(&self) -> bool {
        self.device.calls_driver()
    }

    fn check_room(&self, what: &dyn Display, bytes: u64, meter: &Meter) -> Result<(), DeviceError> {
        self.device.check_room(what, bytes, meter)
    }

    fn allocate(&self, descriptor: &Descriptor, meter: &Meter) -> Result<Buffer, DeviceError> {
        self.device.allocate(descriptor, meter)
    }

    fn write_cancellable(&self, buffer: &Buffer, bytes: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.device.write_cancellable(buffer, bytes, cancel)
    }

    fn read_cancellable(&self, buffer: &Buffer, cancel: &CancelToken) -> Result<Vec<u8>, DeviceError> {
        self.device.read_cancellable(buffer, cancel)
    }

    fn kept(&self, buffer: &Buffer, cancel: &CancelToken) -> Result<Option<Vec<u8>>, DeviceError> {
        self.device.kept(buffer, cancel)
    }

    fn load_cancellable(
        &self,
        program: Arc<Program>,
        meter: &Meter,
        cancel: &CancelToken,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let executable = self.device.load_cancellable(Arc::clone(&program), meter, cancel)?;
        let mut profile = lock(&self.profile);
        let number = profile.programs.len();
        profile.programs.push(program);
        let (device, began, profile) = (Arc::clone(&self.device), self.began, Arc::clone(&self.profile));
        Ok(Arc::new(Profiled { executable, device, number, began, profile }))
    }

    fn ways(&self) -> Ways {
        self.device.ways()
    }

    fn keep_ways(&self, ways: &Ways) {
        self.device.keep_ways(ways);
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }
}

impl Executable for Profiled {
    fn program(&self) -> &Program {
        self.executable.program()
    }

    fn dispatch_cancellable(
        &self,
        inputs: &[Buffer],
        variables: &[Buffer],
        cancel: &CancelToken,
    ) -> Result<Vec<Buffer>, DeviceError> {
        let count = self.program().kernels.len();
        if lock(&self.profile).kernels + count > KERNELS_MAX {
            return self.executable.dispatch_cancellable(inputs, variables, cancel);
        }
        // What was given to the device before is not this dispatch's.
        self.device.synchronize()?;
        let (began, at) = (Instant::now(), self.began.elapsed());
        cancel.check()?;
        let (outputs, kernels) = self.executable.profile(inputs, variables)?;
        self.device.synchronize()?;
        let mut profile = lock(&self.profile);
        profile.kernels += count;
        profile.dispatches.push(Dispatched { program: self.number, at, took: began.elapsed(), kernels });
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, GraphBuilder, Shape, verify};

    use super::*;
    use crate::cpu;

    #[test]
    fn what_has_no_room_on_the_device_has_none_on_the_profiler() {
        let options = cpu::Options { threads: Some(1), memory_bytes: Some(1000), ..cpu::Options::default() };
        let profiler = Profiler::new(cpu::open_with(options).unwrap());
        let refused = profiler.check_room(&"a model", 1001, &Meter::unlimited()).unwrap_err();
        assert!(matches!(refused, DeviceError::NoRoom { asked_bytes: 1001, .. }), "{refused}");
        assert!(profiler.keeps_elements());
    }

    #[test]
    fn every_dispatch_is_written_down_with_its_kernels() {
        let profiler = Profiler::new(cpu::open(Some(1)).unwrap());
        let mut g = GraphBuilder::new();
        let square = Descriptor::new(DType::F32, Shape::new([4, 4]).unwrap());
        let x = g.input("x", square.clone()).unwrap();
        let y = g.matmul(x, x).unwrap();
        g.output("y", y).unwrap();
        let program = saggar_compile::compile(&verify(g.finish()).unwrap(), &profiler.target()).unwrap();
        let meter = Meter::unlimited();
        let executable = profiler.load(Arc::new(program), &meter).unwrap();
        let x = profiler.allocate(&square, &meter).unwrap();
        profiler.write(&x, bytemuck::cast_slice(&[1.0_f32; 16])).unwrap();
        for _ in 0..2 {
            let outputs = executable.dispatch(std::slice::from_ref(&x), &[]).unwrap();
            assert_eq!(profiler.read(&outputs[0]).unwrap(), bytemuck::cast_slice::<f32, u8>(&[4.0; 16]));
        }
        let profile = profiler.profile();
        let [first, second] = &profile.dispatches[..] else { panic!("{profile:?}") };
        assert!(first.at + first.took <= second.at + second.took);
        let kernels = profile.programs[first.program].kernels.len();
        assert_eq!(second.kernels.as_ref().map(Vec::len), Some(kernels));
    }
}
