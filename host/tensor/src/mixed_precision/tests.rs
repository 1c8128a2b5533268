use expect_test::{Expect, expect};

use super::*;
use crate::grad;
use crate::interp::{InterpTensor, evaluate};
use crate::micro_batches;
use crate::nn;
use crate::op::{Conv2d, Op, Scalar, UnaryOp};
use crate::{Descriptor, Shape, verify};

fn f32_descriptor(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn value(dims: &[usize], numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), numbers).unwrap()
}

/// Returns pseudorandom numbers between -1 and 1.
fn pseudorandom_value(dims: &[usize], seed: u64) -> InterpTensor {
    let count = dims.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 23) as f64 - 1.0
    };
    value(dims, &(0..count).map(|_| next()).collect::<Vec<f64>>())
}

/// A step under construction, with the variables of the loss scale after its other variables.
struct MixedPrecisionStep {
    builder: GraphBuilder,
    scaled_gradients: ScaledGradients,
    scale: LossScaleNodes,
}

impl MixedPrecisionStep {
    fn new() -> MixedPrecisionStep {
        let mut builder = GraphBuilder::new();
        let count = Descriptor::new(DType::I32, Shape::scalar());
        let scale = LossScaleNodes {
            scale: builder.variable("scale", f32_descriptor(&[])).unwrap(),
            sound_steps: builder.variable("sound steps", count.clone()).unwrap(),
            skipped_steps: builder.variable("left out", count).unwrap(),
        };
        MixedPrecisionStep { builder, scaled_gradients: ScaledGradients::default(), scale }
    }

    /// Adds gradient descent on `loss`, with a learning rate of 1/8.
    fn descend(&mut self, loss: NodeId, wrt: &[NodeId]) {
        let MixedPrecisionStep { builder, scaled_gradients, scale } = self;
        let gradients =
            scaled_loss_gradients(builder, scaled_gradients, scale.scale, loss, wrt, &InterruptCheck::never()).unwrap();
        scaled_gradients.add_checked_gradients(&gradients);
        for (&variable, gradient) in wrt.iter().zip(gradients) {
            let rate = builder.scalar(DType::F32, Scalar::Float(0.125)).unwrap();
            let change = builder.mul(gradient, rate).unwrap();
            let next = builder.sub(variable, change).unwrap();
            builder.assign_to(variable, next).unwrap();
        }
    }

    /// Returns the finished step.
    fn finish(mut self) -> Graph {
        let gradients = self.scaled_gradients.checked_gradients().to_vec();
        let sound = skip_nonfinite_step(&mut self.builder, &gradients).unwrap();
        update_loss_scale(&mut self.builder, sound, &self.scale).unwrap();
        autocast_to_f16(&self.builder.finish(), self.scaled_gradients.contractions()).0
    }
}

fn scale_variables(scale: f64, sound_steps: f64, left_out: f64) -> Vec<InterpTensor> {
    let count = |count| InterpTensor::from_numbers(DType::I32, Shape::scalar(), &[count]).unwrap();
    vec![value(&[], &[scale]), count(sound_steps), count(left_out)]
}

/// Returns a step with the loss `sum(relu(x w) v)`.
fn dense() -> (MixedPrecisionStep, NodeId, [NodeId; 2]) {
    let mut step = MixedPrecisionStep::new();
    let g = &mut step.builder;
    let x = g.input("x", f32_descriptor(&[2, 3])).unwrap();
    let w = g.variable("w", f32_descriptor(&[3, 4])).unwrap();
    let v = g.variable("v", f32_descriptor(&[4, 1])).unwrap();
    let hidden = g.matmul(x, w).unwrap();
    let hidden = nn::relu(g, hidden).unwrap();
    let y = g.matmul(hidden, v).unwrap();
    let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
    (step, loss, [w, v])
}

fn check(graph: &Graph, expected: Expect) {
    expected.assert_eq(&graph.to_string());
}

