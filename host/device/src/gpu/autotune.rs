//! Which of several ways a kernel is computed in, where it is large: each is tried out once on this adapter, and the fastest one
//! is taken from then on. It is kept in a file beside the driver's compiled shaders, so that every process takes the same one:
//! another way may sum in another order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saggar_compile::cost::kernel_cost;
use saggar_compile::program::{Kernel, Program, ValueId, ValueLocation};
use saggar_compile::wgsl;
use saggar_tensor::{DType, GraphPort};

use super::context::{GpuContext, lock};
use super::executable::load_with_choices;
use super::pipeline_cache::replace_file;
use crate::backend::{DeviceBuffer, Executable as _, TuningRecords};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::half;
use crate::meter::Meter;

/// Operations of the smallest kernel that is tried out, a tenth of a millisecond of an adapter's: for smaller ones, trying
/// takes longer than what is gained by it.
pub(super) const OPERATIONS_MIN: u64 = 1 << 31;
/// Ways that are tried for one kernel: the best by the compiler's figures.
const CANDIDATES_MAX: usize = 4;
/// Ways that would take so many times as long as the best, by those figures, are not tried.
const ESTIMATED_COST_RATIO_MAX: usize = 4;
/// How often each is timed; the best time counts.
const RUNS_PER_CANDIDATE: usize = 5;
/// Another way than the first is taken where it spares more than one part in so many.
const GAIN_DIVISOR_MIN: u32 = 20;
/// Time that a process spends on trials, all together.
const TUNING_TIME_MAX: Duration = Duration::from_secs(2);
/// Kernels whose way is remembered.
const TUNED_KERNELS_MAX: usize = 4096;
/// A larger file is none of ours.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The ways of a device's kernels.
#[derive(Debug, Default)]
pub(super) struct Autotuner {
    /// Operations of the smallest kernel that is tried out; none where none is.
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
    /// For kernels of so many operations, with what `file` has of other processes.
    pub(super) fn new(operations_min: Option<u64>, file: Option<PathBuf>) -> Autotuner {
        let kept = file.as_deref().map_or(Ok(TuningRecords::new()), read_tuning_file);
        let ways = kept.unwrap_or_else(|error| {
            let file = file.as_deref().unwrap_or(Path::new("")).display();
            tracing::warn!(%file, %error, "kept ways of kernels are not usable; they are tried out anew");
            TuningRecords::new()
        });
        Autotuner { operations_min, file, state: Mutex::new(AutotuneState { choices: ways, spent: Duration::ZERO }) }
    }

    /// All that were taken so far.
    pub(super) fn choices(&self) -> TuningRecords {
        lock(&self.state).choices.clone()
    }

    /// Takes these from now on, whatever was found out.
    pub(super) fn load_choices(&self, ways: &TuningRecords) {
        lock(&self.state).choices.extend(ways.iter().map(|(kernel, way)| (kernel.clone(), way.clone())));
    }

    /// The way of a program's kernel; none where there is one only, or nobody knows better than the compiler. What trying takes is
    /// the owner's, whose program it is for.
    ///
    /// # Errors
    /// `Lost`.
    pub(super) fn choose_candidate(
        &self,
        context: &Arc<GpuContext>,
        program: &Program,
        kernel: &Kernel,
        owner: &Meter,
    ) -> Result<Option<String>, DeviceError> {
        let is_large = self.operations_min.is_some_and(|least| kernel_cost(program, kernel).operations >= least);
        // Held meanwhile, so that nobody else tries the same, or at the same time.
        let mut state = lock(&self.state);
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
        let Ok(mut ways) = wgsl::autotune_candidates(program, kernel, context.tuning) else { return Ok(None) };
        if ways.len() < 2 {
            return Ok(None);
        }
        let longest = ways[0].estimated_time.saturating_mul(ESTIMATED_COST_RATIO_MAX);
        ways.truncate(CANDIDATES_MAX);
        ways.retain(|way| way.estimated_time <= longest);
        let began = Instant::now();
        let taken = benchmark_candidates(context, program, kernel, &ways, owner);
        state.spent += began.elapsed();
        let Some(way) = taken? else { return Ok(None) };
        state.choices.insert(identity, way.clone());
        if let Some(file) = &self.file {
            match merge_into_tuning_file(file, &state.choices) {
                Ok(all) => state.choices = all,
                Err(error) => tracing::warn!(file = %file.display(), %error, "ways of kernels are not kept"),
            }
        }
        Ok(Some(way))
    }
}

