//! The parent of compile children: starts one for each request, within limits on their memory, time and number.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saggar_compile::{CompileTarget, Program};
use saggar_device::available_host_bytes;
use saggar_store::checkpoint::SavedVariable;
use saggar_tensor::VerifiedGraph;

use super::child_process::{self, ChildError, ChildRequest};
use super::frame::AnswerPayload;
use super::graph;
use super::protocol::{CACHE_FLAG, COMPONENT, GRAPH, IMPORT, ImportAnswerHeader, ImportRequestHeader, VariableHeader};
use super::refusal::ChildRefusal;
use super::slots::{AcquireSlotError, CompileSlots};
use crate::error::PluginError;
use crate::guest_error_code::GuestErrorCode;
use crate::host_error::{HostError, ReturnedError};
use crate::imported_model::ImportedModel;
use crate::limits::{
    ARTIFACT_BYTES_BASE, ARTIFACT_BYTES_MAX, ARTIFACT_BYTES_PER_BYTE, COMPILE_MEMORY_MAX, COMPILE_MEMORY_MIN,
    COMPILE_MEMORY_PER_BYTE, COMPILES_MAX, COMPILES_WAITING_MAX, GRAPH_COMPILE_TIME_MAX, GRAPH_WORK_IN_PLACE_MAX,
    IMPORT_MEMORY_PER_BYTE,
};

/// Where a [`crate::PluginEngine`] compiles.
#[derive(Clone, Debug, Default)]
pub enum CompilerMode {
    /// In this process, without limits: for processes that do not serve other clients.
    #[default]
    InProcess,
    /// In child processes.
    Children(CompileChildren),
}

/// The purpose of a compilation. Each purpose has separate slots, so that one cannot delay the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompilePurpose {
    /// A client uploads a plugin or a model file. The request is refused if too many are waiting.
    Upload,
    /// A model version is being loaded. It waits for its turn.
    Load,
}

/// Compiles in child processes. Clones share the limit on concurrent children.
#[derive(Clone, Debug)]
pub struct CompileChildren(Arc<CompileChildrenInner>);

#[derive(Debug)]
struct CompileChildrenInner {
    program: PathBuf,
    is_stopped: AtomicBool,
    uploads: CompileSlots,
    loads: CompileSlots,
    graphs: CompileSlots,
}

/// The input and purpose of a compilation, for error messages.
#[derive(Clone, Copy)]
struct CompileSubject {
    what: &'static str,
    purpose: &'static str,
}

const COMPONENT_SUBJECT: CompileSubject = CompileSubject { what: "the component", purpose: "compile" };
const FILE_SUBJECT: CompileSubject = CompileSubject { what: "the file", purpose: "import" };
const GRAPH_SUBJECT: CompileSubject = CompileSubject { what: "the graph", purpose: "compile" };

impl CompileChildren {
    /// Creates children from `program`, which must be this build of saggar.
    pub fn new(program: impl Into<PathBuf>) -> CompileChildren {
        CompileChildren(Arc::new(CompileChildrenInner {
            program: program.into(),
            is_stopped: AtomicBool::new(false),
            uploads: CompileSlots::new(COMPILES_MAX, COMPILES_WAITING_MAX),
            loads: CompileSlots::new(COMPILES_MAX, usize::MAX),
            graphs: CompileSlots::new(COMPILES_MAX, usize::MAX),
        }))
    }

