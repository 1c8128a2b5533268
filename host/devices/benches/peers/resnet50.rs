//! ResNet-50 on images `[b, 3, 224, 224]` with batch normalisation. Training uses the batch's statistics and updates
//! the running ones; inference uses the running ones.
//!
//! Source: He et al., arXiv:1512.03385, with strides in the blocks' second convolutions; Ioffe and Szegedy,
//! arXiv:1502.03167.

use saggar_tensor::NodeResult;
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, GraphBuilder, GraphError, NodeId, nn};

use crate::layers::LayerBuilder;

const EPSILON: f64 = 1e-5;
/// Weight of the batch's statistics in the running ones.
const MOMENTUM: f64 = 0.1;

/// Returns the logits. Shape: `[b, classes]`.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> NodeResult {
    let image = l.input("image")?;
    let x = conv(l, "conv1", image, 3, 2)?;
    let x = norm(l, "norm1", x)?;
    let x = l.relu(x)?;
    let mut x = l.max_pool(x, 3, 1)?;
    for index in 0..l.start.module_count("blocks") {
        let name = format!("blocks.{index}");
        let is_first = l.start.descriptor(&format!("{name}.shortcut.weight")).is_some();
        let stride = if is_first && index > 0 { 2 } else { 1 };
        x = block(l, &name, x, is_first, stride)?;
    }
    let x = nn::average_pool2d(&mut l.g, x, nn::Pool2dOptions::default())?;
    let shape = l.g.descriptor(x).shape.clone();
    let x = l.g.reshape(x, &[shape[0], shape[1]])?;
    l.linear("fc", x)
}

fn block(l: &mut LayerBuilder<'_>, name: &str, x: NodeId, is_first: bool, stride: usize) -> NodeResult {
    let mut y = x;
    for (number, [padding, stride]) in (1..).zip([[0, 1], [1, stride], [0, 1]]) {
        y = conv(l, &format!("{name}.conv{number}"), y, padding, stride)?;
        y = norm(l, &format!("{name}.norm{number}"), y)?;
        if number < 3 {
            y = l.relu(y)?;
        }
    }
    let mut x = x;
    if is_first {
        x = conv(l, &format!("{name}.shortcut"), x, 0, stride)?;
        x = norm(l, &format!("{name}.norm4"), x)?;
    }
    let sum = l.g.add(x, y)?;
    l.relu(sum)
}

fn conv(l: &mut LayerBuilder<'_>, name: &str, x: NodeId, padding: usize, stride: usize) -> NodeResult {
    let filter = l.parameter(&format!("{name}.weight"))?;
    let conv = Conv2d { padding: [padding; 4], strides: [stride; 2], dilations: [1; 2], groups: 1 };
    nn::conv2d(&mut l.g, x, filter, None, nn::Conv2dOptions { conv, ..Default::default() })
}

fn norm(l: &mut LayerBuilder<'_>, name: &str, x: NodeId) -> NodeResult {
    let scale = l.parameter(&format!("{name}.weight"))?;
    let bias = l.parameter(&format!("{name}.bias"))?;
    let running = [l.statistic(&format!("{name}.running_mean"))?, l.statistic(&format!("{name}.running_var"))?];
    let statistics = if l.training { batch_statistics(&mut l.g, x, running)? } else { running };
    nn::batch_normalization(&mut l.g, x, statistics, Some(scale), Some(bias), 1, EPSILON)
}

/// Returns mean and variance of each channel and updates the running ones, with the unbiased variance.
fn batch_statistics(g: &mut GraphBuilder, x: NodeId, running: [NodeId; 2]) -> Result<[NodeId; 2], GraphError> {
    let shape = g.descriptor(x).shape.clone();
    let count = (shape[0] * shape[2] * shape[3]) as f64;
    let wide = nn::reduce_mean(g, x, &[0, 2, 3], true)?;
    let centred = g.sub(x, wide)?;
    let squares = g.mul(centred, centred)?;
    let variance = nn::reduce_mean(g, squares, &[0, 2, 3], false)?;
    let mean = g.reshape(wide, &[shape[1]])?;
    let unbiased = scale_by(g, variance, count / (count - 1.0))?;
    for (running, found) in running.into_iter().zip([mean, unbiased]) {
        let (decayed, found) = (scale_by(g, running, 1.0 - MOMENTUM)?, scale_by(g, found, MOMENTUM)?);
        let next = g.add(decayed, found)?;
        g.assign_to(running, next)?;
    }
    Ok([mean, variance])
}

fn scale_by(g: &mut GraphBuilder, x: NodeId, by: f64) -> NodeResult {
    let factor = g.scalar(DType::F32, Scalar::Float(by))?;
    g.mul(x, factor)
}
