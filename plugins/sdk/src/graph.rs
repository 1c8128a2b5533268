//! Building a graph, and running it once built.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::bindings::graphs as raw;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::error::{Error, Result};
use crate::operand::Operand;
use crate::tensor::{NamedTensor, Tensor, batched_descriptor, descriptor};
use crate::variables::{Variable, Variables};

/// A graph being built. Clones are the same graph, and every [`Operand`] carries one.
#[derive(Debug, Clone)]
pub struct Graph(Rc<GraphState>);

/// What a graph is for.
#[derive(Debug, Default)]
pub(crate) struct GraphPurpose {
    /// A training step, where some layers behave differently.
    pub(crate) training: bool,
    /// Parameters are read as `float16`.
    pub(crate) half: bool,
    /// Variables to be read in the place of others, by the others' names.
    pub(crate) instead: BTreeMap<String, Variable>,
}

type SharedOperand = Rc<raw::Operand>;

#[derive(Debug)]
struct GraphState {
    /// None once built.
    builder: RefCell<Option<raw::GraphBuilder>>,
    purpose: GraphPurpose,
    /// One operand a variable, so that gradients are taken with respect to the operand that the model used.
    variables: RefCell<BTreeMap<String, SharedOperand>>,
    /// The operands of parameters as `float16`.
    halves: RefCell<BTreeMap<String, SharedOperand>>,
    /// What variables are assigned.
    assigned: RefCell<BTreeMap<String, SharedOperand>>,
    /// Least and largest elements of variables that have such.
    ranges: RefCell<BTreeMap<String, (f64, f64)>>,
    /// Statistics that are assigned last, when it is known whether the step is sound.
    statistics: RefCell<Vec<(Variable, SharedOperand)>>,
    /// Where it is 0, assignments keep the old value.
    guard: RefCell<Option<SharedOperand>>,
    /// Where it is 0, statistics keep the old value.
    sound: RefCell<Option<SharedOperand>>,
    /// The key that random numbers follow from, and streams of it in use.
    key: RefCell<Option<SharedOperand>>,
    streams: Cell<u32>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::for_purpose(GraphPurpose::default())
    }

    /// An empty graph for a training step: [`Graph::training`] says so to the layers.
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
        }))
    }

    /// Whether the graph is a training step, where some layers behave differently.
    pub fn training(&self) -> bool {
        self.0.purpose.training
    }

    /// The data type that a model computes in: `float16` in a step of mixed precision, else `float32`. Inputs are cast to
    /// it; layers do the rest.
    pub fn float(&self) -> DataType {
        if self.0.purpose.half { DataType::Float16 } else { DataType::Float32 }
    }

    /// A tensor given at each dispatch, by name.
    ///
    /// # Errors
    /// `Host` if the name is taken or the shape beyond the limits; `Built`.
    pub fn input(&self, name: &str, descriptor: &Descriptor) -> Result<Operand> {
        self.add_operand(|builder| builder.input(name, descriptor))
    }

    /// An input for each of these items, stacked `size` times along a new first dimension.
    ///
    /// # Errors
    /// As [`Graph::input`].
    pub fn inputs<'a>(&self, items: impl IntoIterator<Item = (&'a str, &'a Descriptor)>, size: u32) -> Result<Inputs> {
        let made = items
            .into_iter()
            .map(|(name, item)| Ok((name.to_owned(), self.input(name, &batched_descriptor(item, size))?)));
        Ok(Inputs(made.collect::<Result<_>>()?))
    }

    /// A tensor known now: little-endian elements in row-major order.
    ///
    /// # Errors
    /// `Host` if they are not as many as the descriptor takes; `Built`.
    pub fn constant(&self, descriptor: &Descriptor, data: &[u8]) -> Result<Operand> {
        self.add_operand(|builder| builder.constant(descriptor, data))
    }

    /// A `float32` tensor known now.
    ///
    /// # Errors
    /// As [`Graph::constant`].
    pub fn constant_f32(&self, shape: &[u32], data: &[f32]) -> Result<Operand> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.constant(&descriptor(DataType::Float32, shape), &bytes)
    }

    /// One number, rounded to the data type.
    ///
    /// # Errors
    /// `Built`.
    pub fn scalar(&self, data_type: DataType, value: f64) -> Result<Operand> {
        self.add_operand(|builder| builder.scalar(data_type, value))
    }

    /// One number everywhere.
    ///
    /// # Errors
    /// `Host` if the shape is beyond the limits; `Built`.
    pub fn fill(&self, descriptor: &Descriptor, value: f64) -> Result<Operand> {
        self.add_operand(|builder| builder.fill(descriptor, value))
    }

    /// 0, 1, 2, ... along `axis`.
    ///
    /// # Errors
    /// `Host` if there is no such axis; `Built`.
    pub fn iota(&self, descriptor: &Descriptor, axis: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.iota(descriptor, axis))
    }

    /// The variable's value when the dispatch begins; the same operand each time. A parameter comes in the data type of
    /// [`Graph::float`].
    ///
    /// # Errors
    /// `Built`.
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

    /// The variable's value when the dispatch begins, in its own data type; the same operand each time. Optimisers work
    /// with it.
    ///
    /// # Errors
    /// `Built`.
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

    /// Random `float32` numbers in `[0, 1)` that follow from `key` (`uint32[4]`) and `stream` alone.
    ///
    /// # Errors
    /// `Host` if the key is something else; `Built`.
    pub fn random_uniform(&self, shape: &[u32], key: &Operand, stream: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.random_uniform(shape, key.raw(), stream))
    }

    /// Random `float32` numbers of mean 0 and deviation 1 that follow from `key` (`uint32[4]`) and `stream` alone.
    ///
    /// # Errors
    /// `Host` if the key is something else; `Built`.
    pub fn random_normal(&self, shape: &[u32], key: &Operand, stream: u32) -> Result<Operand> {
        self.add_operand(|builder| builder.random_normal(shape, key.raw(), stream))
    }

    /// A key that is another one in every dispatch and a stream that is another one in every call, for random numbers of
    /// a training step. The key is a variable of the namespace, which the graph itself moves on.
    ///
    /// # Errors
    /// `Host`; `Built`.
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

    /// d `loss` / d each of `wrt`; zeros where the loss does not depend on it. `loss` has one element.
    ///
    /// # Errors
    /// `Host` if the loss has more elements or something on the way has no gradient; `Built`.
    pub fn gradients(&self, loss: &Operand, wrt: &[&Operand]) -> Result<Vec<Operand>> {
        let wrt: Vec<&raw::Operand> = wrt.iter().map(|operand| operand.raw()).collect();
        self.add_operands(|builder| builder.gradients(loss.raw(), &wrt))
    }

    /// When a dispatch completes, `variable` holds `value`. Reads in the same graph see the old value.
    ///
    /// # Errors
    /// `Host` if shape or data type differ, or the graph assigns the variable already; `Built`.
    pub fn assign(&self, variable: &Variable, value: &Operand) -> Result<()> {
        let guard = self.0.guard.borrow().clone();
        self.assign_guarded(guard, variable, value)
    }

    /// From now on [`Graph::assign`] limits the variable's elements to that range, whoever calls it.
    pub fn constrain_range(&self, variable: &Variable, low: f64, high: f64) {
        self.0.ranges.borrow_mut().insert(variable.name().to_owned(), (low, high));
    }

    /// [`Graph::assign`] for what is learnt without gradients. In a step of [`Fit`](crate::Fit) that is skipped because
    /// its gradients are not finite, the old value stays.
    ///
    /// # Errors
    /// As [`Graph::assign`], some of them only when the graph is built.
    pub fn assign_statistic(&self, variable: &Variable, value: &Operand) -> Result<()> {
        let value = value.stop_gradient()?;
        self.0.statistics.borrow_mut().push((variable.clone(), Rc::clone(value.shared())));
        Ok(())
    }

    /// From now on [`Graph::assign`] keeps the old value where `set_assignment_guard`, a `uint8` scalar, is 0.
    pub(crate) fn set_assignment_guard(&self, guard: Option<&Operand>) {
        *self.0.guard.borrow_mut() = guard.map(|guard| Rc::clone(guard.shared()));
    }

    /// Statistics keep the old value where `sound`, a `uint8` scalar, is 0.
    pub(crate) fn set_statistics_guard(&self, sound: &Operand) {
        *self.0.sound.borrow_mut() = Some(Rc::clone(sound.shared()));
    }

    /// What the variable is assigned in this graph.
    pub(crate) fn assigned_value(&self, variable: &Variable) -> Option<Operand> {
        self.0.assigned.borrow().get(variable.name()).map(|value| Operand::new(self, Rc::clone(value)))
    }

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

    /// Verifies and compiles the graph. Only the outputs named here can be had from a dispatch. Nothing can be added
    /// to the graph afterwards, even if this fails.
    ///
    /// # Errors
    /// `Host` if the graph is beyond a limit or cannot be compiled; `Built`.
    pub fn build<'a>(&self, outputs: impl IntoIterator<Item = (&'a str, &'a Operand)>) -> Result<Executable> {
        let sound = self.0.sound.borrow().clone();
        for (variable, value) in self.0.statistics.take() {
            self.assign_guarded(sound.clone(), &variable, &Operand::new(self, value))?;
        }
        let outputs: Vec<(String, &raw::Operand)> =
            outputs.into_iter().map(|(name, operand)| (name.to_owned(), operand.raw())).collect();
        let builder = self.0.builder.take().ok_or(Error::Built)?;
        Ok(Executable(raw::GraphBuilder::build(builder, &outputs)?))
    }

    fn with_builder<T>(
        &self,
        call: impl FnOnce(&raw::GraphBuilder) -> std::result::Result<T, HostCallError>,
    ) -> Result<T> {
        Ok(call(self.0.builder.borrow().as_ref().ok_or(Error::Built)?)?)
    }

    /// The operand that a call of the host's builder makes.
    pub(crate) fn add_operand(
        &self,
        call: impl FnOnce(&raw::GraphBuilder) -> std::result::Result<raw::Operand, HostCallError>,
    ) -> Result<Operand> {
        self.with_builder(call).map(|operand| Operand::new(self, Rc::new(operand)))
    }

    /// The operands that a call of the host's builder makes.
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

/// What the host's calls answer.
type HostCallError = crate::bindings::tensors::Error;

/// A graph's inputs by name.
#[derive(Debug, Clone)]
pub struct Inputs(Vec<(String, Operand)>);

impl Inputs {
    /// The input of that name.
    ///
    /// # Errors
    /// `NoSuch` with the names there are.
    pub fn get(&self, name: &str) -> Result<&Operand> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, operand)| operand).ok_or_else(|| Error::NoSuch {
            what: "input",
            name: name.to_owned(),
            known: self.0.iter().map(|(name, _)| name.clone()).collect(),
        })
    }
}

/// A compiled graph.
#[derive(Debug)]
pub struct Executable(raw::Graph);

impl Executable {
    /// Runs it once. Every input is given exactly once, by name.
    ///
    /// # Errors
    /// `Host` if an input is missing, unknown or of another shape, or the device fails.
    pub fn dispatch<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<Vec<NamedTensor>> {
        let inputs: Vec<_> = inputs.into_iter().map(|(name, tensor)| (name.to_owned(), &tensor.0)).collect();
        Ok(self.0.dispatch(&inputs)?.into_iter().map(Into::into).collect())
    }

    pub(crate) fn raw(&self) -> &raw::Graph {
        &self.0
    }
}
