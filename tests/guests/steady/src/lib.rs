//! Trains for as many steps as it is told, each as long as it is told, and does what else a job may be tested with.
//!
//! Its model is a matrix that noise and momentum move, so that its bits tell whether a training went on exactly where it
//! was. Parameters: `steps`; `work`, matrix products in a step; `model`, what to publish; `fail_at`, the step to fail at;
//! `fail_until`, the attempt before which it fails there; `memory_mib`, memory to take after the step `memory_after`;
//! `write`, files to write, as `path=bytes`, separated by spaces; `diary`, a file that is written anew every 50 steps, with a
//! byte for each step; `secret`, the name of one to say; `count`, the mount point of a dataset whose items to count;
//! `nan_at`, the step whose loss is said to be none; `blow_up_at`, the step after which the matrix is infinite; `spin`, how
//! often to count to a million after each step, with the device idle; `series`, how many of each attempt's own to write at
//! each step; `words`, how long another line to log at each step; `complaint`, how long an error to end with.

use saggar_plugin::bindings::variables::Initializer;
use saggar_plugin::{DataType, Dataset, Error, Executable, Graph, Job, Params, Result, Variables, descriptor, info};

/// Rows and columns of the matrix.
const SIZE: u32 = 96;

/// The whole training.
///
/// # Errors
/// What the host refuses, and what `fail_at` asks for.
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
    let mut taken: Vec<Vec<u8>> = Vec::new();
    for step in start + 1..=steps {
        if taken.is_empty() && step > memory_after {
            taken = allocate(memory_mib);
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
    info(&format!("took {} MiB", taken.len()));
    Ok(())
}

/// Takes so much memory. It is written to, for memory that nobody touches is taken from nobody.
fn allocate(mib: u32) -> Vec<Vec<u8>> {
    (0..mib).map(|_| vec![1; 1 << 20]).collect()
}

/// Logs the step, and a line of so many letters where they are any.
fn log_step(step: u64, words: u32) {
    info(&format!("step {step}"));
    if words > 0 {
        info(&"w".repeat(words as usize));
    }
}

/// Makes the matrix infinite.
fn blow_up_graph(variables: &Variables) -> Result<Executable> {
    let matrix = variables.parameter("matrix", &[SIZE, SIZE], &Initializer::Zeros)?;
    let graph = Graph::for_training();
    let infinite = graph.variable(&matrix)?.add_scalar(f64::INFINITY)?;
    graph.assign(&matrix, &infinite)?;
    graph.build([("matrix", &infinite)])
}

/// One step: noise drives the matrix through `work` products, and momentum follows it.
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
