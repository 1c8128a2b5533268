//! Autotuning. For each large kernel, the candidates are benchmarked once per adapter, and the fastest is used from
//! then on. The choice is stored in a tuning file beside the pipeline cache, so that every process uses the same
//! candidate: candidates can sum in different orders.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_compile::Optimization;
use saggar_compile::cost::kernel_cost;
use saggar_compile::program::{Kernel, Program, ValueId, ValueLocation};
use saggar_tensor::{DType, GraphPort};

use super::context::GpuContext;
use super::executable;
use super::pipeline_cache::replace_file;
use super::scratch::GpuScratch;
use super::{storage_buffer, wgsl};
use saggar_device::backend::{DeviceBuffer, Executable as _, TuningRecords};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::half;
use saggar_device::meter::Meter;
use saggar_device::owner_cache::PerOwner;

/// Operations of the smallest kernel that is tuned: about 0.1 ms of an adapter's time. For smaller kernels, tuning
/// takes longer than it saves.
pub(super) const OPERATIONS_MIN: u64 = 1 << 31;
/// Limit of candidates benchmarked per kernel: those that the compiler estimates to be the fastest.
const CANDIDATES_MAX: usize = 4;
/// Candidates whose estimated time exceeds the best estimate by more than this factor are not benchmarked.
const ESTIMATED_COST_RATIO_MAX: usize = 4;
/// Runs per candidate; the shortest time counts.
const RUNS_PER_CANDIDATE: usize = 5;
/// A candidate replaces a better estimated one only if it saves more than 1/20 of that one's time.
const GAIN_DIVISOR_MIN: u32 = 20;
/// Limit of the time that a process spends on tuning.
const TUNING_TIME_MAX: Duration = Duration::from_secs(2);
/// Limit of kernels whose choice is stored.
const TUNED_KERNELS_MAX: usize = 4096;
/// Size limit of a tuning file, in bytes; a larger file is invalid.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Selects the kernel candidates of a device and remembers the choices.
#[derive(Debug, Default)]
pub(super) struct Autotuner {
    /// Operations of the smallest kernel that is tuned; `None` disables tuning.
    operations_min: Option<u64>,
    file: Option<PathBuf>,
    state: Mutex<AutotuneState>,
}

#[derive(Debug, Default)]
struct AutotuneState {
    choices: TuningRecords,
    spent: Duration,
}

impl Autotuner {
    /// Returns a tuner for kernels of at least `operations_min` operations, with the choices stored in `file`.
    pub(super) fn new(operations_min: Option<u64>, file: Option<PathBuf>) -> Autotuner {
        let stored = file.as_deref().map_or(Ok(TuningRecords::new()), read_tuning_file);
        let ways = stored.unwrap_or_else(|error| {
            let file = file.as_deref().unwrap_or(Path::new("")).display();
            tracing::warn!(%file, %error, "the tuning file is invalid; kernels are tuned again");
            TuningRecords::new()
        });
        Autotuner { operations_min, file, state: Mutex::new(AutotuneState { choices: ways, spent: Duration::ZERO }) }
    }

    /// Returns all choices made so far.
    pub(super) fn choices(&self) -> TuningRecords {
        self.state.lock().choices.clone()
    }

    /// Replaces the choices of these kernels with the given ones.
    pub(super) fn load_choices(&self, ways: &TuningRecords) {
        self.state.lock().choices.extend(ways.iter().map(|(kernel, way)| (kernel.clone(), way.clone())));
    }

