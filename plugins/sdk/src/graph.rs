//! Graph building and execution.

pub(crate) mod operand;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;

use crate::bindings::graphs as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::call_site::{AtCallSite, plugin_line};
use crate::error::{Error, Result, SourceLine};
use crate::tensor::{NamedTensor, Tensor, batched_descriptor, descriptor};
use crate::variables::{Variable, Variables};
use operand::Operand;

/// A graph being built. Clones refer to the same graph, and every [`Operand`] refers to its graph.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f() -> Result<()> {
/// let graph = Graph::new();
/// let x = graph.input("x", &descriptor(DataType::Float32, [2, 3]))?;
/// let total = x.mul(&x)?.reduce_sum(&[1], false)?.label("total"); // [2, 3] -> [2]
/// let executable = graph.build([("total", &total)])?;
///
/// let x = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let outputs = executable.dispatch([("x", &x)])?;
/// assert_eq!(named(&outputs, "total")?.read_f32()?, [14.0, 77.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Graph(Rc<GraphState>);

/// The purpose of a graph.
#[derive(Debug, Default)]
pub(crate) struct GraphPurpose {
    /// Whether the graph is a training step, in which some layers behave differently.
    pub(crate) training: bool,
    /// Whether parameters are read as `float16`.
    pub(crate) half: bool,
    /// Variables that are read in place of others, by the names of the others.
    pub(crate) instead: BTreeMap<String, Variable>,
}

type SharedOperand = Rc<raw::Operand>;

#[derive(Debug)]
struct GraphState {
    /// `None` after the graph was built.
    builder: RefCell<Option<raw::GraphBuilder>>,
    purpose: GraphPurpose,
    /// One operand per variable, so that gradients are taken with respect to the operand that the model used.
    variables: RefCell<BTreeMap<String, SharedOperand>>,
    /// The operands of parameters cast to `float16`.
    halves: RefCell<BTreeMap<String, SharedOperand>>,
    /// The values assigned to variables.
    assigned: RefCell<BTreeMap<String, SharedOperand>>,
    /// Minimum and maximum elements of variables with a constrained range.
    ranges: RefCell<BTreeMap<String, (f64, f64)>>,
    /// Statistics and their new values. They are assigned last, when it is known whether the gradients are finite.
    statistics: RefCell<Vec<(Variable, SharedOperand)>>,
    /// If this operand is 0, assignments keep the old value.
    guard: RefCell<Option<SharedOperand>>,
    /// If this operand is 0, statistics keep the old value.
    sound: RefCell<Option<SharedOperand>>,
    /// The key of random numbers, and the number of its streams in use.
    key: RefCell<Option<SharedOperand>>,
    streams: Cell<u32>,
    /// The line that set each label and each name of an input, for errors that only appear when the graph is built.
    label_lines: RefCell<Vec<(String, SourceLine)>>,
}

impl Graph {
    /// Returns an empty graph.
    pub fn new() -> Self {
        Self::for_purpose(GraphPurpose::default())
    }

    /// Returns an empty graph for a training step; [`Graph::training`] returns true.
    pub fn for_training() -> Self {
        Self::for_purpose(GraphPurpose { training: true, ..GraphPurpose::default() })
    }

    pub(crate) fn for_purpose(purpose: GraphPurpose) -> Self {
        Self(Rc::new(GraphState {
            builder: RefCell::new(Some(raw::GraphBuilder::new())),
            purpose,
            variables: RefCell::default(),
            halves: RefCell::default(),
            assigned: RefCell::default(),
            ranges: RefCell::default(),
            statistics: RefCell::default(),
            guard: RefCell::default(),
            sound: RefCell::default(),
            key: RefCell::default(),
            streams: Cell::new(0),
            label_lines: RefCell::default(),
        }))
    }

    /// Returns whether the graph is a training step, in which some layers behave differently.
    pub fn training(&self) -> bool {
        self.0.purpose.training
    }

    /// Returns the data type that a model computes in: `float16` in a training step with mixed precision, else
    /// `float32`. The model must cast its inputs to this type; layers cast their variables.
    pub fn float(&self) -> DataType {
        if self.0.purpose.half { DataType::Float16 } else { DataType::Float32 }
    }

    /// Returns an input: a tensor given by name at each dispatch.
    ///
    /// # Errors
    /// Returns `Host` if the name is taken or the shape exceeds a limit, and `Built` after the graph was built.
    #[track_caller]
    pub fn input(&self, name: &str, descriptor: &Descriptor) -> Result<Operand> {
        self.record_label(name, Location::caller());
        self.add_operand(|builder| builder.input(name, descriptor))
    }

