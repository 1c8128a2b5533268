//! ResNet-18 on images `[b, 3, 224, 224]`, with batch normalisations folded into the convolutions before them.
//!
//! Source: He et al., arXiv:1512.03385.

use saggar_tensor::{GraphError, NodeId, nn};

use crate::layers::LayerBuilder;

/// Strides of the eight blocks. A block whose stride is not 1 has a convolution as shortcut.
const STRIDES: [usize; 8] = [1, 1, 2, 1, 2, 1, 2, 1];

/// Returns the logits. Shape: `[b, 1000]`.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> Result<NodeId, GraphError> {
    let image = l.input("image")?;
    let x = l.conv("conv1", image, 3, 2)?;
    let x = l.relu(x)?;
    let mut x = l.max_pool(x, 3, 1)?;
    for (index, stride) in STRIDES.into_iter().enumerate() {
        x = block(l, &format!("blocks.{index}"), x, stride)?;
    }
    let x = nn::average_pool2d(&mut l.g, x, nn::Pool2dOptions::default())?;
    let batch = l.g.descriptor(x).shape[0];
    let x = l.g.reshape(x, &[batch, 512])?;
    l.linear("fc", x)
}

fn block(l: &mut LayerBuilder<'_>, name: &str, x: NodeId, stride: usize) -> Result<NodeId, GraphError> {
    let y = l.conv(&format!("{name}.conv1"), x, 1, stride)?;
    let y = l.relu(y)?;
    let y = l.conv(&format!("{name}.conv2"), y, 1, 1)?;
    let x = if stride == 1 { x } else { l.conv(&format!("{name}.shortcut"), x, 0, stride)? };
    let sum = l.g.add(x, y)?;
    l.relu(sum)
}
