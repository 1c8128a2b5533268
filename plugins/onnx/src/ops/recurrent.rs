//! Rules of recurrent networks, unrolled: the graph has a copy of the cell for each step of the sequence.

use super::{RuleResult, activation};
use crate::call::OperatorCall;
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::graph::{FoldingGraph, ValueResult};
use crate::value::{GraphValue, checked_size};

/// The maximum number of steps of a sequence.
const STEPS_MAX: usize = 2048;

/// An activation by its ONNX name, with its parameters.
struct OnnxActivation {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

impl OnnxActivation {
    fn apply(&self, g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
        let alpha = |default: f64| self.alpha.unwrap_or(default);
        let beta = |default: f64| self.beta.unwrap_or(default);
        match self.name.to_ascii_lowercase().as_str() {
            "relu" => g.relu(x),
            "tanh" => g.tanh(x),
            "sigmoid" => g.sigmoid(x),
            "softplus" => g.softplus(x),
            "softsign" => g.unary(crate::backend::ElementwiseUnary::Softsign, x),
            "hardsigmoid" => activation::hard_sigmoid(g, x, alpha(0.2), beta(0.5)),
            "affine" => {
                let scaled = g.mul_scalar(x, alpha(1.0))?;
                g.add_scalar(&scaled, beta(0.0))
            }
            "scaledtanh" => {
                let scaled = g.mul_scalar(x, beta(1.0))?;
                let curve = g.tanh(&scaled)?;
                g.mul_scalar(&curve, alpha(1.0))
            }
            "leakyrelu" => {
                let scaled = g.mul_scalar(x, alpha(0.01))?;
                let positive = g.greater(x, &g.scalar_like(x, 0.0))?;
                g.select(&positive, x, &scaled)
            }
            "thresholdedrelu" => {
                let above = g.greater(x, &g.scalar_like(x, alpha(1.0)))?;
                g.select(&above, x, &g.scalar_like(x, 0.0))
            }
            "elu" => {
                let bounded = g.min(x, &g.scalar_like(x, 0.0))?;
                let power = g.exp(&bounded)?;
                let curve = g.add_scalar(&power, -1.0)?;
                let curve = g.mul_scalar(&curve, alpha(1.0))?;
                let positive = g.greater(x, &g.scalar_like(x, 0.0))?;
                g.select(&positive, x, &curve)
            }
            other => Err(Error::unsupported(format!("the activation `{other}`"))),
        }
    }
}

/// The parameters and initial states of one direction.
struct UnrolledDirection {
    /// Shape: `[steps, batch, gates * hidden]`. The input's part of the gates, with its bias.
    projected: GraphValue,
    /// Shape: `[hidden, gates * hidden]`.
    recurrent: GraphValue,
    /// Shape: `[gates * hidden]`.
    recurrent_bias: Option<GraphValue>,
    /// Shape: `[3 * hidden]`.
    peepholes: Option<GraphValue>,
    activations: Vec<OnnxActivation>,
    hidden: usize,
    hidden_state: GraphValue,
    cell_state: GraphValue,
    clip: Option<f64>,
    /// `linear_before_reset` of a GRU, or `input_forget` of an LSTM.
    flag: bool,
}

impl UnrolledDirection {
    fn clip(&self, g: &mut FoldingGraph, x: &GraphValue) -> ValueResult {
        match self.clip {
            Some(clip) => g.clamp(x, Some(-clip), Some(clip)),
            None => Ok(x.clone()),
        }
    }

    /// Clips `x` and applies the activation number `which`.
    fn activate(&self, g: &mut FoldingGraph, x: &GraphValue, which: usize) -> ValueResult {
        let limited = self.clip(g, x)?;
        match self.activations.get(which) {
            Some(activation) => activation.apply(g, &limited),
            None => Err(Error::invalid("there are too few activations")),
        }
    }