    /// Returns an input for each item, with `size` items stacked along a new first dimension.
    ///
    /// # Errors
    /// As [`Graph::input`].
    #[track_caller]
    pub fn inputs<'a>(&self, items: impl IntoIterator<Item = (&'a str, &'a Descriptor)>, size: u32) -> Result<Inputs> {
        let inputs = items
            .into_iter()
            .map(|(name, item)| Ok((name.to_owned(), self.input(name, &batched_descriptor(item, size))?)));
        inputs.collect::<Result<_>>().map(Inputs).at_caller()
    }

    /// Returns a constant tensor of little-endian elements in row-major order.
    ///
    /// # Errors
    /// Returns `Host` if the number of bytes does not match the descriptor, and `Built` after the graph was built.
    #[track_caller]
    pub fn constant(&self, descriptor: &Descriptor, data: &[u8]) -> Result<Operand> {
        self.add_operand(|builder| builder.constant(descriptor, data))
    }

    /// Returns a constant `float32` tensor.
    ///
    /// # Errors
    /// As [`Graph::constant`].
    #[track_caller]
    pub fn constant_f32(&self, shape: &[u32], data: &[f32]) -> Result<Operand> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(&descriptor(DataType::Float32, shape), &bytes)
    }

    /// Returns a constant scalar; the number is rounded to the data type.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn scalar(&self, data_type: DataType, value: f64) -> Result<Operand> {
        self.add_operand(|builder| builder.scalar(data_type, value))
    }

    /// Returns a constant tensor with the same number in every element.
    ///
    /// # Errors
    /// Returns `Host` if the shape exceeds a limit, and `Built` after the graph was built.
    #[track_caller]
    pub fn fill(&self, descriptor: &Descriptor, value: f64) -> Result<Operand> {
        self.add_operand(|builder| builder.fill(descriptor, value))
    }

    /// Returns a tensor with the numbers 0, 1, 2, ... along `axis`.
    ///
    /// # Errors
    /// Returns `Host` if the axis does not exist, and `Built` after the graph was built.
    #[track_caller]
    pub fn iota(&self, descriptor: &Descriptor, axis: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.iota(descriptor, axis))
    }

    /// Returns the variable's value at the start of the dispatch: the same operand in each call. A parameter is read in
    /// the data type of [`Graph::float`].
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn variable(&self, variable: &Variable) -> Result<Operand> {
        let value = self.stored(variable)?;
        if !self.0.purpose.half || !variable.is_parameter() {
            return Ok(value);
        }
        let known = self.0.halves.borrow().get(variable.name()).cloned();
        if let Some(half) = known {
            return Ok(Operand::new(self, half));
        }
        let half = value.cast(DataType::Float16)?;
        self.0.halves.borrow_mut().insert(variable.name().to_owned(), Rc::clone(half.shared()));
        Ok(half)
    }

    /// Returns the variable's value at the start of the dispatch, in the variable's data type: the same operand in each
    /// call. Optimisers use it.
    ///
    /// # Errors
    /// Returns `Built` after the graph was built.
    #[track_caller]
    pub fn stored(&self, variable: &Variable) -> Result<Operand> {
        let known = self.0.variables.borrow().get(variable.name()).cloned();
        if let Some(operand) = known {
            return Ok(Operand::new(self, operand));
        }
        let read = self.0.purpose.instead.get(variable.name()).unwrap_or(variable);
        let operand = self.add_operand(|builder| builder.variable(read.raw()))?;
        self.0.variables.borrow_mut().insert(variable.name().to_owned(), Rc::clone(operand.shared()));
        Ok(operand)
    }

    /// Returns random `float32` numbers, uniform in `[0, 1)`, that depend only on `key` (`uint32[4]`) and `stream`.
    ///
    /// # Errors
    /// Returns `Host` if the key has another shape or data type, and `Built` after the graph was built.
    #[track_caller]
    pub fn random_uniform(&self, shape: &[u32], key: &Operand, stream: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.random_uniform(shape, key.raw(), stream))
    }

    /// Returns random `float32` numbers, normal with mean 0 and standard deviation 1, that depend only on `key`
    /// (`uint32[4]`) and `stream`.
    ///
    /// # Errors
    /// Returns `Host` if the key has another shape or data type, and `Built` after the graph was built.
    #[track_caller]
    pub fn random_normal(&self, shape: &[u32], key: &Operand, stream: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.random_normal(shape, key.raw(), stream))
    }

    /// Returns a key that changes with every dispatch and a stream that changes with every call, for the random numbers
    /// of a training step. The key is a variable of the namespace, which the graph increments.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(v: &Variables, x: &Operand) -> Result<Operand> {
    /// let (key, stream) = x.graph().random_stream(v)?;
    /// let noise = x.graph().random_normal(&x.shape(), &key, stream)?;
    /// x.add(&noise.mul_scalar(0.1)?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the variable, and `Built` after the graph was built.
    #[track_caller]
    pub fn random_stream(&self, variables: &Variables) -> Result<(Operand, u32)> {
        let known = self.0.key.borrow().clone();
        let key = match known {
            Some(key) => Operand::new(self, key),
            None => {
                let variable = variables.random_key()?;
                let key = self.stored(&variable)?;
                let one: Vec<u8> = [0, 0, 1, 0].into_iter().flat_map(u32::to_le_bytes).collect();
                let next = key.add(&self.constant(variable.descriptor(), &one)?)?;
                self.assign_guarded(None, &variable, &next)?;
                *self.0.key.borrow_mut() = Some(Rc::clone(key.shared()));
                key
            }
        };
        let stream = self.0.streams.get();
        self.0.streams.set(stream + 1);
        Ok((key, stream))
    }

    /// Returns the gradient of `loss` with respect to each operand in `wrt`: zeros if the loss does not depend on it.
    /// `loss` has one element.
    ///
    /// # Errors
    /// Returns `Host` if the loss has more elements or an operator between them has no gradient, and `Built` after the
    /// graph was built.
    #[track_caller]
    pub fn gradients(&self, loss: &Operand, wrt: &[&Operand]) -> Result<Vec<Operand>> {
        let wrt: Vec<&raw::Operand> = wrt.iter().map(|operand| operand.raw()).collect();
        self.add_operands(|builder| builder.gradients(loss.raw(), &wrt))
    }

    /// Assigns `value` to `variable` at the end of the dispatch. Reads in the same graph see the old value.
    ///
    /// # Errors
    /// Returns `Host` if the shape or data type differs, or the graph already assigns the variable, and `Built` after
    /// the graph was built.
    #[track_caller]
    pub fn assign(&self, variable: &Variable, value: &Operand) -> Result<()> {
        let guard = self.0.guard.borrow().clone();
        self.assign_guarded(guard, variable, value)
    }

    /// Clamps the values of all later assignments to the variable in this graph, including those of an optimiser, to
    /// `low..=high`.
    pub fn constrain_range(&self, variable: &Variable, low: f64, high: f64) {
        self.0.ranges.borrow_mut().insert(variable.name().to_owned(), (low, high));
    }

    /// Assigns a value that is learnt without gradients, as [`Graph::assign`] does. If a step of [`Fit`](crate::Fit) is
    /// skipped because its gradients are not finite, the variable keeps the old value.
    ///
    /// # Errors
    /// As [`Graph::assign`]; some errors are only returned by [`Graph::build`].
    #[track_caller]
    pub fn assign_statistic(&self, variable: &Variable, value: &Operand) -> Result<()> {
        let value = value.stop_gradient()?;
        self.0.statistics.borrow_mut().push((variable.clone(), Rc::clone(value.shared())));
        Ok(())
    }

    /// Makes later calls of [`Graph::assign`] keep the old value if `guard`, a `uint8` scalar, is 0.
    pub(crate) fn set_assignment_guard(&self, guard: Option<&Operand>) {
        *self.0.guard.borrow_mut() = guard.map(|guard| Rc::clone(guard.shared()));
    }

    /// Makes statistics keep the old value if `sound`, a `uint8` scalar, is 0.
    pub(crate) fn set_statistics_guard(&self, sound: &Operand) {
        *self.0.sound.borrow_mut() = Some(Rc::clone(sound.shared()));
    }

    /// Returns the value assigned to the variable in this graph, or `None` if it is not assigned.
    pub(crate) fn assigned_value(&self, variable: &Variable) -> Option<Operand> {
        self.0.assigned.borrow().get(variable.name()).map(|value| Operand::new(self, Rc::clone(value)))
    }

    #[track_caller]
    fn assign_guarded(&self, guard: Option<SharedOperand>, variable: &Variable, value: &Operand) -> Result<()> {
        let range = self.0.ranges.borrow().get(variable.name()).copied();
        let value = match range {
            Some((low, high)) => value.clamp(Some(low), Some(high))?,
            None => value.clone(),
        };
        let value = match guard {
            Some(guard) => Operand::new(self, guard).where_cond(&value, &self.stored(variable)?)?,
            None => value,
        };
        self.with_builder(|builder| builder.assign(variable.raw(), value.raw()))?;
        self.0.assigned.borrow_mut().insert(variable.name().to_owned(), Rc::clone(value.shared()));
        Ok(())
    }

    /// Verifies and compiles the graph. A dispatch returns only the outputs named here. Operands cannot be added
    /// afterwards, even if this call fails.
    ///
    /// # Errors
    /// Returns `Host` if the graph exceeds a limit or cannot be compiled, and `Built` if it was already built.
    #[track_caller]
    pub fn build<'a>(&self, outputs: impl IntoIterator<Item = (&'a str, &'a Operand)>) -> Result<Executable> {
        let caller = Location::caller();
        let sound = self.0.sound.borrow().clone();
        for (variable, value) in self.0.statistics.take() {
            self.assign_guarded(sound.clone(), &variable, &Operand::new(self, value))?;
        }
        let outputs: Vec<(String, &raw::Operand)> =
            outputs.into_iter().map(|(name, operand)| (name.to_owned(), operand.raw())).collect();
        let builder = self.0.builder.take().ok_or(Error::Built).at_caller()?;
        let lines = self.0.label_lines.borrow();
        raw::GraphBuilder::build(builder, &outputs).map(Executable).or_else(|error| {
            let labelled = lines.iter().rfind(|(label, _)| error.place.as_ref() == Some(label));
            Err(error).at(labelled.map_or(caller, |(_, line)| line))
        })
    }

    /// Records the line that set a label or the name of an input, if it is the plugin's.
    pub(crate) fn record_label(&self, label: &str, line: SourceLine) {
        if plugin_line(line).is_some() {
            self.0.label_lines.borrow_mut().push((label.to_owned(), line));
        }
    }

    #[track_caller]
    fn with_builder<T>(
        &self,
        call: impl FnOnce(&raw::GraphBuilder) -> std::result::Result<T, HostCallError>,
    ) -> Result<T> {
        call(self.0.builder.borrow().as_ref().ok_or(Error::Built).at_caller()?).at_caller()
    }

    /// Returns the operand that a call of the host's builder creates.
    #[track_caller]
    pub(crate) fn add_operand(
        &self,
        call: impl FnOnce(&raw::GraphBuilder) -> std::result::Result<raw::Operand, HostCallError>,
    ) -> Result<Operand> {
        let operand = self.with_builder(call)?;
        Ok(Operand::new(self, Rc::new(operand)))
    }

    /// Returns the operands that a call of the host's builder creates.
    #[track_caller]
    pub(crate) fn add_operands(
        &self,
        call: impl FnOnce(&raw::GraphBuilder) -> std::result::Result<Vec<raw::Operand>, HostCallError>,
    ) -> Result<Vec<Operand>> {
        let operands = self.with_builder(call)?;
        Ok(operands.into_iter().map(|operand| Operand::new(self, Rc::new(operand))).collect())
    }
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