    /// Returns the candidate for a program's kernel. Returns `None` if the compiler's default is used: the kernel has
    /// only one candidate, is too small or cannot be benchmarked, autotuning is switched off, or the limit of tuning time or of stored choices is
    /// reached. Device time and memory of the benchmark are charged to `owner`.
    ///
    /// # Errors
    /// Returns `Lost`.
    pub(super) fn choose_candidate(
        &self,
        context: &Arc<GpuContext>,
        scratches: &PerOwner<GpuScratch>,
        program: &Program,
        kernel: &Kernel,
        owner: &Meter,
    ) -> Result<Option<String>, DeviceError> {
        if !program.without.enables(Optimization::Autotune) {
            return Ok(None);
        }
        let is_large = self.operations_min.is_some_and(|least| kernel_cost(program, kernel).operations >= least);
        // Locked while tuning, so that no two threads tune the same kernel or disturb each other's timing.
        let mut state = self.state.lock();
        if !is_large && state.choices.is_empty() {
            return Ok(None);
        }
        let identity = program.kernel_identity(kernel);
        if let Some(way) = state.choices.get(&identity) {
            return Ok(Some(way.clone()));
        }
        if !is_large || state.spent > TUNING_TIME_MAX || state.choices.len() >= TUNED_KERNELS_MAX {
            return Ok(None);
        }
        let tuning = context.tuning.without(program.without);
        let Ok(mut ways) = wgsl::autotune_candidates(program, kernel, tuning) else { return Ok(None) };
        if ways.len() < 2 {
            return Ok(None);
        }
        let longest = ways[0].estimated_time.saturating_mul(ESTIMATED_COST_RATIO_MAX);
        ways.truncate(CANDIDATES_MAX);
        ways.retain(|way| way.estimated_time <= longest);
        let began = Instant::now();
        let fastest = benchmark_candidates(context, scratches, program, kernel, &ways, owner);
        state.spent += began.elapsed();
        let Some(way) = fastest? else { return Ok(None) };
        state.choices.insert(identity, way.clone());
        if let Some(file) = &self.file {
            match merge_into_tuning_file(file, &state.choices) {
                Ok(all) => state.choices = all,
                Err(error) => tracing::warn!(file = %file.display(), %error, "cannot write the tuning file"),
            }
        }
        Ok(Some(way))
    }
}

/// Benchmarks the candidates and returns the name of the fastest one. Returns `None` if the adapter has no timestamps,
/// the kernel cannot run alone, or every candidate failed, for example because memory is short.
///
/// # Errors
/// Returns `Lost`.
fn benchmark_candidates(
    context: &Arc<GpuContext>,
    scratches: &PerOwner<GpuScratch>,
    program: &Program,
    kernel: &Kernel,
    ways: &[wgsl::ShaderCandidate],
    owner: &Meter,
) -> Result<Option<String>, DeviceError> {
    let Some(alone) = isolate_kernel(program, kernel).map(Arc::new) else { return Ok(None) };
    let mut best: Option<(Duration, &str)> = None;
    for way in ways {
        let took = match benchmark_kernel(context, scratches, &alone, &way.name, owner) {
            Ok(Some(took)) => took,
            Ok(None) => return Ok(None),
            Err(error) => {
                context.device.ensure_alive()?;
                tracing::debug!(kernel = %kernel.label, way = %way.name, %error, "cannot benchmark the candidate");
                continue;
            }
        };
        tracing::debug!(kernel = %kernel.label, way = %way.name, seconds = took.as_secs_f64(), "candidate benchmarked");
        if best.is_none_or(|(least, _)| took + least / GAIN_DIVISOR_MIN < least) {
            best = Some((took, &way.name));
        }
    }
    Ok(best.map(|(_, name)| name.to_owned()))
}

/// Returns a program of this kernel alone with separate tensors, or `None` if the kernel overwrites a value it reads.
fn isolate_kernel(program: &Program, kernel: &Kernel) -> Option<Program> {
    let (reads, writes) = (kernel.body.read_values(), kernel.body.written_values());
    let place = |value: &ValueId| program.values[value.index()].place;
    if writes.iter().any(|written| reads.iter().any(|read| read == written || place(read) == place(written))) {
        return None;
    }
    let mut values = program.values.clone();
    for (number, read) in reads.iter().enumerate() {
        values[read.index()].place = ValueLocation::Input(number as u32);
    }
    for (number, written) in writes.iter().enumerate() {
        values[written.index()].place = ValueLocation::Output(number as u32);
    }
    let ports = |of: &[ValueId]| -> Vec<GraphPort> {
        let port = |value: &ValueId| GraphPort {
            name: format!("v{}", value.0),
            descriptor: program.values[value.index()].descriptor.clone(),
        };
        of.iter().map(port).collect()
    };
    Some(Program {
        values,
        slabs: Vec::new(),
        kernels: vec![kernel.clone()],
        inputs: ports(&reads),
        variables: Vec::new(),
        written_variables: Vec::new(),
        constants: Vec::new(),
        outputs: ports(&writes),
        without: program.without,
    })
}