#[test]
fn only_contractions_take_f16_operands() {
    let (mut step, loss, wrt) = dense();
    let MixedPrecisionStep { builder, scaled_gradients, scale } = &mut step;
    let gradients =
        scaled_loss_gradients(builder, scaled_gradients, scale.scale, loss, &wrt, &InterruptCheck::never()).unwrap();
    builder.output("loss", loss).unwrap();
    builder.output("of w", gradients[0]).unwrap();
    builder.output("of v", gradients[1]).unwrap();
    let (graph, places) = autocast_to_f16(builder.graph(), scaled_gradients.contractions());
    assert_eq!(graph.outputs[0].1, places[loss.index()]);
    let graph = verify(graph).unwrap().into_graph();
    check(
        &graph,
        expect![[r#"
        input "x": float32[2, 3]
        variable "scale": float32[]
        variable "sound steps": int32[]
        variable "left out": int32[]
        variable "w": float32[3, 4]
        variable "v": float32[4, 1]
        %0: float32[] = variable "scale"
        %1: int32[] = variable "sound steps"
        %2: int32[] = variable "left out"
        %3: float32[2, 3] = input "x"
        %4: float32[3, 4] = variable "w"
        %5: float32[4, 1] = variable "v"
        %6: float16[2, 3] = cast %3 {to=float16}
        %7: float16[3, 4] = cast %4 {to=float16}
        %8: float16[2, 4] = matmul %6, %7 {transpose-a=false, transpose-b=false}
        %9: float32[2, 4] = cast %8 {to=float32}
        %10: float32[2, 4] = fill {value=0.0}
        %11: uint8[2, 4] = lesser-or-equal %9, %10
        %12: float32[2, 4] = where %11, %10, %9
        %13: float16[2, 4] = cast %12 {to=float16}
        %14: float16[4, 1] = cast %5 {to=float16}
        %15: float16[2, 1] = matmul %13, %14 {transpose-a=false, transpose-b=false}
        %16: float32[2, 1] = cast %15 {to=float32}
        %17: float32[1, 1] = reduce-sum %16 {axes=[0, 1]}
        %18: float32[] = reshape %17 {shape=[]}
        %19: float32[] = fill {value=1.0}
        %20: float32[] = mul %19, %0
        %21: float32[1, 1] = reshape %20 {shape=[1, 1]}
        %22: float32[2, 1] = expand %21 {shape=[2, 1]}
        %23: float16[] = cast %20 {to=float16}
        %24: float16[1, 1] = reshape %23 {shape=[1, 1]}
        %25: float16[2, 1] = expand %24 {shape=[2, 1]}
        %26: float16[2, 4] = matmul %25, %14 {transpose-a=false, transpose-b=true}
        %27: float32[2, 4] = cast %26 {to=float32}
        %28: float16[4, 1] = matmul %13, %25 {transpose-a=true, transpose-b=false}
        %29: float32[4, 1] = cast %28 {to=float32}
        %30: float32[2, 4] = fill {value=0.0}
        %31: float32[2, 4] = where %11, %30, %27
        %32: float16[2, 4] = cast %31 {to=float16}
        %33: float16[3, 4] = matmul %6, %32 {transpose-a=true, transpose-b=false}
        %34: float32[3, 4] = cast %33 {to=float32}
        %35: float32[] = reciprocal %0
        %36: float32[1, 1] = reshape %35 {shape=[1, 1]}
        %37: float32[3, 4] = expand %36 {shape=[3, 4]}
        %38: float32[3, 4] = mul %34, %37
        %39: float32[1, 1] = reshape %35 {shape=[1, 1]}
        %40: float32[4, 1] = expand %39 {shape=[4, 1]}
        %41: float32[4, 1] = mul %29, %40
        output "loss" = %18
        output "of w" = %38
        output "of v" = %41
    "#]],
    );
}

/// Returns the number of casts of `of` to `to`.
fn cast_count(graph: &Graph, of: NodeId, to: DType) -> usize {
    let is = |node: &&crate::GraphNode| node.op == Op::Unary(UnaryOp::Cast(to)) && node.inputs == [of];
    graph.nodes.iter().filter(is).count()
}

#[test]
fn a_weight_is_cast_to_f16_once_for_all_readers() {
    let mut step = MixedPrecisionStep::new();
    let g = &mut step.builder;
    let x = g.input("x", f32_descriptor(&[2, 2])).unwrap();
    let w = g.variable("w", f32_descriptor(&[2, 2])).unwrap();
    let turned = g.transpose(w, &[1, 0]).unwrap();
    let y = g.matmul(x, w).unwrap();
    // Products of products, and a weight that is moved: neither is widened in between.
    let flat = g.reshape(y, &[1, 4]).unwrap();
    let y = g.reshape(flat, &[2, 2]).unwrap();
    let y = g.matmul(y, turned).unwrap();
    let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
    step.descend(loss, &[w]);
    let graph = step.finish();
    verify(graph.clone()).unwrap();
    let variable = graph.nodes.iter().position(|node| node.op == Op::Source(crate::op::SourceOp::Variable(3))).unwrap();
    assert_eq!(cast_count(&graph, NodeId(variable as u32), DType::F16), 1);
    let narrowed = |node: &&crate::GraphNode| {
        node.op == Op::Unary(UnaryOp::Cast(DType::F16)) && graph.node(node.inputs[0]).op.is_contraction()
    };
    assert_eq!(graph.nodes.iter().filter(narrowed).count(), 0);
}

#[test]
fn only_contractions_that_the_loss_depends_on_are_autocast() {
    let (mut step, loss, wrt) = dense();
    let g = &mut step.builder;
    let aside = g.matmul(wrt[0], wrt[1]).unwrap();
    g.output("aside", aside).unwrap();
    step.descend(loss, &wrt);
    // An update can contain products too.
    let after = step.builder.matmul(wrt[0], wrt[1]).unwrap();
    step.builder.output("after", after).unwrap();
    let graph = step.finish();
    let of = |dtype| graph.nodes.iter().filter(|it| it.op.is_contraction() && it.descriptor.dtype == dtype).count();
    assert_eq!((of(DType::F16), of(DType::F32)), (5, 2));
}

#[test]
fn explicit_f16_casts_of_a_plugin_are_left_alone() {
    let half = |dims: &[usize]| Descriptor::new(DType::F16, Shape::new(dims).unwrap());
    let mut step = MixedPrecisionStep::new();
    let g = &mut step.builder;
    let x = g.input("x", half(&[2, 2])).unwrap();
    let w = g.variable("w", half(&[2, 2])).unwrap();
    let direct = g.matmul(x, w).unwrap();
    // As a composite does.
    let (wide_x, wide_w) = (g.cast(x, DType::F32).unwrap(), g.cast(w, DType::F32).unwrap());
    let wide = g.matmul(wide_x, wide_w).unwrap();
    let direct = g.cast(direct, DType::F32).unwrap();
    let sum = g.add(direct, wide).unwrap();
    let loss = g.reduce_sum(sum, &[0, 1], false).unwrap();
    let scaled_gradients = &mut step.scaled_gradients;
    let gradient =
        scaled_loss_gradients(g, scaled_gradients, step.scale.scale, loss, &[w], &InterruptCheck::never()).unwrap()[0];
    assert_eq!(g.descriptor(gradient).dtype, DType::F16);
    let before = g.graph().clone();
    let (after, places) = autocast_to_f16(&before, scaled_gradients.contractions());
    let of = |it: NodeId| &after.node(places[it.index()]).op;
    for (at, node) in before.nodes.iter().enumerate().take(loss.index()) {
        assert_eq!(of(NodeId(at as u32)), &node.op);
    }

    // The builder that chose the precision also chose the scale.
    assert!(scaled_gradients.is_empty());
    assert!(before.nodes.iter().all(|node| !node.inputs.contains(&step.scale.scale)));
}

#[test]
fn an_f16_loss_is_not_scaled() {
    let (mut step, loss, wrt) = dense();
    let MixedPrecisionStep { builder, scaled_gradients, scale } = &mut step;
    let narrow = builder.cast(loss, DType::F16).unwrap();
    scaled_loss_gradients(builder, scaled_gradients, scale.scale, narrow, &wrt, &InterruptCheck::never()).unwrap();
    assert!(scaled_gradients.is_empty());
}

/// Adds a convolution, a layer and a loss.
fn network(g: &mut GraphBuilder) -> (NodeId, Vec<NodeId>) {
    let x = g.input("x", f32_descriptor(&[4, 2, 6, 6])).unwrap();
    let labels = g.input("labels", Descriptor::new(DType::I32, Shape::new([4]).unwrap())).unwrap();
    let filter = g.variable("filter", f32_descriptor(&[3, 2, 3, 3])).unwrap();
    let w = g.variable("w", f32_descriptor(&[108, 5])).unwrap();
    let b = g.variable("b", f32_descriptor(&[5])).unwrap();
    let conv = Conv2d { padding: [1; 4], strides: [1; 2], dilations: [1; 2], groups: 1 };
    let y = g.conv2d(x, filter, conv).unwrap();
    // A smooth activation, because the slope of ReLU would jump if rounding changed a sign.
    let y = g.tanh(y).unwrap();
    let y = g.reshape(y, &[4, 108]).unwrap();
    let y = g.matmul(y, w).unwrap();
    let y = g.add(y, b).unwrap();
    let loss = nn::cross_entropy(g, y, labels).unwrap();
    (loss, vec![filter, w, b])
}

#[test]
fn autocast_gradients_match_f32_within_f16_tolerance() {
    let inputs = [
        pseudorandom_value(&[4, 2, 6, 6], 1),
        InterpTensor::from_numbers(DType::I32, Shape::new([4]).unwrap(), &[0.0, 4.0, 2.0, 1.0]).unwrap(),
    ];
    let weights = [pseudorandom_value(&[3, 2, 3, 3], 2), pseudorandom_value(&[108, 5], 3), pseudorandom_value(&[5], 4)];
    let mut plain = GraphBuilder::new();
    let (loss, wrt) = network(&mut plain);
    let plain_gradients = grad::gradients(&mut plain, loss, &wrt).unwrap();
    let output = |builder: &mut GraphBuilder, nodes: &[NodeId]| {
        nodes.iter().enumerate().for_each(|(at, node)| builder.output(&format!("{at}"), *node).unwrap());
    };
    output(&mut plain, &[&[loss], &plain_gradients[..]].concat());
    let expected = evaluate(&verify(plain.finish()).unwrap(), &inputs, &mut weights.to_vec()).unwrap();

    let mut step = MixedPrecisionStep::new();
    let (loss, wrt) = network(&mut step.builder);
    let MixedPrecisionStep { builder, scaled_gradients, scale } = &mut step;
    let nodes =
        scaled_loss_gradients(builder, scaled_gradients, scale.scale, loss, &wrt, &InterruptCheck::never()).unwrap();
    output(builder, &[&[loss], &nodes[..]].concat());
    let graph = verify(autocast_to_f16(builder.graph(), scaled_gradients.contractions()).0).unwrap();
    let mut variables = scale_variables(1024.0, 0.0, 0.0);
    variables.extend(weights);
    let found = evaluate(&graph, &inputs, &mut variables).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let (found, expected) = (found.to_f64_numbers(), expected.to_f64_numbers());
        let largest = expected.iter().fold(0.0_f64, |largest, it| largest.max(it.abs()));
        let off = found.iter().zip(&expected).fold(0.0_f64, |off, (a, b)| off.max((a - b).abs()));
        assert!(off > 0.0 && off < 4e-3 * largest, "off by {off} of {largest}");
    }
}

/// Returns the step of `sum(x w) * factor`, its weight, and a count of its steps.
fn product(factor: f64) -> Graph {
    let mut step = MixedPrecisionStep::new();
    let g = &mut step.builder;
    let x = g.input("x", f32_descriptor(&[1, 2])).unwrap();
    let w = g.variable("w", f32_descriptor(&[2, 1])).unwrap();
    let steps = g.variable("steps", Descriptor::new(DType::I32, Shape::scalar())).unwrap();
    let one = g.scalar(DType::I32, Scalar::Int(1)).unwrap();
    let next = g.add(steps, one).unwrap();
    g.assign_to(steps, next).unwrap();
    let y = g.matmul(x, w).unwrap();
    let sum = g.reduce_sum(y, &[0, 1], false).unwrap();
    let factor = g.scalar(DType::F32, Scalar::Float(factor)).unwrap();
    let loss = g.mul(sum, factor).unwrap();
    step.descend(loss, &[w]);
    step.finish()
}

/// Returns weights, steps, scale, sound steps and skipped steps after one step from weights 1, 1.
fn run_product_step(x: [f64; 2], scale: f64, sound_steps: f64) -> (Vec<f64>, f64, [f64; 3]) {
    run_step(&product(1.0), x, scale, sound_steps)
}

fn run_step(step: &Graph, x: [f64; 2], scale: f64, sound_steps: f64) -> (Vec<f64>, f64, [f64; 3]) {
    let mut variables = scale_variables(scale, sound_steps, 7.0);
    variables.push(value(&[2, 1], &[1.0, 1.0]));
    variables.push(InterpTensor::from_numbers(DType::I32, Shape::scalar(), &[3.0]).unwrap());
    evaluate(&verify(step.clone()).unwrap(), &[value(&[1, 2], &x)], &mut variables).unwrap();
    let one = |at: usize| variables[at].to_f64_numbers()[0];
    (variables[3].to_f64_numbers(), one(4), [one(0), one(1), one(2)])
}

#[test]
fn an_overflowing_step_is_skipped_and_halves_the_loss_scale() {
    // The gradient is x times the scale in `float16`.
    assert_eq!(run_product_step([2.0, 4.0], 1024.0, 5.0), (vec![0.75, 0.5], 4.0, [1024.0, 6.0, 7.0]));
    assert_eq!(
        run_product_step([2.0, 64.0], 1024.0, 5.0),
        (vec![1.0, 1.0], 4.0, [512.0, 0.0, 8.0]),
        "it counts its steps"
    );
    assert_eq!(run_product_step([2.0, f64::NAN], 1.0, 5.0), (vec![1.0, 1.0], 4.0, [LOSS_SCALE_MIN, 0.0, 8.0]));
}

#[test]
fn the_loss_scale_doubles_after_the_growth_interval() {
    let last = f64::from(LOSS_SCALE_GROWTH_INTERVAL - 1);
    assert_eq!(run_product_step([2.0, 4.0], 1024.0, last - 1.0).2, [1024.0, last, 7.0]);
    assert_eq!(run_product_step([2.0, 4.0], 1024.0, last).2, [2048.0, 0.0, 7.0]);
    let small = product(2.0_f64.powi(-20));
    assert_eq!(run_step(&small, [1.0, 1.0], LOSS_SCALE_MAX, last).2, [LOSS_SCALE_MAX, 0.0, 7.0]);
}

#[test]
fn loss_scaling_keeps_small_gradients() {
    // Half of the smallest `float16` number: it rounds to 0 without a scale, and not with one.
    let tiny = 2.0_f64.powi(-25);
    let mut step = MixedPrecisionStep::new();
    let g = &mut step.builder;
    let x = g.input("x", f32_descriptor(&[1, 1])).unwrap();
    let w = g.variable("w", f32_descriptor(&[1, 1])).unwrap();
    let y = g.matmul(x, w).unwrap();
    let small = g.scalar(DType::F32, Scalar::Float(tiny)).unwrap();
    let y = g.mul(y, small).unwrap();
    let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
    let gradient =
        scaled_loss_gradients(g, &mut step.scaled_gradients, step.scale.scale, loss, &[w], &InterruptCheck::never())
            .unwrap()[0];
    g.output("gradient", gradient).unwrap();
    let graph = verify(autocast_to_f16(g.graph(), step.scaled_gradients.contractions()).0).unwrap();
    for (scale, expected) in [(1.0, 0.0), (LOSS_SCALE_INITIAL, tiny)] {
        let mut variables = scale_variables(scale, 0.0, 0.0);
        variables.push(value(&[1, 1], &[1.0]));
        let found = evaluate(&graph, &[value(&[1, 1], &[1.0])], &mut variables).unwrap();
        assert_eq!(found[0].to_f64_numbers(), [expected], "{scale}");
    }
}

#[test]
fn micro_batches_check_only_averaged_gradients() {
    let mut step = MixedPrecisionStep::new();
    let (loss, wrt) = network(&mut step.builder);
    let x = NodeId(3);
    let MixedPrecisionStep { builder, scaled_gradients, scale } = &mut step;
    let all = [&wrt[..], &[x]].concat();
    let mut nodes =
        scaled_loss_gradients(builder, scaled_gradients, scale.scale, loss, &all, &InterruptCheck::never()).unwrap();
    let mut means = Vec::new();
    micro_batches::average_gradients(builder, &mut means, loss, &all, &mut nodes).unwrap();
    scaled_gradients.add_checked_gradients(&nodes);
    for (&variable, &gradient) in wrt.iter().zip(&nodes) {
        let next = builder.sub(variable, gradient).unwrap();
        builder.assign_to(variable, next).unwrap();
    }
    let common = micro_batches::replicated_nodes(builder.graph(), &means, scaled_gradients.checked_gradients());
    assert_eq!(common, nodes[..3], "each shard has a gradient of its items for itself");
    let sound = skip_nonfinite_step(builder, &common).unwrap();
    update_loss_scale(builder, sound, scale).unwrap();
    builder.output("loss", loss).unwrap();
    let (graph, places) = autocast_to_f16(builder.graph(), scaled_gradients.contractions());
    let means: Vec<NodeId> = means.iter().map(|node| places[node.index()]).collect();
    let cut = micro_batches::split_step(&verify(graph).unwrap(), &means, &|_| false).unwrap();
    assert_eq!((cut.means, cut.update.assignments.len()), (3, 6));
    let in_update = cut.update.nodes.iter().filter(|node| node.op.is_contraction()).count();
    let halves = |graph: &Graph| graph.nodes.iter().filter(|node| node.descriptor.dtype == DType::F16).count();
    assert_eq!((in_update, halves(&cut.update)), (0, 0));
    assert!(halves(&cut.micro_batch) > 0);
    verify(cut.micro_batch).unwrap();
    verify(cut.update).unwrap();
}