/// The way that took least; none where the device cannot tell, or has no room to try.
///
/// # Errors
/// `Lost`.
fn benchmark_candidates(
    context: &Arc<GpuContext>,
    program: &Program,
    kernel: &Kernel,
    ways: &[wgsl::ShaderCandidate],
    owner: &Meter,
) -> Result<Option<String>, DeviceError> {
    let Some(alone) = isolate_kernel(program, kernel).map(Arc::new) else { return Ok(None) };
    let mut best: Option<(Duration, &str)> = None;
    for way in ways {
        let took = match benchmark_kernel(context, &alone, &way.name, owner) {
            Ok(Some(took)) => took,
            Ok(None) => return Ok(None),
            Err(error) => {
                context.ensure_alive()?;
                tracing::debug!(kernel = %kernel.label, way = %way.name, %error, "a way was not tried");
                continue;
            }
        };
        tracing::debug!(kernel = %kernel.label, way = %way.name, seconds = took.as_secs_f64(), "a way was tried");
        if best.is_none_or(|(least, _)| took + least / GAIN_DIVISOR_MIN < least) {
            best = Some((took, &way.name));
        }
    }
    Ok(best.map(|(_, name)| name.to_owned()))
}

/// A program of this kernel alone, on tensors of its own; none where it writes over what it reads.
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
    })
}

/// What the kernel takes in this way; none where the adapter has no timestamps.
///
/// # Errors
/// Those of loading and running it.
fn benchmark_kernel(
    context: &Arc<GpuContext>,
    program: &Arc<Program>,
    way: &str,
    owner: &Meter,
) -> Result<Option<Duration>, DeviceError> {
    let executable =
        load_with_choices(context, Arc::clone(program), owner, &[Some(way.to_owned())], &CancelToken::never())?;
    let inputs =
        program.inputs.iter().map(|port| benchmark_input(context, port, owner)).collect::<Result<Vec<_>, _>>()?;
    executable.dispatch(&inputs, &[])?;
    let mut least = None;
    for _ in 0..RUNS_PER_CANDIDATE {
        let Some(took) = executable.profile(&inputs, &[])?.1 else { return Ok(None) };
        let took = took.iter().sum::<Duration>();
        least = Some(least.map_or(took, |least: Duration| least.min(took)));
    }
    Ok(least)
}

/// A tensor of numbers that are not alike: adapters multiply zeros faster.
fn benchmark_input(context: &Arc<GpuContext>, port: &GraphPort, meter: &Meter) -> Result<DeviceBuffer, DeviceError> {
    let descriptor = &port.descriptor;
    let memory = super::storage_buffer::allocate_tensor(context, &port.name, descriptor, meter)?;
    let number = |at: usize| (at as u32).wrapping_mul(2_654_435_761) >> 8;
    let float = |at: usize| number(at) as f32 / 8_388_608.0 - 1.0;
    let elements = 0..descriptor.shape.elements();
    let bytes: Vec<u8> = match descriptor.dtype {
        DType::F32 => elements.flat_map(|at| float(at).to_le_bytes()).collect(),
        DType::F16 => elements.flat_map(|at| half::from_f32(float(at)).to_le_bytes()).collect(),
        // Flags and indices, which stay in their range.
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => vec![0; descriptor.bytes()],
    };
    let words = super::storage_buffer::widen_to_words(&context.target(), descriptor.dtype, &bytes);
    context.write(&memory, &words, &CancelToken::never())?;
    Ok(DeviceBuffer::new(descriptor.clone(), Arc::new(memory)))
}

/// What is in a file; nothing where there is none.
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

/// Adds `ways` to a file, in one step; what it has then, where those of others count.
fn merge_into_tuning_file(file: &Path, ways: &TuningRecords) -> io::Result<TuningRecords> {
    let mut all = ways.clone();
    // What cannot be read is written anew.
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
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "what is written is renamed");
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
