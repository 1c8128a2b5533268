//! The largest allowed graphs compile in time proportional to their nodes, whatever their shape.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use saggar_tensor::grad::gradients;
use saggar_tensor::limits::GRAPH_OUTPUTS_MAX;
use saggar_tensor::op::{Conv2d, ReduceKind, Scalar};
use saggar_tensor::{
    DType, Descriptor, GraphBuilder, InterruptCheck, InterruptedError, NodeId, Shape, VerifiedGraph, nn, verify,
};
use saggar_testgen::CaseRng;

use saggar_compile::{CompileTarget, compile_interruptible};

/// Builds a graph of about the given number of nodes.
type GraphGenerator = fn(&mut GraphBuilder, usize);

/// The shapes on which a pass could be slow.
const SHAPES: [(&str, GraphGenerator); 26] = [
    ("chain", |g, nodes| {
        let x = input(g, "x");
        let y = (0..nodes).fold(x, |x, _| g.tanh(x).unwrap());
        g.output("y", y).unwrap();
    }),
    ("wide", |g, nodes| {
        let x = input(g, "x");
        let parts = (0..nodes / 4).map(|at| scale_by_position(g, x, at)).collect();
        output_sum(g, parts);
    }),
    ("fan out", |g, nodes| {
        let x = input(g, "x");
        let product = g.matmul(x, x).unwrap();
        let mut sum = product;
        for at in 0..nodes / 3 {
            let part = scale_by_position(g, product, at);
            sum = g.add(sum, part).unwrap();
        }
        g.output("y", sum).unwrap();
    }),
    ("fib", |g, nodes| {
        let (mut a, mut b) = (input(g, "a"), input(g, "b"));
        for _ in 0..nodes {
            (a, b) = (b, g.add(a, b).unwrap());
        }
        g.output("y", b).unwrap();
    }),
    ("diamonds", |g, nodes| {
        let mut x = input(g, "x");
        for _ in 0..nodes / 3 {
            let (left, right) = (g.tanh(x).unwrap(), g.sin(x).unwrap());
            x = g.mul(left, right).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("assigns", |g, nodes| {
        let x = input(g, "x");
        for at in 0..nodes / 4 {
            let held = variable(g, at);
            let part = scale_by_position(g, held, at);
            let next = g.add(part, x).unwrap();
            g.assign_to(held, next).unwrap();
        }
    }),
    ("assigns in a circle", |g, nodes| {
        let held: Vec<NodeId> = (0..nodes / 3).map(|at| variable(g, at)).collect();
        for (at, &variable) in held.iter().enumerate() {
            let next = g.add(held[(at + 1) % held.len()], held[(at + 7) % held.len()]).unwrap();
            g.assign_to(variable, next).unwrap();
        }
    }),
    ("assigns that are used", |g, nodes| {
        // New values are computed early and old ones are read late, with a chain that depends on all new values in
        // between.
        let held: Vec<NodeId> = (0..nodes / 8).map(|at| variable(g, at)).collect();
        let x = input(g, "x");
        let mut all = g.matmul(x, x).unwrap();
        for &variable in &held {
            let next = g.reduce_sum(variable, &[0], true).unwrap();
            let next = g.add(next, variable).unwrap();
            g.assign_to(variable, next).unwrap();
            all = g.add(all, next).unwrap();
            all = g.matmul(all, x).unwrap();
        }
        g.output("new", all).unwrap();
        let turned = held.iter().map(|&variable| g.transpose(variable, &[1, 0]).unwrap()).collect();
        output_sum(g, turned);
    }),
    ("folds", |g, nodes| {
        let x = input(g, "x");
        let mut sum = g.reduce_sum(x, &[0, 1], false).unwrap();
        for at in 0..nodes / 4 {
            let part = scale_by_position(g, x, at);
            let part = g.reduce(ReduceKind::Max, part, &[0, 1], false).unwrap();
            sum = g.add(sum, part).unwrap();
        }
        g.output("y", sum).unwrap();
    }),
    ("folds in a row", |g, nodes| {
        let mut x = input(g, "x");
        for _ in 0..nodes / 3 {
            let sum = g.reduce_sum(x, &[1], true).unwrap();
            x = g.sub(x, sum).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("products", |g, nodes| {
        let (mut x, w) = (input(g, "x"), input(g, "w"));
        for _ in 0..nodes {
            x = g.matmul(x, w).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("sum of products", |g, nodes| {
        let x = input(g, "x");
        let mut sum = x;
        for at in 0..nodes / 4 {
            let part = scale_by_position(g, x, at);
            let part = g.matmul(part, x).unwrap();
            sum = g.add(sum, part).unwrap();
        }
        let sum = g.reduce_sum(sum, &[1], false).unwrap();
        g.output("y", sum).unwrap();
    }),
    ("attention", |g, nodes| {
        let w = input(g, "w");
        let mut x = input(g, "x");
        for _ in 0..nodes / 12 {
            let turned = g.transpose(x, &[1, 0]).unwrap();
            let scores = g.matmul(x, turned).unwrap();
            let weights = nn::softmax(g, scores, 1).unwrap();
            let mixed = g.matmul(weights, x).unwrap();
            let mixed = g.matmul(mixed, w).unwrap();
            x = g.add(x, mixed).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("concatenations", |g, nodes| {
        let mut x = input(g, "x");
        for _ in 0..nodes / 70 {
            let parts: Vec<NodeId> = (0..32).map(|at| scale_by_position(g, x, at)).collect();
            let whole = g.concat(&parts, 0).unwrap();
            x = g.slice(whole, &[7, 0], &[8, 8], &[3, 1]).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("concatenations of the same", |g, nodes| {
        let mut x = input(g, "x");
        for _ in 0..nodes / 2 {
            let whole = g.concat(&[x; 8], 0).unwrap();
            x = g.slice(whole, &[3, 0], &[8, 8], &[7, 1]).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("paddings", |g, nodes| {
        let shape = Shape::new([2; 8]).unwrap();
        let x = g.input("x", Descriptor::new(DType::F32, shape)).unwrap();
        let padded = g.pad(x, &[1; 8], &[0; 8], Scalar::Float(1.0)).unwrap();
        let parts = (0..nodes / 4).map(|at| scale_by_position(g, padded, at)).collect();
        output_sum(g, parts);
    }),
    ("movements", |g, nodes| {
        let mut x = input(g, "x");
        for _ in 0..nodes / 4 {
            x = g.transpose(x, &[1, 0]).unwrap();
            x = g.reverse(x, &[0]).unwrap();
        }
        let spread = |g: &mut GraphBuilder, at: usize| {
            let row = g.narrow(x, 0, at % 8, 1).unwrap();
            let spread = g.broadcast_to(row, Shape::new([8, 8]).unwrap()).unwrap();
            scale_by_position(g, spread, at)
        };
        let parts = (0..nodes / 8).map(|at| spread(g, at)).collect();
        output_sum(g, parts);
    }),
    ("outputs", |g, nodes| {
        let x = input(g, "x");
        let outputs = GRAPH_OUTPUTS_MAX.min(nodes / 4);
        for at in 0..outputs {
            let start = scale_by_position(g, x, at);
            let y = (2..nodes / outputs).fold(start, |y, _| g.sin(y).unwrap());
            g.output(&format!("y{at}"), y).unwrap();
        }
    }),
    ("inputs", |g, nodes| {
        let parts = (0..nodes / 2).map(|at| input(g, &format!("x{at}"))).collect();
        output_sum(g, parts);
    }),
    ("two chains beside each other", |g, nodes| {
        let x = input(g, "x");
        let (mut a, mut b) = (x, x);
        for _ in 0..nodes / 6 {
            for chain in [&mut a, &mut b] {
                let sum = g.reduce_sum(*chain, &[0], true).unwrap();
                let part = g.mul(sum, x).unwrap();
                *chain = g.add(*chain, part).unwrap();
            }
            a = g.sin(a).unwrap();
        }
        output_sum(g, vec![a, b]);
    }),
    ("distant readers", |g, nodes| {
        // Many values, each read once early and again after a long row of reductions.
        let x = input(g, "x");
        let early: Vec<NodeId> = (0..nodes / 12).map(|at| input(g, &format!("x{at}"))).collect();
        let mut parts: Vec<NodeId> = early.iter().map(|&it| g.exp(it).unwrap()).collect();
        let mut row = x;
        for _ in 0..nodes / 12 {
            let sum = g.reduce_sum(row, &[1], true).unwrap();
            row = g.sub(row, sum).unwrap();
        }
        for _ in 0..4 {
            let late: Vec<NodeId> = early.iter().map(|&it| g.mul(it, row).unwrap()).collect();
            parts.extend(late);
            row = g.tanh(row).unwrap();
        }
        output_sum(g, parts);
    }),
    ("windows", |g, nodes| {
        let image = |g: &mut GraphBuilder, name: &str, dims: [usize; 4]| {
            g.input(name, Descriptor::new(DType::F32, Shape::new(dims).unwrap())).unwrap()
        };
        let (mut x, filter) = (image(g, "x", [1, 8, 4, 4]), image(g, "filter", [8, 8, 3, 3]));
        let conv = Conv2d { padding: [1; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
        for _ in 0..nodes / 5 {
            let y = g.conv2d(x, filter, conv).unwrap();
            let y = nn::relu(g, y).unwrap();
            x = g.add(x, y).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("gathers", |g, nodes| {
        let mut x = input(g, "x");
        let places = g.input("places", Descriptor::new(DType::I32, Shape::new([8]).unwrap())).unwrap();
        for at in 0..nodes / 2 {
            x = g.gather(x, places, at % 2).unwrap();
            x = g.abs(x).unwrap();
        }
        g.output("y", x).unwrap();
    }),
    ("anything", |g, nodes| {
        let random = &mut CaseRng::new(7);
        let mut all = vec![input(g, "a"), input(g, "b")];
        while g.graph().nodes.len() < nodes {
            let near = all.len().saturating_sub(if random.once_in(4) { all.len() } else { 40 });
            let [a, b] = [0; 2].map(|_| all[random.between(near, all.len() - 1)]);
            all.push(match random.below(8) {
                0 => g.transpose(a, &[1, 0]).unwrap(),
                1 => g.matmul(a, b).unwrap(),
                2 => g.reduce_max(a, &[1], true).unwrap(),
                3 => {
                    let whole = g.concat(&[a, b], 1);
                    whole.and_then(|whole| g.slice(whole, &[0, 0], &[8, 8], &[1, 1])).unwrap_or(a)
                }
                4 => g.exp(a).unwrap(),
                _ => g.sub(a, b).unwrap(),
            });
            if g.descriptor(*all.last().unwrap()).shape.dims() != [8, 8] {
                let last = all.pop().unwrap();
                all.extend(g.add(last, a).ok().filter(|&sum| g.descriptor(sum).shape.dims() == [8, 8]));
            }
        }
        let last = all[all.len().saturating_sub(400)..].to_vec();
        output_sum(g, last);
    }),
    ("gradients of a chain", |g, nodes| {
        let x = input(g, "x");
        let y = (0..nodes / 7).fold(x, |x, _| g.tanh(x).unwrap());
        let loss = g.reduce_sum(y, &[0, 1], false).unwrap();
        let gradient = gradients(g, loss, &[x]).unwrap()[0];
        g.output("y", gradient).unwrap();
    }),
    ("gradients of layers", |g, nodes| {
        let mut x = input(g, "x");
        let weights: Vec<NodeId> = (0..nodes / 30).map(|at| variable(g, at)).collect();
        for &weight in &weights {
            let product = g.matmul(x, weight).unwrap();
            let y = nn::gelu(g, product).unwrap();
            x = g.add(x, y).unwrap();
        }
        let loss = g.reduce_sum(x, &[0, 1], false).unwrap();
        for (weight, gradient) in weights.iter().zip(gradients(g, loss, &weights).unwrap()) {
            let step = scale_by_position(g, gradient, 1);
            let next = g.sub(*weight, step).unwrap();
            g.assign_to(*weight, next).unwrap();
        }
        g.output("loss", loss).unwrap();
    }),
];

fn matrix() -> Descriptor {
    Descriptor::new(DType::F32, Shape::new([8, 8]).unwrap())
}

fn input(g: &mut GraphBuilder, name: &str) -> NodeId {
    g.input(name, matrix()).unwrap()
}

fn variable(g: &mut GraphBuilder, at: usize) -> NodeId {
    g.variable(&format!("v{at}"), matrix()).unwrap()
}

/// Returns `x` times a number that depends on `at`.
fn scale_by_position(g: &mut GraphBuilder, x: NodeId, at: usize) -> NodeId {
    let factor = g.fill(g.descriptor(x).clone(), Scalar::Float(at as f64 / 64.0 + 0.5)).unwrap();
    g.mul(x, factor).unwrap()
}

/// Adds one output: the pairwise sum of all `parts`.
fn output_sum(g: &mut GraphBuilder, mut parts: Vec<NodeId>) {
    while parts.len() > 1 {
        parts = parts.chunks(2).map(|pair| pair.iter().copied().reduce(|a, b| g.add(a, b).unwrap()).unwrap()).collect();
    }
    g.output("joined", parts[0]).unwrap();
}

fn build_graph(grow: GraphGenerator, nodes: usize) -> VerifiedGraph {
    let mut builder = GraphBuilder::new();
    grow(&mut builder, nodes);
    verify(builder.finish()).unwrap()
}

/// The effort of compiling one graph.
#[derive(Clone, Copy, Debug)]
struct CompileEffort {
    kernels: usize,
    /// Number of interrupt checks: one for each node, kernel and pair of kernels visited.
    steps: usize,
    /// Processor time, if the system reports it.
    time: Duration,
}

/// Returns the processor time of this thread, or the time since `start` if the system does not report it.
fn processor_time(start: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn measure_compile(graph: &VerifiedGraph, target: &CompileTarget) -> CompileEffort {
    let steps = AtomicUsize::new(0);
    let count = || {
        steps.fetch_add(1, Ordering::Relaxed);
        false
    };
    let start = Instant::now();
    let before = processor_time(start);
    let program = compile_interruptible(graph, target, &InterruptCheck::from_condition(&count)).unwrap();
    let time = processor_time(start).saturating_sub(before);
    CompileEffort { kernels: program.kernels.len(), steps: steps.into_inner(), time }
}

/// Compiles graphs with `NODES` nodes: `make fuzz-graphs` takes the largest graphs allowed.
#[test]
fn large_graphs_take_steps_in_proportion_to_their_nodes() {
    let nodes: usize = std::env::var("NODES").map_or(2000, |nodes| nodes.parse().expect("NODES is a number"));
    let only = std::env::var("SHAPE").unwrap_or_default();
    for (name, grow) in SHAPES.into_iter().filter(|(name, _)| name.contains(&only)) {
        for (kind, target) in [("gpu", CompileTarget::gpu()), ("cpu", CompileTarget::cpu())] {
            let [(small, few), (large, many)] = [nodes / 4, nodes].map(|nodes| {
                let graph = build_graph(grow, nodes);
                (graph.nodes.len(), measure_compile(&graph, &target))
            });
            println!("{name} for {kind}: {small} nodes {few:?}, {large} nodes {many:?}");
            let growth = large.div_ceil(small);
            assert!(many.steps <= (growth + 1) * few.steps, "{name} for {kind}: {few:?} {many:?}");
            assert!(many.time <= Duration::from_secs(60) && many.kernels > 0, "{name} for {kind}: {many:?}");
        }
    }
}

#[test]
fn compilation_stops_on_interrupt() {
    for (name, grow) in SHAPES {
        let graph = build_graph(grow, 200);
        for target in [CompileTarget::gpu(), CompileTarget::cpu()] {
            let whole = measure_compile(&graph, &target).steps;
            for last in (0..whole).step_by(whole / 12 + 1) {
                let steps = AtomicUsize::new(0);
                let due = || steps.fetch_add(1, Ordering::Relaxed) >= last;
                let answer = compile_interruptible(&graph, &target, &InterruptCheck::from_condition(&due));
                assert_eq!(answer, Err(InterruptedError.into()), "{name} after {last} of {whole} steps");
            }
        }
    }
}