    /// Kills the running children and starts no more, because the server is stopping.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Acquire)
    }

    fn slots(&self, purpose: CompilePurpose) -> &CompileSlots {
        match purpose {
            CompilePurpose::Upload => &self.0.uploads,
            CompilePurpose::Load => &self.0.loads,
        }
    }

    /// Compiles a component, within `time` from now.
    ///
    /// # Errors
    /// `Malformed`; `CompileLimit`; `CompilerBusy`; `CompilerStopped`; `CompilerCrashed`; `Engine`.
    pub(crate) fn compile_component(
        &self,
        wasm: &[u8],
        purpose: CompilePurpose,
        time: Duration,
    ) -> Result<AnswerPayload, PluginError> {
        let bytes = wasm.len() as u64;
        let request = ChildRequest {
            kind: COMPONENT,
            arguments: Vec::new(),
            parts: &[wasm],
            memory_bytes: child_memory_bytes(bytes * COMPILE_MEMORY_PER_BYTE),
            answer_bytes_max: ARTIFACT_BYTES_MAX.min(ARTIFACT_BYTES_BASE + bytes * ARTIFACT_BYTES_PER_BYTE),
            deadline: Instant::now() + time,
            is_cancelled: &|| self.is_stopped(),
        };
        self.run_child_request(self.slots(purpose), &request)
            .map_err(|error| to_plugin_error(error, COMPONENT_SUBJECT, time, &request))
    }

    /// Imports a file with the component's importer, within `time` from now.
    ///
    /// # Errors
    /// As [`crate::import()`]; the errors of [`CompileChildren::compile_component`].
    pub(crate) fn import_file(
        &self,
        cache_dir: Option<PathBuf>,
        component: &[u8],
        file: &[u8],
        options: &str,
        time: Duration,
    ) -> Result<ImportedModel, PluginError> {
        let header = ImportRequestHeader { options: options.to_owned(), time };
        let header = serde_json::to_vec(&header).map_err(PluginError::engine)?;
        let memory_bytes = child_memory_bytes(file.len() as u64 * IMPORT_MEMORY_PER_BYTE);
        let cache = cache_dir.into_iter().flat_map(|dir| [CACHE_FLAG.into(), dir.into_os_string()]);
        let request = ChildRequest {
            kind: IMPORT,
            arguments: cache.collect(),
            parts: &[&header, component, file],
            memory_bytes,
            answer_bytes_max: memory_bytes,
            deadline: Instant::now() + time,
            is_cancelled: &|| self.is_stopped(),
        };
        let received = self.run_child_request(self.slots(CompilePurpose::Upload), &request);
        let received = received.map_err(|error| to_plugin_error(error, FILE_SUBJECT, time, &request))?;
        decode_imported(received).ok_or_else(|| PluginError::engine("unexpected format of a compile child's answer"))
    }

    /// Returns whether a child should compile the graph. Smaller graphs compile faster than a child starts.
    pub(crate) fn should_offload(&self, graph: &VerifiedGraph) -> bool {
        graph::graph_work(graph) > GRAPH_WORK_IN_PLACE_MAX
    }

    /// Compiles a graph for `target`, unless `is_cancelled` becomes true.
    ///
    /// # Errors
    /// As [`saggar_compile::compile`]; out of memory or time limit exceeded; cancelled.
    pub(crate) fn compile_graph(
        &self,
        graph: &VerifiedGraph,
        target: &CompileTarget,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Program, HostError> {
        let header = graph::request_header(graph, target).map_err(internal_error)?;
        let constants = graph.constants.iter().map(|constant| &**constant);
        let parts: Vec<&[u8]> = std::iter::once(&*header).chain(constants).collect();
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let memory_bytes = child_memory_bytes(bytes * COMPILE_MEMORY_PER_BYTE);
        let time = GRAPH_COMPILE_TIME_MAX;
        let request = ChildRequest {
            kind: GRAPH,
            arguments: Vec::new(),
            parts: &parts,
            memory_bytes,
            answer_bytes_max: memory_bytes,
            deadline: Instant::now() + time,
            is_cancelled: &|| self.is_stopped() || is_cancelled(),
        };
        let error = match self.run_child_request(&self.0.graphs, &request) {
            Ok(answer) => {
                let program = graph::decode_program(answer.bytes(), graph);
                return program.ok_or_else(|| internal_error("unexpected format of a compile child's answer"));
            }
            Err(CompileRunError::Child(ChildError::Refused(refusal))) => return Err(graph_refusal_error(&refusal)),
            Err(error) => to_plugin_error(error, GRAPH_SUBJECT, time, &request),
        };
        if matches!(error, PluginError::CompilerStopped) {
            return Err(HostError::cancelled());
        }
        tracing::warn!(nodes = graph.nodes.len(), %error, "a graph was not compiled");
        Err(match error {
            PluginError::CompileLimit { .. } => HostError::out_of_memory(error.to_string()),
            error => internal_error(error),
        })
    }

    fn run_child_request(
        &self,
        slots: &CompileSlots,
        request: &ChildRequest<'_>,
    ) -> Result<AnswerPayload, CompileRunError> {
        let _slot = slots.acquire(request.deadline, request.is_cancelled).map_err(CompileRunError::Slot)?;
        let began = Instant::now();
        let answer = child_process::run(&self.0.program, request).map_err(CompileRunError::Child);
        tracing::debug!(kind = request.kind, took = ?began.elapsed(), done = answer.is_ok(), "compile child ended");
        answer
    }
}

