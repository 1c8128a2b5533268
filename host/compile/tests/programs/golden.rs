//! Golden tests of fusion: the schedules of small models' training steps, kernel by kernel.

use expect_test::{ExpectFile, expect_file};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::nn::{self, AdamOptions, Conv2dOptions, Pool2dOptions, SgdOptions};
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphPort, NodeId, Shape, verify};
use saggar_testgen::CaseRng;

use crate::equivalence::{WORD_TARGET, check_matches_interpreter as check_equal};
use saggar_compile::{CompileTarget, compile};

struct GoldenModel {
    builder: GraphBuilder,
    parameters: Vec<(String, NodeId)>,
}

impl GoldenModel {
    fn new() -> GoldenModel {
        GoldenModel { builder: GraphBuilder::new(), parameters: Vec::new() }
    }

    fn parameter(&mut self, name: &str, dims: &[usize]) -> NodeId {
        let node = self.builder.variable(name, float(dims)).unwrap();
        self.parameters.push((name.to_string(), node));
        node
    }

    fn state(&mut self, name: &str, like: NodeId) -> NodeId {
        let descriptor = self.builder.descriptor(like).clone();
        self.builder.variable(name, descriptor).unwrap()
    }

    fn linear(&mut self, x: NodeId, name: &str, [from, to]: [usize; 2]) -> NodeId {
        let weight = self.parameter(&format!("{name}.weight"), &[from, to]);
        let bias = self.parameter(&format!("{name}.bias"), &[to]);
        nn::linear(&mut self.builder, x, weight, Some(bias)).unwrap()
    }

    fn loss(&mut self, logits: NodeId) -> NodeId {
        let batch = self.builder.descriptor(logits).shape[0];
        let labels = Descriptor::new(DType::I32, Shape::new([batch]).unwrap());
        let labels = self.builder.input("labels", labels).unwrap();
        let loss = nn::cross_entropy(&mut self.builder, logits, labels).unwrap();
        self.builder.output("loss", loss).unwrap();
        loss
    }

    fn sgd(mut self, loss: NodeId) -> GraphBuilder {
        let rate = self.builder.input("rate", float(&[])).unwrap();
        let nodes: Vec<NodeId> = self.parameters.iter().map(|(_, node)| *node).collect();
        let gradients = saggar_tensor::grad::gradients(&mut self.builder, loss, &nodes).unwrap();
        for ((name, parameter), gradient) in self.parameters.clone().into_iter().zip(gradients) {
            let velocity = self.state(&format!("{name}.velocity"), parameter);
            let options = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
            let next = nn::sgd(&mut self.builder, &options, parameter, gradient, velocity, rate).unwrap();
            self.builder.assign_to(parameter, next.parameter).unwrap();
            self.builder.assign_to(velocity, next.velocity).unwrap();
        }
        self.builder
    }

    fn adam(mut self, loss: NodeId) -> GraphBuilder {
        let rate = self.builder.input("rate", float(&[])).unwrap();
        let step = self.builder.variable("step", float(&[])).unwrap();
        let one = self.builder.scalar(DType::F32, Scalar::Float(1.0)).unwrap();
        let next_step = self.builder.add(step, one).unwrap();
        self.builder.assign_to(step, next_step).unwrap();
        let nodes: Vec<NodeId> = self.parameters.iter().map(|(_, node)| *node).collect();
        let gradients = saggar_tensor::grad::gradients(&mut self.builder, loss, &nodes).unwrap();
        for ((name, parameter), gradient) in self.parameters.clone().into_iter().zip(gradients) {
            let first = self.state(&format!("{name}.first"), parameter);
            let second = self.state(&format!("{name}.second"), parameter);
            let state = [first, second];
            let next =
                nn::adam(&mut self.builder, &AdamOptions::default(), parameter, gradient, state, next_step, rate)
                    .unwrap();
            self.builder.assign_to(parameter, next.parameter).unwrap();
            self.builder.assign_to(first, next.first).unwrap();
            self.builder.assign_to(second, next.second).unwrap();
        }
        self.builder
    }
}

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn mlp() -> (GoldenModel, NodeId) {
    let mut model = GoldenModel::new();
    let x = model.builder.input("x", float(&[32, 20])).unwrap();
    let hidden = model.linear(x, "hidden", [20, 64]);
    let hidden = nn::relu(&mut model.builder, hidden).unwrap();
    let logits = model.linear(hidden, "output", [64, 3]);
    let loss = model.loss(logits);
    (model, loss)
}

