//! Builds a model's graph for concrete shapes, node by node, with the rule of each node's operator.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::call::OperatorCall;
use crate::error::{Error, Result};
use crate::graph::FoldingGraph;
use crate::model::OnnxModel;
use crate::node::{node_place, normalized_domain};
use crate::ops;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto};
use crate::signature;
use crate::tensor::{self, ElementLocation};
use crate::value::{ConstantTensor, GraphValue, InitializerUse};

/// The maximum number of integers of an initializer that is constant-folded. Larger initializers become variables.
pub const KNOWN_INTEGERS_MAX: usize = 1024;
/// The same limit for floats. The floats that rules read are scales, limits and the like.
pub const KNOWN_FLOATS_MAX: usize = 16;
/// The maximum nesting depth of function calls and subgraphs.
const DEPTH_MAX: usize = 24;
/// The maximum number of nodes built. Nodes of functions and branches count each time they are used.
const STEPS_MAX: usize = 200_000;

/// A builder of one graph of a model.
pub struct OnnxGraphBuilder<'m, 'b> {
    model: &'m OnnxModel,
    /// The graph being built.
    pub graph: FoldingGraph<'b>,
    origins: HashMap<String, Rc<InitializerUse>>,
    depth: usize,
    steps: usize,
}

/// The names of a graph and of its enclosing graphs, with their values.
struct NameScope<'s> {
    values: HashMap<&'s str, GraphValue>,
    tensors: HashMap<&'s str, &'s TensorProto>,
    outer: Option<&'s NameScope<'s>>,
    function: Option<&'s FunctionProto>,
    /// The attributes of the node that calls the function.
    given: &'s [Cow<'s, AttributeProto>],
}

impl<'m, 'b> OnnxGraphBuilder<'m, 'b> {
    /// Creates a builder that adds to `graph`.
    pub fn new(model: &'m OnnxModel, graph: FoldingGraph<'b>) -> Self {
        Self { model, graph, origins: HashMap::new(), depth: 0, steps: 0 }
    }

    /// Builds the graph and returns the model's outputs in order.
    ///
    /// # Errors
    /// Returns any error of this crate, with the name of the node.
    pub fn build(&mut self, inputs: Vec<(&str, GraphValue)>) -> Result<Vec<GraphValue>> {
        let graph = self.model.graph();
        let tensors = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut scope = NameScope { values: HashMap::new(), tensors, outer: None, function: None, given: &[] };
        // An input with an initializer takes the initializer's value unless a value is given.
        for (name, value) in &inputs {
            scope.tensors.remove(*name);
            scope.values.insert(name, value.clone());
        }
        self.run_graph(graph, &mut scope)
    }

    /// Returns the names of the initializers whose elements were read while building.
    pub fn read_initializers(&self) -> HashSet<String> {
        self.origins.values().filter(|origin| origin.read.get()).map(|origin| origin.name.clone()).collect()
    }