/// Returns the shortest time of the kernel with this candidate, or `None` if the adapter has no timestamps.
///
/// # Errors
/// Returns the errors of loading and running the program.
fn benchmark_kernel(
    context: &Arc<GpuContext>,
    scratches: &PerOwner<GpuScratch>,
    program: &Arc<Program>,
    way: &str,
    owner: &Meter,
) -> Result<Option<Duration>, DeviceError> {
    let choices = [Some(way.to_owned())];
    let executable = executable::load(context, scratches, Arc::clone(program), owner, &choices, &CancelToken::never())?;
    let input = |port| benchmark_input(context, port, owner);
    let inputs = program.inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    executable.dispatch(&inputs, &[])?;
    let mut least = None;
    for _ in 0..RUNS_PER_CANDIDATE {
        let Some(took) = executable.profile(&inputs, &[])?.1 else { return Ok(None) };
        let took = took.iter().sum::<Duration>();
        least = Some(least.map_or(took, |least: Duration| least.min(took)));
    }
    Ok(least)
}

/// Returns a tensor of varied numbers, because adapters multiply zeros faster.
fn benchmark_input(context: &Arc<GpuContext>, port: &GraphPort, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
    let descriptor = &port.descriptor;
    let memory = storage_buffer::allocate_tensor(context, &port.name, descriptor, meter)?;
    let number = |at: usize| (at as u32).wrapping_mul(2_654_435_761) >> 8;
    let float = |at: usize| number(at) as f32 / 8_388_608.0 - 1.0;
    let elements = 0..descriptor.shape.elements();
    let bytes: Vec<u8> = match descriptor.dtype {
        DType::F32 => elements.flat_map(|at| float(at).to_le_bytes()).collect(),
        DType::F16 => elements.flat_map(|at| half::from_f32(float(at)).to_le_bytes()).collect(),
        // Flags and indices: zeros are always in range.
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => vec![0; descriptor.bytes()],
    };
    let words = storage_buffer::widen_to_words(&context.target(), descriptor.dtype, &bytes);
    memory.write(&words, &CancelToken::never())?;
    Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(memory)))
}

/// Returns the choices in a file; none if the file does not exist.
fn read_tuning_file(file: &Path) -> io::Result<TuningRecords> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TuningRecords::new()),
        Err(error) => return Err(error),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(io::Error::other("it is too large")),
        Ok(_) => {}
    }
    let ways: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(file)?)?;
    Ok(ways.into_iter().take(TUNED_KERNELS_MAX).collect())
}

/// Adds `ways` to a file atomically and returns its new contents. Choices that are already in the file are kept.
fn merge_into_tuning_file(file: &Path, ways: &TuningRecords) -> io::Result<TuningRecords> {
    let mut all = ways.clone();
    // An invalid file is rewritten.
    all.extend(read_tuning_file(file).unwrap_or_default());
    replace_file(file, &serde_json::to_vec_pretty(&all)?)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning_choices(pairs: &[(&str, &str)]) -> TuningRecords {
        pairs.iter().map(|&(kernel, way)| (kernel.to_owned(), way.to_owned())).collect()
    }

    #[test]
    fn merging_a_tuning_file_keeps_the_choice_found_first() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ways");
        assert_eq!(read_tuning_file(&file).unwrap(), TuningRecords::new());
        merge_into_tuning_file(&file, &tuning_choices(&[("a", "lanes"), ("b", "lanes")])).unwrap();
        let all = merge_into_tuning_file(&file, &tuning_choices(&[("b", "matrices"), ("c", "matrices")])).unwrap();
        assert_eq!(all, tuning_choices(&[("a", "lanes"), ("b", "lanes"), ("c", "matrices")]));
        assert_eq!(read_tuning_file(&file).unwrap(), all);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "the temporary file is renamed");
    }

    #[test]
    fn a_corrupt_tuning_file_is_ignored_and_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ways");
        for damaged in ["", "{", "[1]", r#"{"a": 3}"#] {
            std::fs::write(&file, damaged).unwrap();
            assert!(read_tuning_file(&file).is_err(), "{damaged}");
            assert_eq!(Autotuner::new(None, Some(file.clone())).choices(), TuningRecords::new());
            let all = merge_into_tuning_file(&file, &tuning_choices(&[("a", "lanes")])).unwrap();
            assert_eq!(read_tuning_file(&file).unwrap(), all);
        }
    }
}