/// Reasons why a child gave no answer.
enum CompileRunError {
    Slot(AcquireSlotError),
    Child(ChildError),
}

/// Returns the error for a child that gave no result.
fn to_plugin_error(
    error: CompileRunError,
    subject: CompileSubject,
    time: Duration,
    request: &ChildRequest<'_>,
) -> PluginError {
    let CompileSubject { what, purpose } = subject;
    let limit = |limit: String| PluginError::CompileLimit { what, purpose, limit };
    match error {
        CompileRunError::Slot(AcquireSlotError::Full { waiting } | AcquireSlotError::Deadline { waiting }) => {
            PluginError::CompilerBusy { waiting }
        }
        CompileRunError::Slot(AcquireSlotError::Cancelled) | CompileRunError::Child(ChildError::Cancelled) => {
            PluginError::CompilerStopped
        }
        CompileRunError::Child(ChildError::Refused(refusal)) => {
            match serde_json::from_slice::<ChildRefusal>(refusal.bytes()) {
                Ok(refusal) => refusal.into(),
                Err(error) => PluginError::engine(error),
            }
        }
        CompileRunError::Child(ChildError::Deadline) => limit(format_duration(time)),
        CompileRunError::Child(ChildError::OutOfMemory) => {
            limit(format!("{} MiB of memory", request.memory_bytes >> 20))
        }
        CompileRunError::Child(ChildError::AnswerTooLarge { bytes }) => {
            limit(format!("{} MiB for its result, which has {bytes} bytes,", request.answer_bytes_max >> 20))
        }
        CompileRunError::Child(ChildError::Crashed { reason }) => PluginError::CompilerCrashed { what, reason },
        CompileRunError::Child(ChildError::Launch { reason }) => {
            PluginError::engine(format!("cannot start a process to {purpose} {what}: {reason}"))
        }
    }
}

/// Returns the bytes that a child can allocate for an input of `input_bytes`: no more than half of the memory that the
/// machine or control group has left, so that the server keeps running.
fn child_memory_bytes(input_bytes: u64) -> u64 {
    let half = available_host_bytes().map_or(u64::MAX, |bytes| bytes / 2);
    (COMPILE_MEMORY_MAX + input_bytes).min(half.max(COMPILE_MEMORY_MIN))
}

fn internal_error(error: impl ToString) -> HostError {
    HostError::new(GuestErrorCode::Internal, error.to_string())
}

fn graph_refusal_error(refusal: &AnswerPayload) -> HostError {
    match serde_json::from_slice(refusal.bytes()) {
        Ok(ChildRefusal::Graph { out_of_memory, message, place }) => {
            let code = if out_of_memory { GuestErrorCode::OutOfMemory } else { GuestErrorCode::Unsupported };
            HostError::Answer(ReturnedError { code, message, place })
        }
        Ok(refusal) => internal_error(PluginError::from(refusal)),
        Err(error) => internal_error(error),
    }
}

fn format_duration(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{} s", time.as_secs()) } else { format!("{} ms", time.as_millis()) }
}

/// Decodes the answer to an import. Returns `None` if its format is unexpected.
fn decode_imported(received: AnswerPayload) -> Option<ImportedModel> {
    let mut rest = bytes::Bytes::from(received.into_bytes());
    let length = u64::from_le_bytes(rest.get(..8)?.try_into().ok()?);
    let header_end = usize::try_from(length).ok()?.checked_add(8)?;
    let ImportAnswerHeader { config, variables } = serde_json::from_slice(rest.get(8..header_end)?).ok()?;
    rest = rest.slice(header_end..);
    let mut variable = |VariableHeader { name, kind, descriptor, bytes }: VariableHeader| {
        let length = usize::try_from(bytes).ok()?;
        let is_whole = length <= rest.len() && length == descriptor.bytes();
        is_whole.then(|| SavedVariable { name, kind, descriptor, bytes: rest.split_to(length) })
    };
    let variables = variables.into_iter().map(&mut variable).collect::<Option<_>>()?;
    rest.is_empty().then_some(ImportedModel { variables, config })
}