/// The error of the host's calls.
type HostCallError = crate::bindings::tensors::Error;

/// The inputs of a graph, by name.
#[derive(Debug, Clone)]
pub struct Inputs(Vec<(String, Operand)>);

impl Inputs {
    /// Returns the input with this name.
    ///
    /// # Errors
    /// Returns `NoSuch`, with the existing names, if there is no such input.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<&Operand> {
        let found = self.0.iter().find(|(other, _)| other == name);
        let missing = || Error::NoSuch {
            what: "input",
            name: name.to_owned(),
            known: self.0.iter().map(|(name, _)| name.clone()).collect(),
        };
        found.map(|(_, operand)| operand).ok_or_else(missing).at_caller()
    }
}

/// A compiled graph.
#[derive(Debug)]
pub struct Executable(raw::Graph);

impl Executable {
    /// Runs the graph once. Every input must be given exactly once, by name.
    ///
    /// # Errors
    /// Returns `Host` if an input is missing, unknown or of another shape, or the device fails.
    #[track_caller]
    pub fn dispatch<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<Vec<NamedTensor>> {
        let inputs: Vec<_> = inputs.into_iter().map(|(name, tensor)| (name.to_owned(), &tensor.0)).collect();
        Ok(self.0.dispatch(&inputs).at_caller()?.into_iter().map(Into::into).collect())
    }

    pub(crate) fn raw(&self) -> &raw::Graph {
        &self.0
    }
}
