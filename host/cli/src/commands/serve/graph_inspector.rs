//! Inspects the graphs of model versions for the server, in a child process: this program's command `inspect`. So a plugin
//! whose graphs take long, or crash the compiler, costs a process and not the server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use saggar_rest::model_graphs::{
    GraphKernelDocument, GraphNodeDocument, GraphTensorDocument, ModelGraphDocument, ModelGraphSummary,
};
use saggar_serve::{GraphInspectError, GraphInspector};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::exit;

/// The time after which the child is killed.
const INSPECT_TIME_MAX: Duration = Duration::from_secs(60);
/// The interval at which the child is looked at.
const CHILD_POLL: Duration = Duration::from_millis(20);
/// Bytes of the child's answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Starts this program to inspect graphs.
#[derive(Debug)]
pub(super) struct ChildGraphInspector {
    program: PathBuf,
}

/// What `saggar inspect --json` prints about all graphs.
#[derive(Deserialize)]
struct ListedGraphs {
    graphs: Vec<ListedGraph>,
}

#[derive(Deserialize)]
struct ListedGraph {
    graph: usize,
    phase: String,
    nodes: usize,
    inputs: Vec<GraphTensorDocument>,
    #[serde(default)]
    kernels: usize,
    #[serde(default)]
    total_bytes: u64,
}

/// What it prints about one graph.
#[derive(Deserialize)]
struct InspectedStages {
    stages: GraphStages,
}

#[derive(Deserialize)]
struct GraphStages {
    simplified: StageGraph,
    fused: Vec<StageGroup>,
}

#[derive(Deserialize)]
struct StageGraph {
    inputs: Vec<GraphTensorDocument>,
    outputs: Vec<GraphTensorDocument>,
    nodes: Vec<GraphNodeDocument>,
}

#[derive(Deserialize)]
struct StageGroup {
    label: String,
    nodes: Vec<usize>,
    reads: Vec<usize>,
    writes: Vec<usize>,
    operations: u64,
    bytes: u64,
}

/// The error that the command prints.
#[derive(Deserialize)]
struct PrintedError {
    error: PrintedReason,
}

#[derive(Deserialize)]
struct PrintedReason {
    message: String,
}

/// A child that is killed and reaped when dropped.
struct InspectChild(Child);

impl Drop for InspectChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ChildGraphInspector {
    /// Creates an inspector that starts this program.
    pub(super) fn new(program: PathBuf) -> ChildGraphInspector {
        ChildGraphInspector { program }
    }