fn lenet(batch: usize) -> (GoldenModel, NodeId) {
    let mut model = GoldenModel::new();
    let mut x = model.builder.input("images", float(&[batch, 1, 28, 28])).unwrap();
    for (name, filter, padding) in [("conv1", [6, 1, 5, 5], 2), ("conv2", [16, 6, 5, 5], 0)] {
        let weight = model.parameter(&format!("{name}.weight"), &filter);
        let bias = model.parameter(&format!("{name}.bias"), &filter[..1]);
        let mut options = Conv2dOptions::default();
        options.conv.padding = [padding; 4];
        x = nn::conv2d(&mut model.builder, x, weight, Some(bias), options).unwrap();
        x = nn::relu(&mut model.builder, x).unwrap();
        let options = Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..Pool2dOptions::default() };
        x = nn::max_pool2d(&mut model.builder, x, options).unwrap();
    }
    x = model.builder.reshape(x, &[batch, 400]).unwrap();
    for (name, sizes) in [("fc1", [400, 120]), ("fc2", [120, 84])] {
        x = model.linear(x, name, sizes);
        x = nn::relu(&mut model.builder, x).unwrap();
    }
    let logits = model.linear(x, "fc3", [84, 10]);
    let loss = model.loss(logits);
    (model, loss)
}

/// Checks the schedule without expressions, and its memory use.
fn check_golden(builder: GraphBuilder, target: &CompileTarget, expected: ExpectFile) {
    let program = compile(&verify(builder.finish()).unwrap(), target).unwrap();
    let text = program.to_string();
    let lines = text.lines().filter(|line| !line.starts_with("    ") && !line.starts_with("  then"));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    expected.assert_eq(&format!("{} kernels\n{lines}", program.kernels.len()));
}

#[test]
fn a_perceptron_with_sgd() {
    let (model, loss) = mlp();
    check_golden(model.sgd(loss), &CompileTarget::cpu(), expect_file!["../../golden/perceptron_sgd.schedule"]);
}

#[test]
fn a_perceptron_with_adam_on_words() {
    let (model, loss) = mlp();
    check_golden(model.adam(loss), &WORD_TARGET, expect_file!["../../golden/perceptron_adam_words.schedule"]);
}

#[test]
fn lenet_with_sgd() {
    let (model, loss) = lenet(64);
    check_golden(model.sgd(loss), &CompileTarget::cpu(), expect_file!["../../golden/lenet_sgd.schedule"]);
}

#[test]
fn softmax_and_layer_normalization() {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", float(&[8, 100])).unwrap();
    let scale = builder.input("scale", float(&[100])).unwrap();
    let softmax = nn::softmax(&mut builder, x, 1).unwrap();
    builder.output("softmax", softmax).unwrap();
    let normal = nn::layer_normalization(&mut builder, x, Some(scale), None, &[1], 1e-5).unwrap();
    builder.output("normal", normal).unwrap();
    check_golden(builder, &CompileTarget::cpu(), expect_file!["../../golden/softmax_layer_normalization.schedule"]);
}

#[test]
fn golden_training_steps_match_the_interpreter() {
    let models = [mlp(), lenet(2)].map(|(model, loss)| model.sgd(loss));
    let models = models.into_iter().chain([mlp(), lenet(2)].map(|(model, loss)| model.adam(loss)));
    for builder in models {
        let graph = verify(builder.finish()).unwrap();
        let mut random = CaseRng::new(7);
        let mut values = |ports: &[GraphPort]| {
            let value = |port: &GraphPort| {
                let Descriptor { dtype, shape } = port.descriptor.clone();
                let numbers: Vec<f64> = (0..shape.elements()).map(|_| random.between(0, 2) as f64 * 0.05).collect();
                InterpTensor::from_numbers(dtype, shape, &numbers).unwrap()
            };
            ports.iter().map(value).collect::<Vec<InterpTensor>>()
        };
        let (inputs, variables) = (values(&graph.inputs), values(&graph.variables));
        for target in [CompileTarget::cpu(), WORD_TARGET, CompileTarget { kernel_values_max: 5, ..WORD_TARGET }] {
            check_equal("training step", &graph, &inputs, &variables, &target);
        }
    }
}