    fn run_graph<'s>(&mut self, graph: &'s GraphProto, scope: &mut NameScope<'s>) -> Result<Vec<GraphValue>> {
        let outputs: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        self.run_nodes(&graph.node, &outputs, scope)?;
        let found =
            outputs.iter().map(|name| self.lookup(name, scope).map_err(|e| e.at(|| format!("output `{name}`"))));
        found.collect()
    }

    fn run_nodes<'s>(&mut self, nodes: &'s [NodeProto], outputs: &[&str], scope: &mut NameScope<'s>) -> Result<()> {
        if self.depth > DEPTH_MAX {
            return Err(Error::unsupported(format!("functions and graphs nested deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let used = mark_used_nodes(nodes, outputs);
        for (node, used) in nodes.iter().zip(used) {
            if used {
                self.count_step().map_err(|error| error.at(|| node_place(node)))?;
                self.run_node(node, scope).map_err(|error| error.at(|| node_place(node)))?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn count_step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Error::unsupported(format!("more than {STEPS_MAX} nodes, those of loops counted each time")));
        }
        Ok(())
    }

    fn run_node<'s>(&mut self, node: &'s NodeProto, scope: &mut NameScope<'s>) -> Result<()> {
        let operand = |name: &String| match name.as_str() {
            "" => Ok(None),
            name => self.lookup(name, scope).map(Some),
        };
        let inputs = node.input.iter().map(operand).collect::<Result<Vec<_>>>()?;
        let call = OperatorCall {
            op: &node.op_type,
            opset: self.model.opset_version(scope.function, &node.domain),
            attributes: resolve_attributes(node, scope),
            inputs,
            names: &node.input,
            wanted: node.output.iter().map(|name| !name.is_empty()).collect(),
        };
        let results = if let Some(function) = self.model.function(node) {
            let defaults = function.attribute_proto.iter().map(|default| default.name.as_str());
            signature::check_function(&call, function.attribute.iter().map(String::as_str).chain(defaults))?;
            self.run_function(function, &call)?
        } else if normalized_domain(&node.domain).is_empty() {
            signature::check(&call)?;
            match node.op_type.as_str() {
                "If" => self.run_branch(&call, scope)?,
                "Loop" => self.run_loop(&call, scope)?,
                "Scan" => self.run_scan(&call, scope)?,
                "Constant" => vec![self.constant(&call)?],
                op => match ops::rule_for(op) {
                    Some(rule) => rule(&mut self.graph, &call)?,
                    None => return Err(unknown_operator(node, &call)),
                },
            }
        } else {
            return Err(unknown_operator(node, &call));
        };
        for (position, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let Some(value) = results.get(position) else {
                return Err(Error::unsupported(format!("result {position} (`{name}`) of {}", node.op_type)));
            };
            // Names of enclosing graphs must not be shadowed either, but a file that does so is unambiguous.
            if scope.values.contains_key(name.as_str()) || scope.tensors.contains_key(name.as_str()) {
                return Err(Error::invalid(format!("`{name}` is made twice")));
            }
            scope.values.insert(name, value.clone());
        }
        Ok(())
    }

    /// Returns the value of a name. Returns an error if the name is used before it is defined.
    fn lookup(&mut self, name: &str, scope: &NameScope<'_>) -> Result<GraphValue> {
        let mut level = Some(scope);
        while let Some(here) = level {
            if let Some(value) = here.values.get(name) {
                return Ok(value.clone());
            }
            if let Some(tensor) = here.tensors.get(name) {
                // In functions and branches the same name can refer to another initializer.
                let origin = here.outer.is_none().then_some(name);
                return self.initializer(tensor, origin).map_err(|e| e.at(|| format!("initializer `{name}`")));
            }
            level = here.outer;
        }
        Err(Error::invalid(format!("`{name}` is used before it is made, or never made")))
    }

    /// Converts a tensor of the file to a value. A small tensor becomes a constant.
    fn initializer(&mut self, stored: &TensorProto, name: Option<&str>) -> Result<GraphValue> {
        let stored = tensor::read_tensor(stored, self.model.imported)?;
        match &stored.place {
            ElementLocation::Variable(name) => self.graph.variable(name, stored.elem, &stored.shape),
            ElementLocation::Bytes(bytes) => {
                let constant = ConstantTensor::from_bytes(stored.elem, stored.shape.clone(), bytes);
                Ok(match name {
                    Some(name) => {
                        let new = || Rc::new(InitializerUse { name: name.to_owned(), read: Cell::new(false) });
                        let origin = self.origins.entry(name.to_owned()).or_insert_with(new);
                        constant.from_initializer(origin).into()
                    }
                    None => constant.into(),
                })
            }
        }
    }

    fn constant(&mut self, call: &OperatorCall) -> Result<GraphValue> {
        if let Some(tensor) = call.tensor("value") {
            return self.initializer(tensor, None);
        }
        ops::constant(call)
    }

    fn run_function(&mut self, function: &FunctionProto, call: &OperatorCall) -> Result<Vec<GraphValue>> {
        let names = function.input.iter().map(String::as_str);
        let values = names.zip(&call.inputs).filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        let defaults = function.attribute_proto.iter().filter(|default| call.attribute(&default.name).is_none());
        let given: Vec<Cow<AttributeProto>> =
            call.attributes.iter().cloned().chain(defaults.map(Cow::Borrowed)).collect();
        let mut scope =
            NameScope { values, tensors: HashMap::new(), outer: None, function: Some(function), given: &given };
        let outputs: Vec<&str> = function
            .output
            .iter()
            .zip(&call.wanted)
            .filter(|(_, wanted)| **wanted)
            .map(|(name, _)| name.as_str())
            .collect();
        self.run_nodes(&function.node, &outputs, &mut scope)?;
        let mut results = Vec::new();
        for (position, name) in function.output.iter().enumerate() {
            results.push(if call.is_output_used(position) {
                self.lookup(name, &scope)?
            } else {
                ConstantTensor::ints(Vec::new()).into()
            });
        }
        Ok(results)
    }

    /// Builds the subgraph of an attribute with `values` as its inputs and returns its outputs.
    fn run_body(
        &mut self,
        graph: &GraphProto,
        values: &[GraphValue],
        outer: &NameScope<'_>,
    ) -> Result<Vec<GraphValue>> {
        if graph.input.len() != values.len() {
            let what = format!("a body takes {} values and is given {}", graph.input.len(), values.len());
            return Err(Error::invalid(what));
        }
        let names = graph.input.iter().map(|input| input.name.as_str());
        let tensors = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let values = names.zip(values.iter().cloned()).collect();
        let mut scope = NameScope { values, tensors, outer: Some(outer), function: outer.function, given: outer.given };
        self.run_graph(graph, &mut scope)
    }

    fn run_branch(&mut self, call: &OperatorCall, scope: &NameScope<'_>) -> Result<Vec<GraphValue>> {
        let condition = call.constant(0, "the condition of If")?.integers();
        let name = if condition.first().is_some_and(|&c| c != 0) { "then_branch" } else { "else_branch" };
        self.run_body(body_graph(call, name)?, &[], scope)
    }

    /// Unrolls a Loop whose trip count is a constant.
    fn run_loop(&mut self, call: &OperatorCall, scope: &NameScope<'_>) -> Result<Vec<GraphValue>> {
        let body = body_graph(call, "body")?;
        let trips = call.known_ints(0, "the trip count of Loop")?.and_then(|trips| trips.first().copied());
        let mut going = call.known_ints(1, "the condition of Loop")?.is_none_or(|c| c.first() != Some(&0));
        let mut carried = (2..call.inputs.len()).map(|i| call.input(i).cloned()).collect::<Result<Vec<_>>>()?;
        let mut collected: Vec<Vec<GraphValue>> = vec![Vec::new(); body.output.len().saturating_sub(carried.len() + 1)];
        let mut trip = 0;
        while going && trips.is_none_or(|trips| trip < trips) {
            self.count_step()?;
            let mut values = vec![
                ConstantTensor::scalar(crate::elem::ElementType::Int64, trip as f64).into(),
                ConstantTensor::scalar(crate::elem::ElementType::Bool, 1.0).into(),
            ];
            values.extend(carried.iter().cloned());
            let results = self.run_body(body, &values, scope)?;
            let [condition, rest @ ..] = &results[..] else { return Err(Error::invalid("the body gives nothing")) };
            let Some(condition) = condition.constant() else {
                return Err(Error::unsupported("a Loop that ends when the model's data says so"));
            };
            going = condition.integers().first() != Some(&0);
            if rest.len() < carried.len() {
                return Err(Error::invalid("the body gives too few values"));
            }
            let states = carried.len();
            collected.iter_mut().zip(&rest[states..]).for_each(|(list, result)| list.push(result.clone()));
            carried.clone_from_slice(&rest[..states]);
            trip += 1;
        }
        for results in &collected {
            carried.push(self.stack(results, 0)?);
        }
        Ok(carried)
    }

    /// Unrolls a Scan. Source: ONNX Scan-9.
    fn run_scan(&mut self, call: &OperatorCall, scope: &NameScope<'_>) -> Result<Vec<GraphValue>> {
        if call.opset < 9 {
            return Err(Error::unsupported("Scan before version 9 of the operator set"));
        }
        let body = body_graph(call, "body")?;
        let all = call.inputs()?;
        let scans = usize::try_from(call.int("num_scan_inputs", 0)).unwrap_or(0);
        let states = all.len().checked_sub(scans).ok_or_else(|| Error::invalid("there are too few operands"))?;
        let outputs = body.output.len().saturating_sub(states);
        let at = |name: &str, i: usize| call.ints(name).and_then(|ints| ints.get(i).copied()).unwrap_or(0);
        let mut carried = all[..states].to_vec();
        let mut collected: Vec<Vec<GraphValue>> = vec![Vec::new(); outputs];
        let axes = (0..scans).map(|i| all[states + i].axis(at("scan_input_axes", i))).collect::<Result<Vec<_>>>()?;
        let steps = match axes.first() {
            Some(&axis) => all[states].dim(axis)?,
            None => return Err(Error::invalid("there is nothing to scan")),
        };
        for step in 0..steps {
            self.count_step()?;
            let mut values = carried.clone();
            for (i, &axis) in axes.iter().enumerate() {
                let step = if at("scan_input_directions", i) == 0 { step } else { steps - 1 - step };
                values.push(self.graph.index_axis(&all[states + i], axis, step)?);
            }
            let results = self.run_body(body, &values, scope)?;
            if results.len() < states {
                return Err(Error::invalid("the body gives too few values"));
            }
            carried.clone_from_slice(&results[..states]);
            collected.iter_mut().zip(&results[states..]).for_each(|(list, result)| list.push(result.clone()));
        }
        for (i, mut results) in collected.into_iter().enumerate() {
            if at("scan_output_directions", i) != 0 {
                results.reverse();
            }
            carried.push(self.stack(&results, at("scan_output_axes", i))?);
        }
        Ok(carried)
    }

    /// Stacks the values along a new axis.
    fn stack(&mut self, values: &[GraphValue], axis: i64) -> Result<GraphValue> {
        let Some(first) = values.first() else {
            return Err(Error::unsupported("results of a loop that never runs"));
        };
        let axis = crate::value::normalize_axis(axis, first.rank() + 1)?;
        let parts = values.iter().map(|value| self.graph.unsqueeze(value, axis)).collect::<Result<Vec<_>>>()?;
        self.graph.concat(&parts, axis)
    }
}

fn body_graph<'c>(call: &'c OperatorCall, name: &str) -> Result<&'c GraphProto> {
    let graph = call.attribute(name).and_then(|attribute| attribute.g.as_ref());
    graph.ok_or_else(|| Error::invalid(format!("attribute `{name}` is missing")))
}