    /// Runs `saggar inspect` on a version with more arguments, and returns what it prints.
    fn run<T: DeserializeOwned>(&self, version_dir: &Path, arguments: &[&str]) -> Result<T, GraphInspectError> {
        let failed = |cause: String| GraphInspectError::Failed { cause: format!("saggar inspect: {cause}") };
        let mut command = Command::new(&self.program);
        command.args(["--json", "inspect"]).arg(version_dir).args(arguments);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = InspectChild(command.spawn().map_err(|error| failed(error.to_string()))?);
        let (answer, errors) = (child.0.stdout.take(), child.0.stderr.take());
        // Both pipes are read at the same time, because a full one stops the child.
        let (answer, errors) = (thread::spawn(move || read_all(answer)), thread::spawn(move || read_all(errors)));
        let deadline = Instant::now() + INSPECT_TIME_MAX;
        let status = loop {
            match child.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(CHILD_POLL),
                Ok(None) => {
                    let seconds = INSPECT_TIME_MAX.as_secs();
                    let reason = format!("its graphs were not built within {seconds} s");
                    return Err(GraphInspectError::Refused { reason });
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        };
        let (answer, errors) = (answer.join().unwrap_or_default(), errors.join().unwrap_or_default());
        match status.code() {
            Some(0) => serde_json::from_slice(&answer).map_err(|error| failed(error.to_string())),
            Some(exit::INVALID | exit::NOT_FOUND) => Err(refusal(&errors)),
            _ => Err(failed(format!("{status}: {}", String::from_utf8_lossy(&errors)))),
        }
    }
}

/// Returns the reason that the command printed last.
fn refusal(errors: &[u8]) -> GraphInspectError {
    let text = String::from_utf8_lossy(errors);
    let printed = text.lines().rev().find_map(|line| serde_json::from_str::<PrintedError>(line).ok());
    let reason = printed.map_or_else(|| text.trim().to_owned(), |printed| printed.error.message);
    GraphInspectError::Refused { reason }
}

/// Reads a pipe up to a maximum. An error ends it: the child's status says what happened.
fn read_all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

impl GraphInspector for ChildGraphInspector {
    fn inspect(&self, version_dir: &Path, graph: usize) -> Result<ModelGraphDocument, GraphInspectError> {
        let ListedGraphs { graphs } = self.run(version_dir, &[])?;
        if !(1..=graphs.len()).contains(&graph) {
            return Err(GraphInspectError::NoGraph { count: graphs.len() });
        }
        let number = graph.to_string();
        let InspectedStages { stages } = self.run(version_dir, &["--graph", &number, "--stage", "all"])?;
        let summary = |it: ListedGraph| ModelGraphSummary {
            graph: it.graph,
            phase: it.phase,
            nodes: it.nodes,
            kernels: it.kernels,
            total_bytes: it.total_bytes,
            inputs: it.inputs,
        };
        Ok(ModelGraphDocument {
            graphs: graphs.into_iter().map(summary).collect(),
            graph,
            kernels: kernel_documents(&stages),
            inputs: stages.simplified.inputs,
            outputs: stages.simplified.outputs,
            ..ModelGraphDocument::default()
        })
    }
}

/// Returns the kernels, each with those that write what it reads.
fn kernel_documents(stages: &GraphStages) -> Vec<GraphKernelDocument> {
    let writers = |node: &usize| stages.fused.iter().position(|group| group.writes.contains(node));
    let kernel = |group: &StageGroup| {
        let mut after: Vec<usize> = group.reads.iter().filter_map(writers).collect();
        after.sort_unstable();
        after.dedup();
        let nodes = group.nodes.iter().filter_map(|&node| stages.simplified.nodes.get(node).cloned()).collect();
        let writes = group.writes.iter().filter_map(|node| group.nodes.iter().position(|it| it == node)).collect();
        GraphKernelDocument {
            label: group.label.clone(),
            after,
            operations: group.operations,
            bytes: group.bytes,
            nodes,
            writes,
        }
    };
    stages.fused.iter().map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_comes_after_those_that_write_what_it_reads() {
        let node = |op: &str| GraphNodeDocument { op: op.to_owned(), ..GraphNodeDocument::default() };
        let group = |label: &str, nodes: &[usize], reads: &[usize], writes: &[usize]| StageGroup {
            label: label.to_owned(),
            nodes: nodes.to_vec(),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            operations: 1,
            bytes: 2,
        };
        let stages = GraphStages {
            simplified: StageGraph {
                inputs: Vec::new(),
                outputs: Vec::new(),
                nodes: ["input", "conv2d", "relu", "matmul"].map(node).to_vec(),
            },
            fused: vec![group("conv", &[1, 2], &[0], &[2]), group("dense", &[3], &[2, 2], &[3])],
        };
        let kernels = kernel_documents(&stages);
        assert_eq!((&*kernels[0].after, &*kernels[1].after), ([].as_slice(), [0].as_slice()));
        assert_eq!(kernels[0].nodes.iter().map(|node| node.op.as_str()).collect::<Vec<_>>(), ["conv2d", "relu"]);
        assert_eq!(kernels[0].writes, [1], "the place of the node among those of its kernel");
    }

    #[test]
    fn the_reason_of_a_refusal_is_the_commands() {
        let printed =
            b"note: graph 1 of 2\n{\"error\":{\"code\":\"invalid\",\"message\":\"no graph\",\"hint\":null}}\n";
        assert_eq!(refusal(printed), GraphInspectError::Refused { reason: "no graph".to_owned() });
        assert_eq!(refusal(b"broken\n"), GraphInspectError::Refused { reason: "broken".to_owned() });
    }
}
