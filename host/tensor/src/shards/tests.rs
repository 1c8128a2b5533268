use super::*;
use crate::arbitrary::{Case, graph};
use crate::grad::gradients;
use crate::interp::{Value, evaluate};
use crate::op::{Distribution, Op, Scalar, Source};
use crate::{DType, Descriptor, Shape, verify};

/// The mean of equal shards: added up in their order, each sum rounded.
fn mean(parts: &[&Value]) -> Value {
    let descriptor = parts[0].descriptor().clone();
    let mut sum: Vec<f32> = parts[0].numbers().iter().map(|x| *x as f32).collect();
    for part in &parts[1..] {
        sum.iter_mut().zip(part.numbers()).for_each(|(sum, x)| *sum += x as f32);
    }
    let numbers: Vec<f64> = sum.iter().map(|sum| f64::from(sum / parts.len() as f32)).collect();
    Value::from_numbers(descriptor.dtype, descriptor.shape, &numbers).unwrap()
}

/// The variables after a step that is run in its two graphs, and each shard's outputs of its own.
fn run(step: &Step, shards: &[Vec<Value>], variables: &[Value]) -> (Vec<Value>, Vec<Vec<Value>>, Vec<Value>) {
    let (shard, update) = (verify(step.shard.clone()).unwrap(), verify(step.update.clone()).unwrap());
    let part = |(number_of, inputs): (usize, &Vec<Value>)| {
        let mut inputs = inputs.clone();
        if step.numbered {
            let descriptor = Descriptor::new(DType::U32, Shape::new([4]).unwrap());
            inputs.push(Value::from_bytes(descriptor, &number(number_of as u32)).unwrap());
        }
        let mut untouched = variables.to_vec();
        let outputs = evaluate(&shard, &inputs, &mut untouched).unwrap();
        assert_eq!(untouched, variables, "a shard assigns nothing");
        outputs
    };
    let parts: Vec<Vec<Value>> = shards.iter().enumerate().map(part).collect();
    let means: Vec<Value> =
        (0..step.means).map(|at| mean(&parts.iter().map(|part| &part[at]).collect::<Vec<_>>())).collect();
    let mut variables = variables.to_vec();
    let outputs = evaluate(&update, &means, &mut variables).unwrap();
    (variables, parts, outputs)
}

/// What a step in shards means, without cutting it: the whole graph is evaluated for each shard, then once more with the
/// means as constants in the place of the nodes that stand for them.
fn define(
    graph: &Graph,
    means: &[NodeId],
    shards: &[Vec<Value>],
    variables: &[Value],
) -> (Vec<Value>, Vec<Vec<Value>>) {
    let mut told = graph.clone();
    told.outputs.extend(means.iter().map(|mean| (format!("gradient {}", mean.0), graph.node(*mean).inputs[0])));
    let told = verify(told).unwrap();
    let part = |inputs: &Vec<Value>| evaluate(&told, inputs, &mut variables.to_vec()).unwrap();
    let parts: Vec<Vec<Value>> = shards.iter().map(part).collect();
    let mut whole = graph.clone();
    for (at, node) in means.iter().enumerate() {
        let parts: Vec<&Value> = parts.iter().map(|part| &part[graph.outputs.len() + at]).collect();
        let bytes = mean(&parts).to_bytes();
        whole.nodes[node.index()].op = Op::Source(Source::Constant(whole.constants.len() as u32));
        whole.nodes[node.index()].inputs.clear();
        whole.constants.push(bytes.into());
    }
    let mut variables = variables.to_vec();
    evaluate(&verify(whole).unwrap(), &shards[0], &mut variables).unwrap();
    (variables, parts)
}

/// The elements moved on by `by`: other values of the same kind.
fn turned(value: &Value, by: usize) -> Value {
    let size = value.descriptor().dtype.bytes();
    let mut bytes = value.to_bytes();
    if !bytes.is_empty() {
        let by = by * size % bytes.len();
        bytes.rotate_left(by);
    }
    Value::from_bytes(value.descriptor().clone(), &bytes).unwrap()
}