fn unknown_operator(node: &NodeProto, call: &OperatorCall) -> Error {
    let set = if normalized_domain(&node.domain).is_empty() { "ai.onnx" } else { &node.domain };
    Error::unsupported(format!("operator {} of {set}, version {}", node.op_type, call.opset))
}

/// Returns the node's attributes. Attributes that refer to attributes of the calling node are replaced by their values.
fn resolve_attributes<'s>(node: &'s NodeProto, scope: &NameScope<'s>) -> Vec<Cow<'s, AttributeProto>> {
    let resolved = node.attribute.iter().filter_map(|attribute| {
        if attribute.ref_attr_name.is_empty() {
            return Some(Cow::Borrowed(attribute));
        }
        let given = scope.given.iter().find(|given| given.name == attribute.ref_attr_name)?;
        Some(Cow::Owned(AttributeProto { name: attribute.name.clone(), ..(**given).clone() }))
    });
    resolved.collect()
}

/// Returns for each node whether an output depends on it.
fn mark_used_nodes(nodes: &[NodeProto], outputs: &[&str]) -> Vec<bool> {
    let mut wanted: HashSet<&str> = outputs.iter().copied().collect();
    let mut used = vec![false; nodes.len()];
    for (node, used) in nodes.iter().zip(&mut used).rev() {
        *used = node.output.iter().any(|name| wanted.contains(name.as_str()));
        if *used {
            collect_names(node, &mut wanted);
        }
    }
    used
}

/// Collects every name that a node or its subgraphs refer to.
fn collect_names<'n>(node: &'n NodeProto, names: &mut HashSet<&'n str>) {
    names.extend(node.input.iter().map(String::as_str));
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        graph.node.iter().for_each(|node| self::collect_names(node, names));
        names.extend(graph.output.iter().map(|output| output.name.as_str()));
    }
}
