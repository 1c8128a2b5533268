//! Layers of networks, built with the graph builder. Names and shapes of their parameters come from a file.

use saggar_tensor::NodeResult;
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, nn};

use crate::tensors::SafetensorsFile;

/// A network under construction.
pub(crate) struct LayerBuilder<'a> {
    pub(crate) g: GraphBuilder,
    pub(crate) start: &'a SafetensorsFile,
    /// Whether it is built for training.
    pub(crate) training: bool,
    /// The parameters so far, with their names.
    pub(crate) parameters: Vec<(String, NodeId)>,
}

impl<'a> LayerBuilder<'a> {
    pub(crate) fn new(start: &'a SafetensorsFile) -> LayerBuilder<'a> {
        LayerBuilder { g: GraphBuilder::new(), start, training: false, parameters: Vec::new() }
    }

    fn descriptor(&self, name: &str) -> Descriptor {
        self.start.descriptor(name).unwrap_or_else(|| panic!("export.py writes {name}")).clone()
    }

    pub(crate) fn input(&mut self, name: &str) -> NodeResult {
        self.g.input(name, self.descriptor(name))
    }

    pub(crate) fn parameter(&mut self, name: &str) -> NodeResult {
        let node = self.g.variable(name, self.descriptor(name))?;
        self.parameters.push((name.to_owned(), node));
        Ok(node)
    }

    /// Adds a variable for the optimiser's state of a parameter; it has the parameter's shape and is initially zero.
    pub(crate) fn state(&mut self, name: &str, parameter: NodeId, kind: &str) -> NodeResult {
        let descriptor = self.g.descriptor(parameter).clone();
        self.g.variable(&format!("{name}.{kind}"), descriptor)
    }

    /// Adds a variable of the file that is not a parameter.
    pub(crate) fn statistic(&mut self, name: &str) -> NodeResult {
        self.g.variable(name, self.descriptor(name))
    }

    pub(crate) fn relu(&mut self, x: NodeId) -> NodeResult {
        nn::relu(&mut self.g, x)
    }

    /// Returns `x w + b`.
    pub(crate) fn linear(&mut self, name: &str, x: NodeId) -> NodeResult {
        let weight = self.parameter(&format!("{name}.weight"))?;
        let bias = self.parameter(&format!("{name}.bias"))?;
        nn::linear(&mut self.g, x, weight, Some(bias))
    }

    /// Returns `x w`.
    pub(crate) fn linear_without_bias(&mut self, name: &str, x: NodeId) -> NodeResult {
        let weight = self.parameter(&format!("{name}.weight"))?;
        self.g.matmul(x, weight)
    }

    /// Returns the logits of each word of a table at each position. Shape: `[b, n, d]`, table `[words, d]` -> `[b * n,
    /// words]`.
    pub(crate) fn vocabulary_logits(&mut self, x: NodeId, table: NodeId) -> NodeResult {
        let shape = self.g.descriptor(x).shape.clone();
        let x = self.g.reshape(x, &[shape[0] * shape[1], shape[2]])?;
        nn::gemm(&mut self.g, x, table, None, nn::GemmOptions { transpose_b: true, ..Default::default() })
    }

    /// Returns a convolution with a bias.
    pub(crate) fn conv(&mut self, name: &str, x: NodeId, padding: usize, stride: usize) -> NodeResult {
        let filter = self.parameter(&format!("{name}.weight"))?;
        let bias = self.parameter(&format!("{name}.bias"))?;
        let conv = Conv2d { padding: [padding; 4], strides: [stride; 2], dilations: [1; 2], groups: 1 };
        nn::conv2d(&mut self.g, x, filter, Some(bias), nn::Conv2dOptions { conv, ..Default::default() })
    }

    /// Returns a max pooling over square windows with strides of 2.
    pub(crate) fn max_pool(&mut self, x: NodeId, window: usize, padding: usize) -> NodeResult {
        let (window, padding) = (Some([window; 2]), [padding; 4]);
        nn::max_pool2d(&mut self.g, x, nn::Pool2dOptions { window, padding, strides: [2; 2], ..Default::default() })
    }

    /// Returns a layer normalisation over the last axis.
    pub(crate) fn norm(&mut self, name: &str, x: NodeId, epsilon: f64) -> NodeResult {
        let scale = self.parameter(&format!("{name}.weight"))?;
        let bias = self.parameter(&format!("{name}.bias"))?;
        let last = self.g.descriptor(x).shape.rank() - 1;
        nn::layer_normalization(&mut self.g, x, Some(scale), Some(bias), &[last], epsilon)
    }

    /// Returns multi-head attention of `x` to `memory`; with `causal`, each position attends to itself and earlier
    /// ones.
    ///
    /// Shape: `x [b, n, d]`, `memory [b, m, d]` -> `[b, n, d]`. Source: Vaswani et al., arXiv:1706.03762.
    pub(crate) fn attention(
        &mut self,
        names: [&str; 4],
        x: NodeId,
        memory: NodeId,
        heads: usize,
        causal: bool,
    ) -> NodeResult {
        let q = self.linear(names[0], x)?;
        let k = self.linear(names[1], memory)?;
        let v = self.linear(names[2], memory)?;
        let (q, k, v) = (self.split_heads(q, heads)?, self.split_heads(k, heads)?, self.split_heads(v, heads)?);
        let g = &mut self.g;
        let k = g.transpose(k, &[0, 1, 3, 2])?;
        let scores = g.matmul(q, k)?;
        let width = g.descriptor(q).shape[3];
        let scale = g.scalar(DType::F32, Scalar::Float(1.0 / (width as f64).sqrt()))?;
        let mut scores = g.mul(scores, scale)?;
        if causal {
            scores = causal_mask(g, scores)?;
        }
        let weights = nn::softmax(g, scores, 3)?;
        let found = g.matmul(weights, v)?;
        let found = g.transpose(found, &[0, 2, 1, 3])?;
        let shape = g.descriptor(x).shape.clone();
        let found = g.reshape(found, &shape)?;
        self.linear(names[3], found)
    }

    /// Splits the last axis into heads. Shape: `[b, n, d]` -> `[b, heads, n, d / heads]`.
    pub(crate) fn split_heads(&mut self, x: NodeId, heads: usize) -> NodeResult {
        let shape = self.g.descriptor(x).shape.clone();
        let x = self.g.reshape(x, &[shape[0], shape[1], heads, shape[2] / heads])?;
        self.g.transpose(x, &[0, 2, 1, 3])
    }
}

/// Masks scores `[b, h, n, m]` whose key comes after the query.
pub(crate) fn causal_mask(g: &mut GraphBuilder, scores: NodeId) -> NodeResult {
    let places = Descriptor::new(DType::I32, g.descriptor(scores).shape.clone());
    let (query, key) = (g.iota(places.clone(), 2)?, g.iota(places, 3)?);
    let later = g.greater(key, query)?;
    let hidden = g.scalar(DType::F32, Scalar::Float(-1e9))?;
    g.select(later, hidden, scores)
}
