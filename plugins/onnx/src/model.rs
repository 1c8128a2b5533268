//! Decodes a file and makes the checks that need no shapes.

use std::collections::{HashMap, HashSet};

use prost::Message;

use crate::error::{Error, OnnxErrorKind, Result};
use crate::external::{self, ExternalFiles};
use crate::node::{node_place, normalized_domain};
use crate::proto::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use crate::signature::OPSET_MAX;
use crate::tensor;

/// The maximum number of nodes, including those of subgraphs and functions.
const NODES_MAX: usize = 50_000;
/// The maximum nesting depth of subgraphs.
const NESTING_MAX: usize = 16;
/// The oldest supported version. Before it, broadcasting was an attribute.
const OPSET_MIN: i64 = 6;

/// A checked model: its tensors are complete, its names unique and its operator sets known.
#[derive(Debug)]
pub struct OnnxModel {
    /// The decoded file.
    pub proto: ModelProto,
    /// Whether the model comes from a configuration of this plugin.
    pub imported: bool,
    versions: HashMap<String, i64>,
}

fn opset_versions(sets: &[OperatorSetIdProto]) -> Result<HashMap<String, i64>> {
    let versions: HashMap<String, i64> =
        sets.iter().map(|set| (normalized_domain(&set.domain).to_owned(), set.version)).collect();
    match versions.get("") {
        // A newer version is refused at the first node that cannot be built.
        Some(version) if *version < OPSET_MIN => {
            let what = format!("version {version} of the operator set; {OPSET_MIN} to {OPSET_MAX} are supported");
            Err(Error::unsupported(what))
        }
        _ => Ok(versions),
    }
}

impl OnnxModel {
    /// Parses the model of a file, or of an archive of the model and its external files. `imported` states whether this
    /// plugin wrote the file.
    ///
    /// # Errors
    /// Returns `NotOnnx`, `Invalid` or `Unsupported`, with the place in the model.
    pub fn parse(file: &[u8], imported: bool) -> Result<Self> {
        let (file, files) = if imported { (file, ExternalFiles::default()) } else { external::split_archive(file)? };
        let decoded = ModelProto::decode(file).map_err(|error| OnnxErrorKind::NotOnnx { reason: error.to_string() });
        let mut proto = decoded?;
        if !imported {
            files.load_into(&mut proto)?;
        }
        let Some(graph) = &proto.graph else {
            return Err(OnnxErrorKind::NotOnnx { reason: "there is no graph in it".to_owned() }.into());
        };
        if proto.opset_import.is_empty() {
            return Err(Error::invalid("it names no operator set"));
        }
        let versions = opset_versions(&proto.opset_import)?;
        let mut nodes = 0;
        check_graph(graph, "", 0, imported, &mut nodes)?;
        for function in &proto.functions {
            let place = || format!("function `{}`", function.name);
            self::opset_versions(&function.opset_import).map_err(|error| error.at(place))?;
            check_nodes(&function.node, 0, imported, &mut nodes)?;
        }
        // Initializers without a name cannot be used.
        if let Some(graph) = &mut proto.graph {
            graph.initializer.retain(|tensor| !tensor.name.is_empty());
        }
        Ok(Self { proto, imported, versions })
    }

    /// Returns the graph.
    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("parsing checks that the file has a graph")
    }

    /// Returns the version of the operator set `of` for the nodes of `function`, or of the graph.
    pub fn opset_version(&self, function: Option<&FunctionProto>, of: &str) -> i64 {
        let own = function.and_then(|function| {
            function.opset_import.iter().find(|set| normalized_domain(&set.domain) == normalized_domain(of))
        });
        let newest = || if normalized_domain(of).is_empty() { OPSET_MAX } else { 1 };
        own.map(|set| set.version).or_else(|| self.versions.get(normalized_domain(of)).copied()).unwrap_or_else(newest)
    }

    /// Returns the function that defines the node's operator, or `None` if the file has no such function.
    pub fn function(&self, node: &NodeProto) -> Option<&FunctionProto> {
        let functions = &self.proto.functions;
        functions
            .iter()
            .find(|f| f.name == node.op_type && normalized_domain(&f.domain) == normalized_domain(&node.domain))
    }
}

fn check_graph(graph: &GraphProto, path: &str, depth: usize, imported: bool, nodes: &mut usize) -> Result<()> {
    if depth > NESTING_MAX {
        return Err(Error::unsupported(format!("graphs nested deeper than {NESTING_MAX}")));
    }
    if !graph.sparse_initializer.is_empty() {
        return Err(Error::unsupported("sparse initializers"));
    }
    let mut names = HashSet::new();
    for tensor in &graph.initializer {
        let place = || format!("initializer `{path}{}`", tensor.name);
        tensor::read_tensor(tensor, imported).map_err(|error| error.at(place))?;
        if !names.insert(tensor.name.as_str()) {
            return Err(Error::invalid("there are two of that name").at(place));
        }
    }
    let mut ports = HashSet::new();
    for (what, list) in [("input", &graph.input), ("output", &graph.output)] {
        ports.clear();
        for port in list {
            if !ports.insert(port.name.as_str()) {
                return Err(Error::invalid("there are two of that name").at(|| format!("{what} `{path}{}`", port.name)));
            }
        }
    }
    check_nodes(&graph.node, depth, imported, nodes)
}

fn check_nodes(list: &[NodeProto], depth: usize, imported: bool, nodes: &mut usize) -> Result<()> {
    *nodes += list.len();
    if *nodes > NODES_MAX {
        return Err(Error::unsupported(format!("more than {NODES_MAX} nodes")));
    }
    let mut produced_names = HashSet::new();
    for node in list {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            if !produced_names.insert(output.as_str()) {
                return Err(Error::invalid(format!("`{output}` is made twice")).at(|| node_place(node)));
            }
        }
        for attribute in &node.attribute {
            if let Some(tensor) = &attribute.t {
                let at = || format!("{}, attribute `{}`", node_place(node), attribute.name);
                // An unused constant can have any type.
                match tensor::read_tensor(tensor, imported) {
                    Err(error) if !matches!(error.fault, OnnxErrorKind::Unsupported { .. }) => return Err(error.at(at)),
                    _ => {}
                }
            }
            if let Some(graph) = &attribute.g {
                check_graph(graph, &format!("{}/", attribute.name), depth + 1, imported, nodes)?;
            }
        }
    }
    Ok(())
}
