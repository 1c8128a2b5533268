//! A training step in micro-batches computes what the whole step computes.

#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tensor::error::MicroBatchError;
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::micro_batches::{MicroBatchStep, StepOutput, average_gradients, random_key_offset, split_step};
use saggar_tensor::op::{Op, RandomDistribution, Scalar, SourceOp};
use saggar_tensor::{DType, Descriptor, Graph, GraphBuilder, NodeId, Shape, verify};
use saggar_testgen::{GraphCase, random_graph};

/// Returns the mean of equal shards: summed in order, each sum rounded.
fn mean_value(parts: &[&InterpTensor]) -> InterpTensor {
    let descriptor = parts[0].descriptor().clone();
    let mut sum: Vec<f32> = parts[0].to_f64_numbers().iter().map(|x| *x as f32).collect();
    for part in &parts[1..] {
        sum.iter_mut().zip(part.to_f64_numbers()).for_each(|(sum, x)| *sum += x as f32);
    }
    let numbers: Vec<f64> = sum.iter().map(|sum| f64::from(sum / parts.len() as f32)).collect();
    InterpTensor::from_numbers(descriptor.dtype, descriptor.shape, &numbers).unwrap()
}

/// Runs a step as its two graphs. Returns the variables afterwards, and the outputs of each shard and of the update.
fn run_split_step(
    step: &MicroBatchStep,
    shards: &[Vec<InterpTensor>],
    variables: &[InterpTensor],
) -> (Vec<InterpTensor>, Vec<Vec<InterpTensor>>, Vec<InterpTensor>) {
    let (shard, update) = (verify(step.micro_batch.clone()).unwrap(), verify(step.update.clone()).unwrap());
    let part = |(number_of, inputs): (usize, &Vec<InterpTensor>)| {
        let mut inputs = inputs.clone();
        if step.takes_number {
            let descriptor = Descriptor::new(DType::U32, Shape::new([4]).unwrap());
            inputs.push(InterpTensor::from_bytes(descriptor, &random_key_offset(number_of as u32)).unwrap());
        }
        let mut untouched = variables.to_vec();
        let outputs = evaluate(&shard, &inputs, &mut untouched).unwrap();
        assert_eq!(untouched, variables, "a shard assigns nothing");
        outputs
    };
    let parts: Vec<Vec<InterpTensor>> = shards.iter().enumerate().map(part).collect();
    let means: Vec<InterpTensor> =
        (0..step.means).map(|at| mean_value(&parts.iter().map(|part| &part[at]).collect::<Vec<_>>())).collect();
    let mut variables = variables.to_vec();
    let outputs = evaluate(&update, &means, &mut variables).unwrap();
    (variables, parts, outputs)
}

/// Runs a step in shards without splitting it: evaluates the whole graph for each shard, then once more with the means
/// as constants in place of the nodes that represent them.
fn run_whole_step(
    graph: &Graph,
    means: &[NodeId],
    shards: &[Vec<InterpTensor>],
    variables: &[InterpTensor],
) -> (Vec<InterpTensor>, Vec<Vec<InterpTensor>>) {
    let mut with_gradients = graph.clone();
    with_gradients
        .outputs
        .extend(means.iter().map(|mean| (format!("gradient {}", mean.0), graph.node(*mean).inputs[0])));
    let with_gradients = verify(with_gradients).unwrap();
    let part = |inputs: &Vec<InterpTensor>| evaluate(&with_gradients, inputs, &mut variables.to_vec()).unwrap();
    let parts: Vec<Vec<InterpTensor>> = shards.iter().map(part).collect();
    let mut whole = graph.clone();
    for (at, node) in means.iter().enumerate() {
        let parts: Vec<&InterpTensor> = parts.iter().map(|part| &part[graph.outputs.len() + at]).collect();
        let bytes = mean_value(&parts).to_bytes();
        whole.nodes[node.index()].op = Op::Source(SourceOp::Constant(whole.constants.len() as u32));
        whole.nodes[node.index()].inputs.clear();
        whole.constants.push(bytes.into());
    }
    let mut variables = variables.to_vec();
    evaluate(&verify(whole).unwrap(), &shards[0], &mut variables).unwrap();
    (variables, parts)
}

/// Returns the elements rotated by `by`: other values of the same kind.
fn rotate_elements(value: &InterpTensor, by: usize) -> InterpTensor {
    let size = value.descriptor().dtype.bytes();
    let mut bytes = value.to_bytes();
    if !bytes.is_empty() {
        let by = by * size % bytes.len();
        bytes.rotate_left(by);
    }
    InterpTensor::from_bytes(value.descriptor().clone(), &bytes).unwrap()
}

