//! Speed of the CPU device's kernels: `cargo bench -p saggar-device [-- threads.. groups..]`.
//!
//! Prints operations, bytes or samples per second of the best of several runs, and of the median. Groups: products,
//! elementwise, folds, convolutions, networks, digits, parts.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

mod digits;
mod lenet;

use std::sync::Arc;
use std::time::Instant;

use saggar_compile::compile;
use saggar_device::{Backend, Buffer, Executable, Meter, cpu};
use saggar_tensor::interp::Value;
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, nn, verify};

/// Seconds that each measurement takes, about.
const SECONDS: f64 = 0.5;

/// A program with its tensors.
struct Loaded {
    executable: Arc<dyn Executable>,
    inputs: Vec<Buffer>,
    variables: Vec<Buffer>,
}

impl Loaded {
    fn new(backend: &dyn Backend, graph: &VerifiedGraph, inputs: &[Value], variables: &[Value]) -> Loaded {
        let meter = Meter::unlimited();
        let program = compile(graph, &backend.target()).expect("the device has all types");
        let buffer = |value: &Value| {
            let buffer = backend.allocate(value.descriptor(), &meter).expect("memory");
            backend.write(&buffer, &value.to_bytes()).expect("sizes agree");
            buffer
        };
        Loaded {
            executable: backend.load(Arc::new(program), &meter).expect("it runs"),
            inputs: inputs.iter().map(buffer).collect(),
            variables: variables.iter().map(buffer).collect(),
        }
    }

    fn run(&self) {
        self.executable.dispatch(&self.inputs, &self.variables).expect("it runs");
    }

