//! Recurrent networks, unrolled: each step is a few matrix products.
//!
//! Weights contain the matrices of all gates, one below the other in the order of the layout. Float; `float16` is
//! computed in `float32`.

mod cell;
mod sequence;

use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;

pub use cell::{gru_cell, lstm_cell};
pub use sequence::{gru, lstm};

/// Activations of gates and states: WebNN's `MLRecurrentNetworkActivation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentActivation {
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

/// Direction in which a network reads its sequence: WebNN's `MLRecurrentNetworkDirection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecurrentDirection {
    /// From the first step to the last.
    #[default]
    Forward,
    /// From the last step to the first.
    Backward,
    /// Both directions; the weights' first dimension is 2.
    Both,
}

/// Order of a GRU's gates: update `z`, reset `r`, new `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GruLayout {
    /// Update, reset, new.
    #[default]
    Zrn,
    /// Reset, update, new.
    Rzn,
}

/// Order of an LSTM's gates: input `i`, output `o`, forget `f`, cell `g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LstmLayout {
    /// Input, output, forget, cell.
    #[default]
    Iofg,
    /// Input, forget, cell, output.
    Ifgo,
}

/// Options of a GRU. Sizes as in [`gru`]; a cell has no directions axis.
#[derive(Clone, Copy, Debug)]
pub struct GruOptions {
    /// `[directions, 3 * hidden]`, added to the product with the input.
    pub bias: Option<NodeId>,
    /// `[directions, 3 * hidden]`, added to the product with the state.
    pub recurrent_bias: Option<NodeId>,
    /// Whether the reset gate is applied after the product with the state instead of before.
    pub reset_after: bool,
    /// Order of the gates.
    pub layout: GruLayout,
    /// Activations of the gates and of the new state.
    pub activations: [RecurrentActivation; 2],
}

impl Default for GruOptions {
    fn default() -> GruOptions {
        GruOptions {
            bias: None,
            recurrent_bias: None,
            reset_after: true,
            layout: GruLayout::Zrn,
            activations: [RecurrentActivation::Sigmoid, RecurrentActivation::Tanh],
        }
    }
}

/// Options of an LSTM. Sizes as in [`lstm`]; a cell has no directions axis.
#[derive(Clone, Copy, Debug)]
pub struct LstmOptions {
    /// `[directions, 4 * hidden]`, added to the product with the input.
    pub bias: Option<NodeId>,
    /// `[directions, 4 * hidden]`, added to the product with the state.
    pub recurrent_bias: Option<NodeId>,
    /// `[directions, 3 * hidden]`: weights of the cell state in the gates input, output and forget.
    pub peephole: Option<NodeId>,
    /// Order of the gates.
    pub layout: LstmLayout,
    /// Activations of the gates, of the cell gate, and of the cell state.
    pub activations: [RecurrentActivation; 3],
}

impl Default for LstmOptions {
    fn default() -> LstmOptions {
        LstmOptions {
            bias: None,
            recurrent_bias: None,
            peephole: None,
            layout: LstmLayout::Iofg,
            activations: [RecurrentActivation::Sigmoid, RecurrentActivation::Tanh, RecurrentActivation::Tanh],
        }
    }
}

/// Returns `Rank` or `Dimension` if the node does not have exactly these dimensions.
fn check_dims(
    g: &GraphBuilder,
    op: &'static str,
    operand: &'static str,
    node: NodeId,
    dims: &[usize],
) -> Result<(), GraphError> {
    let got = g.descriptor_of(node)?;
    if got.shape.rank() != dims.len() {
        return Err(GraphError::Rank { op, operand, least: dims.len(), most: dims.len(), got: got.clone() });
    }
    for (axis, &expected) in dims.iter().enumerate() {
        if got.shape[axis] != expected {
            return Err(GraphError::Dimension { op, operand, axis, expected, got: got.clone() });
        }
    }
    Ok(())
}