/// Makes a training step from a random graph: the loss is the sum of its outputs, and gradient descent updates its
/// variables.
fn make_training_step(case: &mut GraphCase) -> Option<Vec<NodeId>> {
    let builder = &mut case.builder;
    let mut sums = Vec::new();
    for &node in &case.output_nodes {
        let Descriptor { dtype, shape } = builder.descriptor(node).clone();
        if dtype == DType::F32 {
            let axes: Vec<usize> = (0..shape.rank()).collect();
            sums.push(builder.reduce_sum(node, &axes, false).unwrap());
        }
    }
    let variables: Vec<NodeId> = (0..builder.graph().nodes.len() as u32).map(NodeId).collect();
    let variables: Vec<NodeId> = variables
        .into_iter()
        .filter(|node| match builder.graph().node(*node).op {
            Op::Source(SourceOp::Variable(number)) => {
                let assigned = builder.graph().assignments.iter().any(|(other, _)| *other == number);
                !assigned && builder.descriptor(*node).dtype == DType::F32
            }
            Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Movement(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_) => false,
        })
        .collect();
    let loss = sums.into_iter().reduce(|sum, more| builder.add(sum, more).unwrap())?;
    let mut gradient_nodes = gradients(builder, loss, &variables).ok()?;
    let mut means = Vec::new();
    average_gradients(builder, &mut means, loss, &variables, &mut gradient_nodes).unwrap();
    for (variable, gradient) in variables.into_iter().zip(gradient_nodes) {
        let rate = builder.fill(builder.descriptor(gradient).clone(), Scalar::Float(0.125)).unwrap();
        let step = builder.mul(rate, gradient).unwrap();
        let next = builder.sub(variable, step).unwrap();
        builder.assign_to(variable, next).unwrap();
    }
    Some(means)
}

#[test]
fn a_split_step_equals_the_whole_step() {
    let mut tried = 0;
    for (seed, shards) in (0..600).flat_map(|seed| [2, 3].map(|shards| (seed, shards))) {
        let mut case = random_graph(seed);
        let Some(means) = make_training_step(&mut case).filter(|means| !means.is_empty()) else { continue };
        let whole = case.verified_graph();
        // Variables that the random graph assigns itself can depend on its inputs.
        let step = match split_step(&whole, &means, &|_| false) {
            Ok(step) if !step.takes_number && step.means <= means.len() => step,
            Ok(_) | Err(MicroBatchError::Assigned { .. } | MicroBatchError::Items { .. }) => continue,
            Err(error) => panic!("{seed}: {error:?}"),
        };
        let shards: Vec<Vec<InterpTensor>> =
            (0..shards).map(|by| case.inputs.iter().map(|value| rotate_elements(value, by)).collect()).collect();
        let (found, found_parts, _) = run_split_step(&step, &shards, &case.variables);
        let (expected, parts) = run_whole_step(&whole, &means, &shards, &case.variables);
        let bytes = |values: &[InterpTensor]| values.iter().map(InterpTensor::to_bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&found), bytes(&expected), "{seed}");
        for (at, output) in step.outputs.iter().enumerate() {
            let StepOutput::MicroBatches(place) = *output else { continue };
            for (found, expected) in found_parts.iter().zip(&parts) {
                assert_eq!(found[place].to_bytes(), expected[at].to_bytes(), "{seed}: output {at}");
            }
        }
        tried += 1;
    }
    assert!(tried > 100, "{tried} steps were cut");
}

/// `loss = mean_value((x w - y)^2)` over two items of three numbers, which a test can extend.
struct RegressionStep {
    builder: GraphBuilder,
    weight: NodeId,
    loss: NodeId,
    means: Vec<NodeId>,
    gradient: NodeId,
}