/// A step over a random graph: its outputs added up are the loss, and its variables go against their gradients.
fn step_of(case: &mut Case) -> Option<Vec<NodeId>> {
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
            Op::Source(Source::Variable(number)) => {
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
    let mut taken = gradients(builder, loss, &variables).ok()?;
    let mut means = Vec::new();
    average(builder, &mut means, loss, &variables, &mut taken).unwrap();
    for (variable, gradient) in variables.into_iter().zip(taken) {
        let rate = builder.fill(builder.descriptor(gradient).clone(), Scalar::Float(0.125)).unwrap();
        let step = builder.mul(rate, gradient).unwrap();
        let next = builder.sub(variable, step).unwrap();
        builder.assign_to(variable, next).unwrap();
    }
    Some(means)
}

#[test]
fn a_step_in_two_graphs_is_what_it_means() {
    let mut tried = 0;
    for (seed, shards) in (0..600).flat_map(|seed| [2, 3].map(|shards| (seed, shards))) {
        let mut case = graph(seed);
        let Some(means) = step_of(&mut case).filter(|means| !means.is_empty()) else { continue };
        let whole = case.verified();
        // Variables that the random graph assigns itself may depend on its inputs.
        let step = match cut(&whole, &means, &|_| false) {
            Ok(step) if !step.numbered && step.means <= means.len() => step,
            Ok(_) | Err(ShardsError::Assigned { .. } | ShardsError::Items { .. }) => continue,
            Err(error) => panic!("{seed}: {error:?}"),
        };
        let shards: Vec<Vec<Value>> =
            (0..shards).map(|by| case.inputs.iter().map(|value| turned(value, by)).collect()).collect();
        let (found, found_parts, _) = run(&step, &shards, &case.variables);
        let (expected, parts) = define(&whole, &means, &shards, &case.variables);
        let bytes = |values: &[Value]| values.iter().map(Value::to_bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&found), bytes(&expected), "{seed}");
        for (at, output) in step.outputs.iter().enumerate() {
            let Output::Shards(place) = *output else { continue };
            for (found, expected) in found_parts.iter().zip(&parts) {
                assert_eq!(found[place].to_bytes(), expected[at].to_bytes(), "{seed}: output {at}");
            }
        }
        tried += 1;
    }
    assert!(tried > 100, "{tried} steps were cut");
}

/// `loss = mean((x w - y)^2)` over two items of three numbers, with what else a test wants.
struct Regression {
    builder: GraphBuilder,
    weight: NodeId,
    loss: NodeId,
    means: Vec<NodeId>,
    gradient: NodeId,
}

