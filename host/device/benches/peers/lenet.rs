//! LeNet as in Caffe, on images `[b, 1, 28, 28]`.

use saggar_tensor::{GraphError, NodeId};

use crate::layers::LayerBuilder;

/// Returns the logits. Shape: `[b, 10]`.
pub(crate) fn logits(l: &mut LayerBuilder<'_>) -> Result<NodeId, GraphError> {
    let image = l.input("image")?;
    let x = l.conv("conv1", image, 0, 1)?;
    let x = l.max_pool(x, 2, 0)?;
    let x = l.relu(x)?;
    let x = l.conv("conv2", x, 0, 1)?;
    let x = l.max_pool(x, 2, 0)?;
    let x = l.relu(x)?;
    let batch = l.g.descriptor(x).shape[0];
    let x = l.g.reshape(x, &[batch, 800])?;
    let x = l.linear("fc1", x)?;
    let x = l.relu(x)?;
    l.linear("fc2", x)
}