fn f32_descriptor(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn regression_step() -> RegressionStep {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", f32_descriptor(&[2, 3])).unwrap();
    let y = builder.input("y", f32_descriptor(&[2, 1])).unwrap();
    let weight = builder.variable("w", f32_descriptor(&[3, 1])).unwrap();
    let guess = builder.matmul(x, weight).unwrap();
    let misses = builder.sub(guess, y).unwrap();
    let squares = builder.mul(misses, misses).unwrap();
    let sum = builder.reduce_sum(squares, &[0, 1], false).unwrap();
    let half = builder.scalar(DType::F32, Scalar::Float(0.5)).unwrap();
    let loss = builder.mul(sum, half).unwrap();
    builder.label(loss, "the loss").unwrap();
    let mut means = Vec::new();
    let mut gradient_nodes = gradients(&mut builder, loss, &[weight]).unwrap();
    average_gradients(&mut builder, &mut means, loss, &[weight], &mut gradient_nodes).unwrap();
    RegressionStep { builder, weight, loss, means, gradient: gradient_nodes[0] }
}

impl RegressionStep {
    fn cut(&self) -> Result<MicroBatchStep, MicroBatchError> {
        split_step(&verify(self.builder.clone().finish()).unwrap(), &self.means, &|variable| variable == 1)
    }

    /// Assigns the weight its old value plus `more`, of the same shape.
    fn assign(mut self, more: NodeId) -> RegressionStep {
        let next = self.builder.add(self.weight, more).unwrap();
        self.builder.assign_to(self.weight, next).unwrap();
        self
    }
}

#[test]
fn equal_micro_batches_give_the_gradients_of_the_whole_batch() {
    let mut step = regression_step();
    step.builder.output("loss", step.loss).unwrap();
    let gradient = step.gradient;
    let step = step.assign(gradient).cut().unwrap();
    assert_eq!(step.outputs, [StepOutput::MicroBatches(1)]);
    assert_eq!((step.means, step.takes_number), (1, false));
    let value =
        |dims: &[usize], numbers: &[f64]| InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), numbers);
    let weight = value(&[3, 1], &[1.0, 0.0, -1.0]).unwrap();
    let shards = [[1.0, 2.0, 3.0, 0.0, 1.0, 1.0], [2.0, 0.0, 0.0, 1.0, 1.0, 0.0]]
        .map(|x| vec![value(&[2, 3], &x).unwrap(), value(&[2, 1], &[1.0, 0.0]).unwrap()]);
    let (variables, parts, outputs) = run_split_step(&step, &shards, &[weight]);
    // By hand: residuals -3, -1 and 1, 1; sums of residual * x over all four items, halved.
    assert_eq!(variables[0].to_f64_numbers(), [1.0 + 0.0, -3.0, -1.0 - 5.0]);
    assert_eq!([parts[0][1].to_f64_numbers()[0], parts[1][1].to_f64_numbers()[0]], [5.0, 1.0]);
    assert!(outputs.is_empty());
}

#[test]
fn values_that_differ_by_micro_batch_are_refused_in_the_update() {
    let check = |build: &dyn Fn(&mut RegressionStep) -> NodeId, expected: Option<&str>| {
        let mut step = regression_step();
        let more = build(&mut step);
        let cut = step.assign(more).cut();
        assert_eq!(cut.as_ref().err().and_then(MicroBatchError::place), expected, "{cut:?}");
    };
    check(&|step| step.gradient, None);
    // A mean over the batch can scale the update through any computation.
    check(&|step| step.builder.mul(step.gradient, step.loss).unwrap(), None);
    check(
        &|step| {
            let truth = step.builder.greater(step.loss, step.loss).unwrap();
            let truth = step.builder.cast(truth, DType::F32).unwrap();
            step.builder.mul(step.gradient, truth).unwrap()
        },
        None,
    );
    let features = |step: &mut RegressionStep| {
        let sums = step.builder.reduce_sum(NodeId(0), &[0], false).unwrap();
        step.builder.reshape(sums, &[3, 1]).unwrap()
    };
    check(
        &|step| {
            let features = features(step);
            step.builder.mul(step.gradient, features).unwrap()
        },
        Some("x"),
    );
    check(&features, Some("w"));
}

#[test]
fn statistics_become_their_mean_over_micro_batches() {
    let assigned = |name: &str, second: &str, dims: &[usize]| {
        let mut step = regression_step();
        step.builder.variable(second, f32_descriptor(&[3])).unwrap();
        let variable = step.builder.variable(name, f32_descriptor(dims)).unwrap();
        let sums = step.builder.reduce_sum(NodeId(0), &[0], false).unwrap();
        let value = if dims.is_empty() { step.loss } else { sums };
        step.builder.assign_to(variable, value).unwrap();
        step.cut()
    };
    // Variable 1 is a statistic here; the others are not.
    let step = assigned("mean", "mean", &[3]).unwrap();
    assert_eq!((step.means, step.update.assignments.len()), (1, 1));
    // This also works if the update keeps the old value for an unsound step.
    let mut guarded = regression_step();
    let variable = guarded.builder.variable("mean", f32_descriptor(&[3])).unwrap();
    let sums = guarded.builder.reduce_sum(NodeId(0), &[0], false).unwrap();
    let gradient = guarded.builder.reshape(guarded.gradient, &[3]).unwrap();
    let sound = guarded.builder.greater(gradient, variable).unwrap();
    let next_mean = guarded.builder.select(sound, sums, variable).unwrap();
    guarded.builder.assign_to(variable, next_mean).unwrap();
    assert_eq!(guarded.cut().unwrap().means, 2);
    let place = |cut: Result<MicroBatchStep, MicroBatchError>| cut.unwrap_err().place().map(str::to_owned);
    assert_eq!(place(assigned("state", "other", &[3])).as_deref(), Some("state"));
    assert_eq!(assigned("latest loss", "other", &[]).unwrap().means, 1);
}