fn shape(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn regression() -> Regression {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", shape(&[2, 3])).unwrap();
    let y = builder.input("y", shape(&[2, 1])).unwrap();
    let weight = builder.variable("w", shape(&[3, 1])).unwrap();
    let guess = builder.matmul(x, weight).unwrap();
    let misses = builder.sub(guess, y).unwrap();
    let squares = builder.mul(misses, misses).unwrap();
    let sum = builder.reduce_sum(squares, &[0, 1], false).unwrap();
    let half = builder.scalar(DType::F32, Scalar::Float(0.5)).unwrap();
    let loss = builder.mul(sum, half).unwrap();
    builder.label(loss, "the loss").unwrap();
    let mut means = Vec::new();
    let mut taken = gradients(&mut builder, loss, &[weight]).unwrap();
    average(&mut builder, &mut means, loss, &[weight], &mut taken).unwrap();
    Regression { builder, weight, loss, means, gradient: taken[0] }
}

impl Regression {
    fn cut(&self) -> Result<Step, ShardsError> {
        cut(&verify(self.builder.clone().finish()).unwrap(), &self.means, &|variable| variable == 1)
    }

    /// Assigns the weight what it is and `more`, of its shape.
    fn assign(mut self, more: NodeId) -> Regression {
        let next = self.builder.add(self.weight, more).unwrap();
        self.builder.assign_to(self.weight, next).unwrap();
        self
    }
}

#[test]
fn equal_shards_have_the_gradients_of_the_whole_batch() {
    let mut step = regression();
    step.builder.output("loss", step.loss).unwrap();
    let gradient = step.gradient;
    let step = step.assign(gradient).cut().unwrap();
    assert_eq!(step.outputs, [Output::Shards(1)]);
    assert_eq!((step.means, step.numbered), (1, false));
    let value = |dims: &[usize], numbers: &[f64]| Value::from_numbers(DType::F32, Shape::new(dims).unwrap(), numbers);
    let weight = value(&[3, 1], &[1.0, 0.0, -1.0]).unwrap();
    let shards = [[1.0, 2.0, 3.0, 0.0, 1.0, 1.0], [2.0, 0.0, 0.0, 1.0, 1.0, 0.0]]
        .map(|x| vec![value(&[2, 3], &x).unwrap(), value(&[2, 1], &[1.0, 0.0]).unwrap()]);
    let (variables, parts, outputs) = run(&step, &shards, &[weight]);
    // By hand: misses -3, -1 and 1, 1; sums of miss * x over all four items, halved.
    assert_eq!(variables[0].numbers(), [1.0 + 0.0, -3.0, -1.0 - 5.0]);
    assert_eq!([parts[0][1].numbers()[0], parts[1][1].numbers()[0]], [5.0, 1.0]);
    assert!(outputs.is_empty());
}

#[test]
fn what_differs_between_shards_stays_out_of_the_update() {
    let check = |build: &dyn Fn(&mut Regression) -> NodeId, expected: Option<&str>| {
        let mut step = regression();
        let more = build(&mut step);
        let cut = step.assign(more).cut();
        assert_eq!(cut.as_ref().err().and_then(ShardsError::place), expected, "{cut:?}");
    };
    check(&|step| step.gradient, None);
    // A mean over the batch scales the update, whatever becomes of it on the way.
    check(&|step| step.builder.mul(step.gradient, step.loss).unwrap(), None);
    check(
        &|step| {
            let truth = step.builder.greater(step.loss, step.loss).unwrap();
            let truth = step.builder.cast(truth, DType::F32).unwrap();
            step.builder.mul(step.gradient, truth).unwrap()
        },
        None,
    );
    let features = |step: &mut Regression| {
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
fn statistics_become_the_mean_of_what_shards_make_of_them() {
    let assigned = |name: &str, second: &str, dims: &[usize]| {
        let mut step = regression();
        step.builder.variable(second, shape(&[3])).unwrap();
        let variable = step.builder.variable(name, shape(dims)).unwrap();
        let sums = step.builder.reduce_sum(NodeId(0), &[0], false).unwrap();
        let value = if dims.is_empty() { step.loss } else { sums };
        step.builder.assign_to(variable, value).unwrap();
        step.cut()
    };
    // Variable 1 is a statistic here, and the others are not.
    let step = assigned("mean", "mean", &[3]).unwrap();
    assert_eq!((step.means, step.update.assignments.len()), (1, 1));
    // Also where the update keeps the old one if the step is not sound.
    let mut guarded = regression();
    let variable = guarded.builder.variable("mean", shape(&[3])).unwrap();
    let sums = guarded.builder.reduce_sum(NodeId(0), &[0], false).unwrap();
    let gradient = guarded.builder.reshape(guarded.gradient, &[3]).unwrap();
    let sound = guarded.builder.greater(gradient, variable).unwrap();
    let kept = guarded.builder.select(sound, sums, variable).unwrap();
    guarded.builder.assign_to(variable, kept).unwrap();
    assert_eq!(guarded.cut().unwrap().means, 2);
    let place = |cut: Result<Step, ShardsError>| cut.unwrap_err().place().map(str::to_owned);
    assert_eq!(place(assigned("state", "other", &[3])).as_deref(), Some("state"));
    assert_eq!(assigned("latest loss", "other", &[]).unwrap().means, 1);
}

#[test]
fn gradients_of_gradients_are_refused() {
    let Regression { mut builder, weight, gradient, mut means, .. } = regression();
    let square = builder.mul(gradient, gradient).unwrap();
    let norm = builder.reduce_sum(square, &[0, 1], false).unwrap();
    let mut taken = gradients(&mut builder, norm, &[weight]).unwrap();
    let error = average(&mut builder, &mut means, norm, &[weight], &mut taken).unwrap_err();
    assert!(matches!(error, ShardsError::Nested { .. }), "{error}");
}

#[test]
fn what_every_shard_has_for_itself_has_no_mean() {
    let Regression { mut builder, loss, mut means, .. } = regression();
    let (x, before) = (NodeId(0), means.len());
    let mut taken = gradients(&mut builder, loss, &[x]).unwrap();
    let own = taken.clone();
    average(&mut builder, &mut means, loss, &[x], &mut taken).unwrap();
    assert_eq!((taken, means.len()), (own, before));
}

#[test]
fn every_shard_draws_its_own_numbers() {
    let mut builder = GraphBuilder::new();
    let key = builder.variable("key", Descriptor::new(DType::U32, Shape::new([4]).unwrap())).unwrap();
    let weight = builder.variable("w", shape(&[8])).unwrap();
    let noise = builder.random(Shape::new([8]).unwrap(), key, 3, Distribution::Uniform).unwrap();
    let product = builder.mul(noise, weight).unwrap();
    let loss = builder.reduce_sum(product, &[0], false).unwrap();
    let mut means = Vec::new();
    let mut taken = gradients(&mut builder, loss, &[weight]).unwrap();
    average(&mut builder, &mut means, loss, &[weight], &mut taken).unwrap();
    builder.assign_to(weight, taken[0]).unwrap();
    let one = builder.fill(builder.descriptor(key).clone(), Scalar::Int(1)).unwrap();
    let next = builder.add(key, one).unwrap();
    builder.assign_to(key, next).unwrap();
    let step = cut(&verify(builder.clone().finish()).unwrap(), &means, &|_| false).unwrap();
    assert!(step.numbered);
    let key = Value::from_numbers(DType::U32, Shape::new([4]).unwrap(), &[7.0, 0.0, 5.0, 0.0]).unwrap();
    let weight = Value::zeros(shape(&[8]));
    let (variables, parts, _) = run(&step, &[Vec::new(), Vec::new()], &[key.clone(), weight]);
    assert_eq!(variables[0].numbers(), [8.0, 1.0, 6.0, 1.0], "the update moves the key on, once");
    let draw = |key: &Value| {
        let mut builder = GraphBuilder::new();
        let node = builder.input("key", key.descriptor().clone()).unwrap();
        let drawn = builder.random(Shape::new([8]).unwrap(), node, 3, Distribution::Uniform).unwrap();
        builder.output("drawn", drawn).unwrap();
        evaluate(&verify(builder.finish()).unwrap(), std::slice::from_ref(key), &mut []).unwrap().remove(0)
    };
    assert_eq!(parts[0][0], draw(&key), "the first shard draws what an undivided batch draws");
    let second = Value::from_numbers(DType::U32, Shape::new([4]).unwrap(), &[7.0, 0.0, 5.0, 65536.0]).unwrap();
    assert_eq!(parts[1][0], draw(&second));
    assert_eq!(variables[1], mean(&[&parts[0][0], &parts[1][0]]));

    // The same numbers in the update would be others there.
    let Op::Source(Source::Variable(_)) = builder.graph().nodes[0].op else { panic!("the key comes first") };
    let spread = builder.variable("spread", shape(&[8])).unwrap();
    builder.assign_to(spread, noise).unwrap();
    let refused = cut(&verify(builder.finish()).unwrap(), &means, &|_| false).unwrap_err();
    assert!(matches!(refused, ShardsError::Random { .. }), "{refused}");
}
