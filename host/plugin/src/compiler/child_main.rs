//! Child side of a compilation: reads one request from standard input, runs it within limits, and writes the answer to
//! standard output.

use std::fmt::Display;
use std::io::{BufWriter, Write as _};

use saggar_device::Meter;
use saggar_store::checkpoint::SavedVariable;
use wasmtime::Engine;

use super::frame::{AnswerStatus, read_request, write_answer};
use super::graph;
use super::protocol::{
    COMPONENT, ChildOptions, GRAPH, IMPORT, ImportAnswerHeader, ImportRequestHeader, VariableHeader,
};
use super::refusal::ChildRefusal;
use super::resource_limits::{exit_when_stdin_closes, limit_memory, limit_processor};
use crate::engine::{PluginEngine, PluginEngineConfig, new_engine};
use crate::error::PluginError;
use crate::import::import;
use crate::model::model_limits::ModelLimits;

/// Instances of an engine in a child: an import creates one.
const INSTANCES_MAX: u32 = 1;
/// Device threads in a child: an import writes weights to a device.
const DEVICE_THREADS: usize = 1;

/// Runs the request on standard input and writes the answer to standard output. Returns the process's exit code. Only a
/// compile child calls this, as its whole work: it limits the process and ends it when standard input is closed.
pub fn run_child(options: &ChildOptions) -> i32 {
    limit_processor(options.cpu_seconds);
    let done = ChildTask::new(options).map_err(ChildTaskError::from).and_then(|worker| {
        limit_memory(options.memory_bytes);
        let parts = read_request(&mut std::io::stdin().lock()).map_err(ChildTaskError::from_io)?;
        exit_when_stdin_closes();
        worker.run(parts)
    });
    let mut output = BufWriter::new(std::io::stdout().lock());
    let written = match done {
        Ok(parts) => {
            let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
            write_answer(&mut output, AnswerStatus::Done, &parts)
        }
        Err(ChildTaskError::OutOfMemory) => write_answer(&mut output, AnswerStatus::OutOfMemory, &[]),
        Err(ChildTaskError::Refused(refusal)) => {
            let refusal = serde_json::to_vec(&refusal).expect("a refusal is plain data");
            write_answer(&mut output, AnswerStatus::Refused, &[&refusal])
        }
    };
    // The parent kills a child that has answered; until then it keeps the child's standard input open.
    match written.and_then(|()| output.flush()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Parts of an answer.
type AnswerChunks = Vec<bytes::Bytes>;

/// Reasons why there is no result.
enum ChildTaskError {
    Refused(ChildRefusal),
    OutOfMemory,
}

impl ChildTaskError {
    fn from_io(error: std::io::Error) -> ChildTaskError {
        match error.kind() {
            std::io::ErrorKind::OutOfMemory => ChildTaskError::OutOfMemory,
            _ => ChildTaskError::Refused(ChildRefusal::other(error)),
        }
    }

    /// Maps a compiler error to a refusal of the component, or to `OutOfMemory` if memory was the cause.
    fn from_compiler(error: &wasmtime::Error) -> ChildTaskError {
        let lacks_memory = |cause: &dyn Display| {
            let cause = cause.to_string();
            cause.contains("Cannot allocate memory") || cause.contains("out of memory")
        };
        if error.chain().any(|cause| lacks_memory(&cause)) {
            return ChildTaskError::OutOfMemory;
        }
        ChildTaskError::Refused(ChildRefusal::Malformed { reason: error.root_cause().to_string() })
    }
}

impl From<PluginError> for ChildTaskError {
    fn from(error: PluginError) -> ChildTaskError {
        ChildTaskError::Refused(error.into())
    }
}

/// The state that is set up before memory is limited.
enum ChildTask {
    Component(Engine),
    Import(PluginEngine),
    Graph,
}

impl ChildTask {
    fn new(options: &ChildOptions) -> Result<ChildTask, PluginError> {
        match options.kind.as_str() {
            COMPONENT => Ok(ChildTask::Component(new_engine(INSTANCES_MAX)?)),
            IMPORT => {
                let cache_dir = options.cache_dir.clone();
                let config =
                    PluginEngineConfig { cache_dir, instances_max: INSTANCES_MAX, ..PluginEngineConfig::default() };
                Ok(ChildTask::Import(PluginEngine::new(config)?))
            }
            GRAPH => Ok(ChildTask::Graph),
            other => Err(PluginError::engine(format!("unknown kind of request for a compile child: {other}"))),
        }
    }

    fn run(self, parts: Vec<Vec<u8>>) -> Result<AnswerChunks, ChildTaskError> {
        match self {
            ChildTask::Component(engine) => {
                let [wasm] = expect_parts(parts)?;
                let code = engine.precompile_component(&wasm).map_err(|error| ChildTaskError::from_compiler(&error))?;
                Ok(vec![code.into()])
            }
            ChildTask::Import(host) => import_file(&host, expect_parts(parts)?),
            ChildTask::Graph => graph::compile_request(parts).map_err(ChildTaskError::Refused),
        }
    }
}

fn expect_parts<const N: usize>(parts: Vec<Vec<u8>>) -> Result<[Vec<u8>; N], ChildTaskError> {
    parts
        .try_into()
        .map_err(|_| ChildTaskError::Refused(ChildRefusal::other("unexpected number of parts in the request")))
}

fn import_file(host: &PluginEngine, [header, component, file]: [Vec<u8>; 3]) -> Result<AnswerChunks, ChildTaskError> {
    let other = |error: serde_json::Error| ChildTaskError::Refused(ChildRefusal::other(error));
    let ImportRequestHeader { options, time } = serde_json::from_slice(&header).map_err(other)?;
    let plugin = host.compile(&component)?;
    // The weights are only written and read back, which the CPU device does without drivers.
    let device = saggar_cpu::open(Some(DEVICE_THREADS)).map_err(PluginError::from)?;
    let limits = ModelLimits { load_time: time, ..ModelLimits::default() };
    let model = import(host, &plugin, &file, &options, device, Meter::unlimited(), limits)?;
    let describe = |it: &SavedVariable| VariableHeader {
        name: it.name.clone(),
        kind: it.kind,
        descriptor: it.descriptor.clone(),
        bytes: it.bytes.len() as u64,
    };
    let header = ImportAnswerHeader { config: model.config, variables: model.variables.iter().map(describe).collect() };
    let header = serde_json::to_vec(&header).map_err(other)?;
    let length = (header.len() as u64).to_le_bytes().to_vec();
    let mut pieces = vec![length.into(), header.into()];
    pieces.extend(model.variables.into_iter().map(|variable| variable.bytes));
    Ok(pieces)
}
