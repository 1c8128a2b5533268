//! Which of several ways a kernel is computed in, where it is large: each is tried out once on this adapter, and the fastest one
//! is taken from then on. It is kept in a file beside the driver's compiled shaders, so that every process takes the same one:
//! another way may sum in another order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saggar_compile::cost::cost;
use saggar_compile::program::{Kernel, Place, Program, ValueId};
use saggar_compile::wgsl;
use saggar_tensor::{DType, Port};

use super::context::{Context, lock};
use super::executable::load_in;
use super::kept::replace;
use crate::backend::{Buffer, Executable as _, Ways};
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::half;
use crate::meter::Meter;

/// Operations of the smallest kernel that is tried out, a tenth of a millisecond of an adapter's: for smaller ones, trying
/// takes longer than what is gained by it.
pub(super) const OPERATIONS_MIN: u64 = 1 << 31;
/// Ways that are tried for one kernel: the best by the compiler's figures.
const TRIED_MAX: usize = 4;
/// Ways that would take so many times as long as the best, by those figures, are not tried.
const TIMES_MAX: usize = 4;
/// How often each is timed; the best time counts.
const RUNS: usize = 5;
/// Another way than the first is taken where it spares more than one part in so many.
const SPARED_PART: u32 = 20;
/// Time that a process spends on trials, all together.
const SPENT_MAX: Duration = Duration::from_secs(2);
/// Kernels whose way is remembered.
const KEPT_MAX: usize = 4096;
/// A larger file is none of ours.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The ways of a device's kernels.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// Operations of the smallest kernel that is tried out; none where none is.
    operations_min: Option<u64>,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ways: Ways,
    spent: Duration,
}

impl Trials {
    /// For kernels of so many operations, with what `file` has of other processes.
    pub(super) fn new(operations_min: Option<u64>, file: Option<PathBuf>) -> Trials {
        let kept = file.as_deref().map_or(Ok(Ways::new()), read);
        let ways = kept.unwrap_or_else(|error| {
            let file = file.as_deref().unwrap_or(Path::new("")).display();
            tracing::warn!(%file, %error, "kept ways of kernels are not usable; they are tried out anew");
            Ways::new()
        });
        Trials { operations_min, file, state: Mutex::new(State { ways, spent: Duration::ZERO }) }
    }

    /// All that were taken so far.
    pub(super) fn ways(&self) -> Ways {
        lock(&self.state).ways.clone()
    }

    /// Takes these from now on, whatever was found out.
    pub(super) fn keep(&self, ways: &Ways) {
        lock(&self.state).ways.extend(ways.iter().map(|(kernel, way)| (kernel.clone(), way.clone())));
    }