#[test]
fn second_order_gradients_of_averaged_gradients_are_refused() {
    let RegressionStep { mut builder, weight, gradient, mut means, .. } = regression_step();
    let square = builder.mul(gradient, gradient).unwrap();
    let norm = builder.reduce_sum(square, &[0, 1], false).unwrap();
    let mut gradient_nodes = gradients(&mut builder, norm, &[weight]).unwrap();
    let error = average_gradients(&mut builder, &mut means, norm, &[weight], &mut gradient_nodes).unwrap_err();
    assert!(matches!(error, MicroBatchError::Nested { .. }), "{error}");
}

#[test]
fn input_gradients_are_not_averaged() {
    let RegressionStep { mut builder, loss, mut means, .. } = regression_step();
    let (x, before) = (NodeId(0), means.len());
    let mut gradient_nodes = gradients(&mut builder, loss, &[x]).unwrap();
    let own = gradient_nodes.clone();
    average_gradients(&mut builder, &mut means, loss, &[x], &mut gradient_nodes).unwrap();
    assert_eq!((gradient_nodes, means.len()), (own, before));
}

#[test]
fn each_micro_batch_draws_its_own_random_numbers() {
    let mut builder = GraphBuilder::new();
    let key = builder.variable("key", Descriptor::new(DType::U32, Shape::new([4]).unwrap())).unwrap();
    let weight = builder.variable("w", f32_descriptor(&[8])).unwrap();
    let noise = builder.random(Shape::new([8]).unwrap(), key, 3, RandomDistribution::Uniform).unwrap();
    let product = builder.mul(noise, weight).unwrap();
    let loss = builder.reduce_sum(product, &[0], false).unwrap();
    let mut means = Vec::new();
    let mut gradient_nodes = gradients(&mut builder, loss, &[weight]).unwrap();
    average_gradients(&mut builder, &mut means, loss, &[weight], &mut gradient_nodes).unwrap();
    builder.assign_to(weight, gradient_nodes[0]).unwrap();
    let one = builder.fill(builder.descriptor(key).clone(), Scalar::Int(1)).unwrap();
    let next = builder.add(key, one).unwrap();
    builder.assign_to(key, next).unwrap();
    let step = split_step(&verify(builder.clone().finish()).unwrap(), &means, &|_| false).unwrap();
    assert!(step.takes_number);
    let key = InterpTensor::from_numbers(DType::U32, Shape::new([4]).unwrap(), &[7.0, 0.0, 5.0, 0.0]).unwrap();
    let weight = InterpTensor::zeros(f32_descriptor(&[8]));
    let (variables, parts, _) = run_split_step(&step, &[Vec::new(), Vec::new()], &[key.clone(), weight]);
    assert_eq!(variables[0].to_f64_numbers(), [8.0, 1.0, 6.0, 1.0], "the update moves the key on, once");
    let draw = |key: &InterpTensor| {
        let mut builder = GraphBuilder::new();
        let node = builder.input("key", key.descriptor().clone()).unwrap();
        let drawn = builder.random(Shape::new([8]).unwrap(), node, 3, RandomDistribution::Uniform).unwrap();
        builder.output("drawn", drawn).unwrap();
        evaluate(&verify(builder.finish()).unwrap(), std::slice::from_ref(key), &mut []).unwrap().remove(0)
    };
    assert_eq!(parts[0][0], draw(&key), "the first shard draws what an undivided batch draws");
    let second = InterpTensor::from_numbers(DType::U32, Shape::new([4]).unwrap(), &[7.0, 0.0, 5.0, 65536.0]).unwrap();
    assert_eq!(parts[1][0], draw(&second));
    assert_eq!(variables[1], mean_value(&[&parts[0][0], &parts[1][0]]));

    // The same random node would draw other numbers in the update.
    let Op::Source(SourceOp::Variable(_)) = builder.graph().nodes[0].op else { panic!("the key comes first") };
    let spread = builder.variable("spread", f32_descriptor(&[8])).unwrap();
    builder.assign_to(spread, noise).unwrap();
    let refused = split_step(&verify(builder.finish()).unwrap(), &means, &|_| false).unwrap_err();
    assert!(matches!(refused, MicroBatchError::Random { .. }), "{refused}");
}
