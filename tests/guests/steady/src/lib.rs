//! A training with a given number of steps of a given duration, and with the other features of jobs that tests need.
//!
//! Its model is a matrix that noise and momentum move, so its bits show whether a training resumed exactly. Parameters:
//! `steps`; `work`, matrix products per step; `model`, the name to publish under; `fail_at`, the step to fail at;
//! `fail_until`, the attempt from which it no longer fails; `memory_mib`, memory to allocate after the step
//! `memory_after`; `write`, files to write, as `path=bytes`, separated by spaces; `diary`, a file that is rewritten
//! every 50 steps, with a byte per step; `secret`, the name of a secret to log; `count`, the mount point of a dataset
//! whose items to count; `nan_at`, the step that reports a loss of NaN; `blow_up_at`, the step after which the matrix
//! is infinite; `spin`, millions of iterations to count after each step, with the device idle; `series`, metric series
//! of this attempt to write at each step; `words`, the length of another line to log at each step; `complaint`, the
//! length of an error to end with; `items`, whether to log images, tables and histograms at each step; `flood`, the
//! number of histograms to log at each step; `bad_item`, an item to log that the host refuses.

mod logged;

use saggar_plugin::bindings::variables::Initializer;
use saggar_plugin::{DataType, Dataset, Error, Executable, Graph, Job, Params, Result, Variables, descriptor, info};

use logged::ItemLog;

/// The rows and columns of the matrix.
const SIZE: u32 = 96;

/// Runs the training.
///
/// # Errors
/// Returns the host's error if the host refuses a call, or the error that `fail_at` or `complaint` asks for.
pub fn train(job: &Job) -> Result<()> {
    let steps: u64 = job.param("steps", 100)?;
    let work: u32 = job.param("work", 1)?;
    let model: Option<String> = job.params().optional("model")?;
    let fail_at: u64 = job.param("fail_at", 0)?;
    let fail_until: u32 = job.param("fail_until", u32::MAX)?;
    let memory_mib: u32 = job.param("memory_mib", 0)?;
    let memory_after: u64 = job.param("memory_after", 0)?;
    let write: String = job.param("write", String::new())?;
    let diary: Option<String> = job.params().optional("diary")?;
    let secret: Option<String> = job.params().optional("secret")?;
    let count: Option<String> = job.params().optional("count")?;
    let nan_at: u64 = job.param("nan_at", 0)?;
    let blow_up_at: u64 = job.param("blow_up_at", 0)?;
    let spin: u32 = job.param("spin", 0)?;
    let series: u32 = job.param("series", 0)?;
    let complaint: u32 = job.param("complaint", 0)?;
    let words: u32 = job.param("words", 0)?;
    let items = ItemLog::from_params(job)?;
    job.params().check()?;

    let variables = job.variables();
    let graph = step_graph(&variables, work)?;
    let blow_up = (blow_up_at > 0).then(|| blow_up_graph(&variables)).transpose()?;
    let start = job.resume(&variables, &[])?.map_or(0, |(step, _)| step);
    if let Some(name) = secret {
        info(&format!("the secret is {}", job.secret(&name)?));
    }
    if let Some(mount) = count {
        let items = Dataset::open(&mount)?.count(None)?;
        info(&format!("{mount} has {items} items"));
    }
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for step in start + 1..=steps {
        if blocks.is_empty() && step > memory_after {
            blocks = allocate(memory_mib);
        }
        for output in graph.dispatch([])? {
            let value = output.tensor.read_f32()?.first().copied().unwrap_or(f32::NAN);
            let value = if step == nan_at { f32::NAN } else { value };
            job.metric(step, &output.name, f64::from(value));
        }
        if let Some(graph) = blow_up.as_ref().filter(|_| step == blow_up_at) {
            graph.dispatch([])?;
        }
        for count in 0..u64::from(spin) * 1_000_000 {
            std::hint::black_box(count);
        }
        job.metric(step, "accuracy", step as f64 / steps as f64);
        for number in 0..series {
            job.metric(step, &format!("attempt-{}/{number}", job.attempt()), f64::from(number));
        }
        items.log(job, step)?;
        job.progress(step, steps);
        log_step(step, words);
        if step == fail_at && job.attempt() < fail_until {
            return Err(Error::NoSuch { what: "way on", name: format!("from step {step}"), known: Vec::new() });
        }
        if let Some(path) = diary.as_ref().filter(|_| step.is_multiple_of(50)) {
            job.write_output(path, &vec![b'x'; usize::try_from(step).unwrap_or(0)])?;
        }
        job.boundary(step, &variables, &[], &step.to_le_bytes())?;
    }
    if complaint > 0 {
        return Err(Error::NoSuch { what: "end", name: "!".repeat(complaint as usize), known: Vec::new() });
    }
    for file in write.split_whitespace() {
        let (path, bytes) = file.split_once('=').unwrap_or((file, "1"));
        job.write_output(path, &vec![b'x'; bytes.parse().unwrap_or(1)])?;
    }
    if let Some(model) = model {
        job.publish(&model, &variables, &Params::new())?;
    }
    info(&format!("took {} MiB", blocks.len()));
    Ok(())
}

/// Allocates memory and writes to it, because untouched memory is not really allocated.
fn allocate(mib: u32) -> Vec<Vec<u8>> {
    (0..mib).map(|_| vec![1; 1 << 20]).collect()
}

/// Logs the step, and a line of `words` letters unless it is 0.
fn log_step(step: u64, words: u32) {
    info(&format!("step {step}"));
    if words > 0 {
        info(&"w".repeat(words as usize));
    }
}

/// Builds the graph that makes the matrix infinite.
fn blow_up_graph(variables: &Variables) -> Result<Executable> {
    let matrix = variables.parameter("matrix", &[SIZE, SIZE], &Initializer::Zeros)?;
    let graph = Graph::for_training();
    let infinite = graph.variable(&matrix)?.add_scalar(f64::INFINITY)?;
    graph.assign(&matrix, &infinite)?;
    graph.build([("matrix", &infinite)])
}

/// Builds one step: noise drives the matrix through `work` products, and momentum follows it.
fn step_graph(variables: &Variables, work: u32) -> Result<Executable> {
    let shape = [SIZE, SIZE];
    let matrix = variables.parameter("matrix", &shape, &Initializer::Zeros)?;
    let momentum = variables.training("momentum", descriptor(DataType::Float32, shape))?;
    let graph = Graph::for_training();
    let (key, stream) = graph.random_stream(variables)?;
    let noise = graph.random_normal(&shape, &key, stream)?;
    let before = graph.variable(&matrix)?;
    let mut value = before.add(&noise.mul_scalar(0.1)?)?;
    for _ in 0..work {
        value = value.matmul(&value)?.mul_scalar(0.1)?.tanh()?;
    }
    let moved = graph.variable(&momentum)?.mul_scalar(0.9)?.add(&value)?;
    graph.assign(&momentum, &moved)?;
    graph.assign(&matrix, &before.mul_scalar(0.5)?.add(&moved.mul_scalar(0.01)?)?)?;
    let loss = value.mul(&value)?.reduce_mean(&[0, 1], false)?;
    graph.build([("loss", &loss)])
}

saggar_plugin::export!(train: train);