    /// The way of a program's kernel; none where there is one only, or nobody knows better than the compiler. What trying takes is
    /// the owner's, whose program it is for.
    ///
    /// # Errors
    /// `Lost`.
    pub(super) fn way(
        &self,
        context: &Arc<Context>,
        program: &Program,
        kernel: &Kernel,
        owner: &Meter,
    ) -> Result<Option<String>, DeviceError> {
        let is_large = self.operations_min.is_some_and(|least| cost(program, kernel).operations >= least);
        // Held meanwhile, so that nobody else tries the same, or at the same time.
        let mut state = lock(&self.state);
        if !is_large && state.ways.is_empty() {
            return Ok(None);
        }
        let identity = program.kernel_identity(kernel);
        if let Some(way) = state.ways.get(&identity) {
            return Ok(Some(way.clone()));
        }
        if !is_large || state.spent > SPENT_MAX || state.ways.len() >= KEPT_MAX {
            return Ok(None);
        }
        let Ok(mut ways) = wgsl::ways(program, kernel, context.tuning) else { return Ok(None) };
        if ways.len() < 2 {
            return Ok(None);
        }
        let longest = ways[0].time.saturating_mul(TIMES_MAX);
        ways.truncate(TRIED_MAX);
        ways.retain(|way| way.time <= longest);
        let began = Instant::now();
        let taken = fastest(context, program, kernel, &ways, owner);
        state.spent += began.elapsed();
        let Some(way) = taken? else { return Ok(None) };
        state.ways.insert(identity, way.clone());
        if let Some(file) = &self.file {
            match merged(file, &state.ways) {
                Ok(all) => state.ways = all,
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
fn fastest(
    context: &Arc<Context>,
    program: &Program,
    kernel: &Kernel,
    ways: &[wgsl::Way],
    owner: &Meter,
) -> Result<Option<String>, DeviceError> {
    let Some(alone) = alone(program, kernel).map(Arc::new) else { return Ok(None) };
    let mut best: Option<(Duration, &str)> = None;
    for way in ways {
        let took = match time(context, &alone, &way.name, owner) {
            Ok(Some(took)) => took,
            Ok(None) => return Ok(None),
            Err(error) => {
                context.alive()?;
                tracing::debug!(kernel = %kernel.label, way = %way.name, %error, "a way was not tried");
                continue;
            }
        };
        tracing::debug!(kernel = %kernel.label, way = %way.name, seconds = took.as_secs_f64(), "a way was tried");
        if best.is_none_or(|(least, _)| took + least / SPARED_PART < least) {
            best = Some((took, &way.name));
        }
    }
    Ok(best.map(|(_, name)| name.to_owned()))
}

/// A program of this kernel alone, on tensors of its own; none where it writes over what it reads.
fn alone(program: &Program, kernel: &Kernel) -> Option<Program> {
    let (reads, writes) = (kernel.body.reads(), kernel.body.writes());
    let place = |value: &ValueId| program.values[value.index()].place;
    if writes.iter().any(|written| reads.iter().any(|read| read == written || place(read) == place(written))) {
        return None;
    }
    let mut values = program.values.clone();
    for (number, read) in reads.iter().enumerate() {
        values[read.index()].place = Place::Input(number as u32);
    }
    for (number, written) in writes.iter().enumerate() {
        values[written.index()].place = Place::Output(number as u32);
    }
    let ports = |of: &[ValueId]| -> Vec<Port> {
        let port = |value: &ValueId| Port {
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
fn time(
    context: &Arc<Context>,
    program: &Arc<Program>,
    way: &str,
    owner: &Meter,
) -> Result<Option<Duration>, DeviceError> {
    let executable = load_in(context, Arc::clone(program), owner, &[Some(way.to_owned())], &CancelToken::never())?;
    let inputs = program.inputs.iter().map(|port| input(context, port, owner)).collect::<Result<Vec<_>, _>>()?;
    executable.dispatch(&inputs, &[])?;
    let mut least = None;
    for _ in 0..RUNS {
        let Some(took) = executable.profile(&inputs, &[])?.1 else { return Ok(None) };
        let took = took.iter().sum::<Duration>();
        least = Some(least.map_or(took, |least: Duration| least.min(took)));
    }
    Ok(least)
}

/// A tensor of numbers that are not alike: adapters multiply zeros faster.
fn input(context: &Arc<Context>, port: &Port, meter: &Meter) -> Result<Buffer, DeviceError> {
    let descriptor = &port.descriptor;
    let memory = super::memory::tensor(context, &port.name, descriptor, meter)?;
    let number = |at: usize| (at as u32).wrapping_mul(2_654_435_761) >> 8;
    let float = |at: usize| number(at) as f32 / 8_388_608.0 - 1.0;
    let elements = 0..descriptor.shape.elements();
    let bytes: Vec<u8> = match descriptor.dtype {
        DType::F32 => elements.flat_map(|at| float(at).to_le_bytes()).collect(),
        DType::F16 => elements.flat_map(|at| half::from_f32(float(at)).to_le_bytes()).collect(),
        // Flags and indices, which stay in their range.
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => vec![0; descriptor.bytes()],
    };
    let words = super::memory::widen(&context.target(), descriptor.dtype, &bytes);
    context.write(&memory, &words, &CancelToken::never())?;
    Ok(Buffer::new(descriptor.clone(), Arc::new(memory)))
}

/// What is in a file; nothing where there is none.
fn read(file: &Path) -> io::Result<Ways> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ways::new()),
        Err(error) => return Err(error),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(io::Error::other("it is too large")),
        Ok(_) => {}
    }
    let ways: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(file)?)?;
    Ok(ways.into_iter().take(KEPT_MAX).collect())
}

/// Adds `ways` to a file, in one step; what it has then, where those of others count.
fn merged(file: &Path, ways: &Ways) -> io::Result<Ways> {
    let mut all = ways.clone();
    // What cannot be read is written anew.
    all.extend(read(file).unwrap_or_default());
    replace(file, &serde_json::to_vec_pretty(&all)?)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(pairs: &[(&str, &str)]) -> Ways {
        pairs.iter().map(|&(kernel, way)| (kernel.to_owned(), way.to_owned())).collect()
    }

    #[test]
    fn a_file_keeps_what_was_found_first() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ways");
        assert_eq!(read(&file).unwrap(), Ways::new());
        merged(&file, &ways(&[("a", "lanes"), ("b", "lanes")])).unwrap();
        let all = merged(&file, &ways(&[("b", "matrices"), ("c", "matrices")])).unwrap();
        assert_eq!(all, ways(&[("a", "lanes"), ("b", "lanes"), ("c", "matrices")]));
        assert_eq!(read(&file).unwrap(), all);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "what is written is renamed");
    }

    #[test]
    fn a_damaged_file_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ways");
        for damaged in ["", "{", "[1]", r#"{"a": 3}"#] {
            std::fs::write(&file, damaged).unwrap();
            assert!(read(&file).is_err(), "{damaged}");
            assert_eq!(Trials::new(None, Some(file.clone())).ways(), Ways::new());
            let all = merged(&file, &ways(&[("a", "lanes")])).unwrap();
            assert_eq!(read(&file).unwrap(), all);
        }
    }
}