    /// Seconds of the fastest run, and of the median one.
    fn seconds(&self) -> (f64, f64) {
        self.run();
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed().as_secs_f64() < SECONDS || times.len() < 3 {
            let started = Instant::now();
            self.run();
            times.push(started.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    }
}

fn value(dims: &[usize]) -> Value {
    let shape = Shape::new(dims).expect("small");
    let numbers: Vec<f64> = (0..shape.elements()).map(|i| (i * 7919 % 2003) as f64 / 1001.5 - 1.0).collect();
    Value::from_numbers(DType::F32, shape, &numbers).expect("as many numbers as elements")
}

type Build<'a> = &'a dyn Fn(&mut GraphBuilder, &[NodeId]) -> Result<NodeId, GraphError>;

/// A program of one operator on inputs of these dimensions.
fn operator(backend: &dyn Backend, inputs: &[&[usize]], build: Build<'_>) -> Loaded {
    let mut g = GraphBuilder::new();
    let values: Vec<Value> = inputs.iter().map(|dims| value(dims)).collect();
    let given = |(index, value): (usize, &Value)| {
        let descriptor: Descriptor = value.descriptor().clone();
        g.input(&format!("x{index}"), descriptor).expect("names differ")
    };
    let nodes: Vec<NodeId> = values.iter().enumerate().map(given).collect();
    let output = build(&mut g, &nodes).expect("the operator is valid");
    g.output("y", output).expect("one output");
    Loaded::new(backend, &verify(g.finish()).expect("the graph is valid"), &values, &[])
}

fn report(name: &str, seconds: (f64, f64), amount: f64, unit: &str) {
    let (best, median) = seconds;
    println!("{name:<28} {:>10.3} ms {:>10.1} {unit} (median {:.1})", best * 1e3, amount / best, amount / median);
}

fn products(backend: &dyn Backend) {
    for n in [128, 512, 1024, 2048] {
        let product = operator(backend, &[&[n, n], &[n, n]], &|g, x| g.matmul(x[0], x[1]));
        report(&format!("matmul {n}"), product.seconds(), 2.0 * (n * n * n) as f64 / 1e9, "GFLOP/s");
    }
    let dense = operator(backend, &[&[64, 800], &[800, 500]], &|g, x| g.matmul(x[0], x[1]));
    report("matmul 64x800x500", dense.seconds(), 2.0 * (64 * 800 * 500) as f64 / 1e9, "GFLOP/s");
}

fn elementwise(backend: &dyn Backend) {
    let n = 1 << 22;
    let bytes = |arrays: usize| (arrays * n * 4) as f64 / 1e9;
    let sum = operator(backend, &[&[n], &[n]], &|g, x| g.add(x[0], x[1]));
    report("add 4M", sum.seconds(), bytes(3), "GB/s");
    let gelu = operator(backend, &[&[n]], &|g, x| nn::gelu(g, x[0]));
    report("gelu 4M", gelu.seconds(), n as f64 / 1e9, "G/s");
    let exp = operator(backend, &[&[n]], &|g, x| g.exp(x[0]));
    report("exp 4M", exp.seconds(), n as f64 / 1e9, "G/s");
    let scale = operator(backend, &[&[2048, 2048], &[2048]], &|g, x| {
        let y = g.mul(x[0], x[1])?;
        let one = g.scalar(DType::F32, Scalar::Float(1.0))?;
        g.add(y, one)
    });
    report("scale rows 2048x2048", scale.seconds(), bytes(2), "GB/s");
    let turned = operator(backend, &[&[2048, 2048]], &|g, x| {
        let turned = g.transpose(x[0], &[1, 0])?;
        g.neg(turned)
    });
    report("transpose 2048x2048", turned.seconds(), bytes(2), "GB/s");
}

fn folds(backend: &dyn Backend) {
    let bytes = (2048 * 2048 * 4) as f64 / 1e9;
    for (name, axes) in [("row sums", vec![1]), ("column sums", vec![0]), ("sum of all", vec![0, 1])] {
        let fold = operator(backend, &[&[2048, 2048]], &|g, x| g.reduce_sum(x[0], &axes, false));
        report(&format!("{name} 2048x2048"), fold.seconds(), bytes, "GB/s");
    }
    let softmax = operator(backend, &[&[2048, 2048]], &|g, x| nn::softmax(g, x[0], 1));
    report("softmax 2048x2048", softmax.seconds(), 2048.0 * 2048.0 / 1e9, "G/s");
}

fn networks(backend: &dyn Backend) {
    for (name, batch, training) in [("train", 64, true), ("predict", 1, false), ("predict", 64, false)] {
        let network = lenet::network(batch, training);
        let loaded = Loaded::new(backend, &network.graph, &network.inputs, &network.variables);
        report(&format!("lenet {name} b{batch}"), loaded.seconds(), batch as f64, "samples/s");
    }
}

/// Convolutions with a bias, on as many images: those of LeNet, of a ResNet for small and for large images, and others.
fn convolutions(backend: &dyn Backend) {
    // Images, channels, height and width, outputs, window, padding, stride.
    let cases = [
        [1, 1, 28, 16, 5, 2, 1],
        [1, 16, 14, 32, 5, 2, 1],
        [8, 16, 14, 32, 5, 2, 1],
        [1, 1, 28, 20, 5, 0, 1],
        [1, 20, 12, 50, 5, 0, 1],
        [1, 3, 32, 16, 3, 1, 1],
        [1, 16, 32, 16, 3, 1, 1],
        [1, 32, 16, 32, 3, 1, 1],
        [1, 64, 8, 64, 3, 1, 1],
        [8, 64, 8, 64, 3, 1, 1],
        [1, 64, 56, 64, 3, 1, 1],
        [1, 128, 28, 128, 3, 1, 1],
        [1, 256, 14, 256, 3, 1, 1],
        [8, 256, 14, 256, 3, 1, 1],
        [1, 512, 7, 512, 3, 1, 1],
        [8, 512, 7, 512, 3, 1, 1],
        [1, 3, 224, 64, 7, 3, 2],
        [1, 64, 56, 128, 3, 1, 2],
        [1, 256, 14, 512, 3, 1, 2],
        [1, 3, 96, 8, 3, 1, 2],
        [1, 64, 56, 64, 1, 0, 1],
        [1, 64, 7, 64, 1, 0, 1],
        [8, 64, 7, 64, 1, 0, 1],
        [1, 16, 28, 4, 3, 1, 1],
        [1, 16, 28, 2, 3, 1, 1],
        [1, 32, 28, 1, 3, 1, 1],
        [1, 256, 4, 256, 3, 1, 1],
        [8, 256, 4, 256, 3, 1, 1],
        [32, 256, 2, 256, 3, 1, 1],
    ];
    for [images, channels, side, outputs, window, padding, stride] in cases {
        let conv = Conv2d { padding: [padding; 4], strides: [stride; 2], dilations: [1; 2], groups: 1 };
        let options = nn::Conv2dOptions { conv, ..Default::default() };
        let sizes: [&[usize]; 3] = [&[images, channels, side, side], &[outputs, channels, window, window], &[outputs]];
        let conv = operator(backend, &sizes, &|g, x| nn::conv2d(g, x[0], x[1], Some(x[2]), options));
        let places = ((side + 2 * padding - window) / stride + 1).pow(2);
        let operations = 2.0 * (images * outputs * places * channels * window * window) as f64 / 1e9;
        let name = format!("{images}x{channels}x{side} {outputs}x{window}p{padding}s{stride}");
        report(&name, conv.seconds(), operations, "GFLOP/s");
    }
    for side in [14, 56] {
        let conv = Conv2d { padding: [1; 4], strides: [1; 2], dilations: [1; 2], groups: 64 };
        let options = nn::Conv2dOptions { conv, ..Default::default() };
        let sizes: [&[usize]; 2] = [&[1, 64, side, side], &[64, 1, 3, 3]];
        let conv = operator(backend, &sizes, &|g, x| nn::conv2d(g, x[0], x[1], None, options));
        let operations = 2.0 * (64 * side * side * 9) as f64 / 1e9;
        report(&format!("1x64x{side} 64 of 1x3p1s1"), conv.seconds(), operations, "GFLOP/s");
    }
}

fn digits(backend: &dyn Backend) {
    for batch in [1, 2, 4, 8, 16, 32] {
        let network = digits::digits(batch);
        let loaded = Loaded::new(backend, &network.graph, &[network.images], &network.variables);
        report(&format!("digits b{batch}"), loaded.seconds(), batch as f64, "samples/s");
    }
}

/// Kernels of that network, each a program of its own.
fn parts(backend: &dyn Backend) {
    let cases: [(&str, &[&[usize]], Build<'_>); 8] = [
        ("nothing", &[&[1]], &|g, x| g.neg(x[0])),
        ("relu of 16 channels", &[&[1, 16, 28, 28], &[16, 1, 1]], &|g, x| {
            let y = g.add(x[0], x[1])?;
            nn::relu(g, y)
        }),
        ("pool 16x28x28", &[&[1, 16, 28, 28]], &|g, x| nn::max_pool2d(g, x[0], halves())),
        ("pool 32x14x14", &[&[1, 32, 14, 14]], &|g, x| nn::max_pool2d(g, x[0], halves())),
        ("matmul 1x1568x64", &[&[1, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 8x1568x64", &[&[8, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 3x1568x64", &[&[3, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 32x1568x64", &[&[32, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
    ];
    for (name, inputs, build) in cases {
        report(name, operator(backend, inputs, build).seconds(), 1.0, "runs/s");
    }
}

fn halves() -> nn::Pool2dOptions {
    nn::Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..nn::Pool2dOptions::default() }
}

/// Measurements of one kind.
type Group = fn(&dyn Backend);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let threads = if given.is_empty() { vec![1, 2] } else { given };
    let groups: [(&str, Group); 7] = [
        ("products", products),
        ("elementwise", elementwise),
        ("folds", folds),
        ("convolutions", convolutions),
        ("networks", networks),
        ("digits", digits),
        ("parts", parts),
    ];
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !groups.iter().any(|(name, _)| named(name));
    for threads in threads {
        let backend = cpu::open(Some(threads)).expect("threads start");
        let info = backend.info();
        println!("{} ({}), {}", info.adapter, info.driver, if cfg!(debug_assertions) { "dev" } else { "release" });
        groups.iter().filter(|(name, _)| all || named(name)).for_each(|(_, group)| group(&*backend));
    }
}