    /// Returns the columns of the gate number `gate`.
    fn gate(&self, g: &mut FoldingGraph, gates: &GraphValue, gate: usize) -> ValueResult {
        let axis = gates.rank() - 1;
        g.narrow(gates, axis, gate * self.hidden, self.hidden)
    }

    fn recurrent_projection(&self, g: &mut FoldingGraph, state: &GraphValue) -> ValueResult {
        let product = g.matmul(state, &self.recurrent)?;
        match &self.recurrent_bias {
            Some(bias) => g.add(&product, bias),
            None => Ok(product),
        }
    }
}

/// One step: returns the new states from the input's part of the gates and the old states.
type UnrolledStep =
    fn(&mut FoldingGraph, &UnrolledDirection, &GraphValue, &GraphValue, &GraphValue) -> Result<[GraphValue; 2]>;

/// Builds RNN.
pub(super) fn rnn(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    unroll(g, call, 1, &["Tanh"], |g, d, x, h, c| {
        let gates = d.recurrent_projection(g, h)?;
        let sum = g.add(x, &gates)?;
        Ok([d.activate(g, &sum, 0)?, c.clone()])
    })
}

/// Builds GRU. The gates are update, reset, hidden.
pub(super) fn gru(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    unroll(g, call, 3, &["Sigmoid", "Tanh"], |g, d, x, h, c| {
        let gates = d.recurrent_projection(g, h)?;
        let mut gate = |which: usize| {
            let (from_input, from_state) = (d.gate(g, x, which)?, d.gate(g, &gates, which)?);
            let sum = g.add(&from_input, &from_state)?;
            d.activate(g, &sum, 0)
        };
        let (update, reset) = (gate(0)?, gate(1)?);
        let from_state = if d.flag {
            let part = d.gate(g, &gates, 2)?;
            g.mul(&reset, &part)?
        } else {
            let reset_state = g.mul(&reset, h)?;
            let columns = d.gate(g, &d.recurrent, 2)?;
            let product = g.matmul(&reset_state, &columns)?;
            match &d.recurrent_bias {
                Some(bias) => {
                    let bias = d.gate(g, bias, 2)?;
                    g.add(&product, &bias)?
                }
                None => product,
            }
        };
        let from_input = d.gate(g, x, 2)?;
        let sum = g.add(&from_input, &from_state)?;
        let new = d.activate(g, &sum, 1)?;
        let difference = g.sub(h, &new)?;
        let moved = g.mul(&update, &difference)?;
        Ok([g.add(&new, &moved)?, c.clone()])
    })
}

/// Builds LSTM. The gates are input, output, forget, cell.
pub(super) fn lstm(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    unroll(g, call, 4, &["Sigmoid", "Tanh", "Tanh"], |g, d, x, h, c| {
        let gates = d.recurrent_projection(g, h)?;
        let gates = g.add(x, &gates)?;
        let gate = |g: &mut FoldingGraph, which: usize, peephole: Option<(usize, &GraphValue)>, activation: usize| {
            let mut sum = d.gate(g, &gates, which)?;
            if let (Some(weights), Some((place, cell))) = (&d.peepholes, peephole) {
                let weight = d.gate(g, weights, place)?;
                let seen = g.mul(&weight, cell)?;
                sum = g.add(&sum, &seen)?;
            }
            d.activate(g, &sum, activation)
        };
        let input = gate(g, 0, Some((0, c)), 0)?;
        let forget = if d.flag {
            let rest = g.neg(&input)?;
            g.add_scalar(&rest, 1.0)?
        } else {
            gate(g, 2, Some((2, c)), 0)?
        };
        let candidate = gate(g, 3, None, 1)?;
        let (from_cell, from_candidate) = (g.mul(&forget, c)?, g.mul(&input, &candidate)?);
        let cell = g.add(&from_cell, &from_candidate)?;
        let output = gate(g, 1, Some((1, &cell)), 0)?;
        let activated_cell = d.activate(g, &cell, 2)?;
        Ok([g.mul(&output, &activated_cell)?, cell])
    })
}

/// Unrolls all directions. Results: the states of all steps, the last states, and the last cell states of an LSTM.
fn unroll(
    g: &mut FoldingGraph,
    call: &OperatorCall,
    gates: usize,
    defaults: &[&str],
    step: UnrolledStep,
) -> RuleResult {
    let batch_first = call.flag("layout", false);
    let x = call.input(0)?;
    let x = if batch_first { g.swap_axes(x, 0, 1)? } else { x.clone() };
    let &[steps, batch, _] = x.shape() else { return Err(Error::invalid(format!("a sequence {:?}", x.shape()))) };
    if steps == 0 || steps > STEPS_MAX {
        return Err(Error::unsupported(format!("a sequence of {steps} steps; 1 to {STEPS_MAX} are supported")));
    }
    let lengths = match call.optional(4) {
        Some(lengths) => {
            let lengths = g.cast(lengths, ElementType::Int64)?;
            Some(g.reshape(&lengths, &[batch, 1])?)
        }
        None => None,
    };
    let directions = match &*call.string("direction", "forward") {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Error::invalid(format!("`direction` is `{other}`"))),
    };
    let (mut sequences, mut hidden, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (number, &backward) in directions.iter().enumerate() {
        let direction = read_direction(g, call, &x, number, gates, defaults, directions.len(), batch_first)?;
        let [sequence, h, c] = unroll_direction(g, &direction, steps, lengths.as_ref(), backward, step)?;
        sequences.push(g.unsqueeze(&sequence, 1)?);
        hidden.push(g.unsqueeze(&h, 0)?);
        cells.push(g.unsqueeze(&c, 0)?);
    }
    let (sequence, mut h, mut c) = (g.concat(&sequences, 1)?, g.concat(&hidden, 0)?, g.concat(&cells, 0)?);
    if batch_first {
        h = g.swap_axes(&h, 0, 1)?;
        c = g.swap_axes(&c, 0, 1)?;
        return Ok(vec![g.transpose(&sequence, &[2, 0, 1, 3])?, h, c]);
    }
    Ok(vec![sequence, h, c])
}

#[allow(clippy::too_many_arguments, reason = "one place calls it, with what it has read once for all directions")]
fn read_direction(
    g: &mut FoldingGraph,
    call: &OperatorCall,
    x: &GraphValue,
    number: usize,
    gates: usize,
    defaults: &[&str],
    directions: usize,
    batch_first: bool,
) -> Result<UnrolledDirection> {
    let (steps, batch) = (x.dim(0)?, x.dim(1)?);
    let weight = g.index_axis(call.input(1)?, 0, number)?;
    let recurrent = g.index_axis(call.input(2)?, 0, number)?;
    let hidden = match call.optional_int("hidden_size") {
        Some(hidden) => checked_size(hidden, "hidden_size")?,
        None => recurrent.dim(1)?,
    };
    let weight = g.swap_axes(&weight, 0, 1)?;
    let flat = g.reshape(x, &[steps * batch, x.dim(2)?])?;
    let mut projected = g.matmul(&flat, &weight)?;
    let mut recurrent_bias = None;
    if let Some(bias) = call.optional(3) {
        let bias = g.index_axis(bias, 0, number)?;
        let own = g.narrow(&bias, 0, 0, gates * hidden)?;
        projected = g.add(&projected, &own)?;
        recurrent_bias = Some(g.narrow(&bias, 0, gates * hidden, gates * hidden)?);
    }
    let mut state = |position: usize| match call.optional(position) {
        Some(state) => {
            let state = if batch_first { g.swap_axes(state, 0, 1)? } else { state.clone() };
            g.index_axis(&state, 0, number)
        }
        None => g.fill(x.elem(), &[batch, hidden], 0.0),
    };
    let hidden_state = state(5)?;
    let cell_state = if gates == 4 { state(6)? } else { hidden_state.clone() };
    let peepholes = match call.optional(7) {
        Some(weights) if gates == 4 => Some(g.index_axis(weights, 0, number)?),
        _ => None,
    };
    let recurrent = g.swap_axes(&recurrent, 0, 1)?;
    let projected = g.reshape(&projected, &[steps, batch, gates * hidden])?;
    let activations = read_activations(call, number, defaults, directions);
    let clip = call.attribute("clip").map(|clip| f64::from(clip.f)).filter(|clip| *clip > 0.0);
    let flag = call.flag("linear_before_reset", false) || call.flag("input_forget", false);
    Ok(UnrolledDirection {
        projected,
        recurrent,
        recurrent_bias,
        peepholes,
        activations,
        hidden,
        hidden_state,
        cell_state,
        clip,
        flag,
    })
}

/// Reads the activations of one direction. Parameters belong, in order, to the activations that have any.
fn read_activations(call: &OperatorCall, number: usize, defaults: &[&str], directions: usize) -> Vec<OnnxActivation> {
    let names = call
        .strings("activations")
        .unwrap_or_else(|| (0..directions).flat_map(|_| defaults.iter().map(|&name| name.to_owned())).collect());
    let (alphas, betas) =
        (call.floats("activation_alpha").unwrap_or_default(), call.floats("activation_beta").unwrap_or_default());
    let (mut alphas, mut betas) = (alphas.into_iter(), betas.into_iter());
    let mut all = Vec::new();
    for name in names {
        let (mut alpha, mut beta) = (None, None);
        match name.to_ascii_lowercase().as_str() {
            "affine" | "scaledtanh" | "hardsigmoid" => (alpha, beta) = (alphas.next(), betas.next()),
            "leakyrelu" | "thresholdedrelu" | "elu" => alpha = alphas.next(),
            _ => {}
        }
        all.push(OnnxActivation { name, alpha, beta });
    }
    all.into_iter().skip(number * defaults.len()).take(defaults.len()).collect()
}

/// Unrolls one direction. Returns the hidden states of all steps `[steps, batch, hidden]` and the last hidden and cell
/// states.
///
/// After a sequence's length, its states no longer change and its output is 0.
fn unroll_direction(
    g: &mut FoldingGraph,
    d: &UnrolledDirection,
    steps: usize,
    lengths: Option<&GraphValue>,
    backward: bool,
    step: UnrolledStep,
) -> Result<[GraphValue; 3]> {
    let (mut h, mut c) = (d.hidden_state.clone(), d.cell_state.clone());
    let mut outputs = Vec::with_capacity(steps);
    for i in 0..steps {
        let at = if backward { steps - 1 - i } else { i };
        let x = g.index_axis(&d.projected, 0, at)?;
        let [mut new_h, mut new_c] = step(g, d, &x, &h, &c)?;
        let mut output = new_h.clone();
        if let Some(lengths) = lengths {
            let going = g.greater(lengths, &g.scalar_like(lengths, at as f64))?;
            output = g.select(&going, &new_h, &g.scalar_like(&new_h, 0.0))?;
            new_h = g.select(&going, &new_h, &h)?;
            new_c = g.select(&going, &new_c, &c)?;
        }
        outputs.push(g.unsqueeze(&output, 0)?);
        (h, c) = (new_h, new_c);
    }
    if backward {
        outputs.reverse();
    }
    Ok([concat_steps(g, outputs)?, h, c])
}

/// Concatenates along the first axis, a few operands at a time because the host limits their number.
fn concat_steps(g: &mut FoldingGraph, mut parts: Vec<GraphValue>) -> ValueResult {
    while parts.len() > 1 {
        parts = parts.chunks(128).map(|chunk| g.concat(chunk, 0)).collect::<Result<_>>()?;
    }
    parts.pop().ok_or_else(|| Error::invalid("nothing to join"))
}
