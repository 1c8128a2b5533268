//! Speed of the CPU device's kernels, with criterion: `cargo bench -p saggar-device --bench kernels [-- PATTERN]`.
//!
//! Measured on one thread and on two; products also with the gemm crate in the same run. Criterion's elements are
//! floating-point operations for products and convolutions, samples for networks, and tensor elements for all other
//! benchmarks that do not count bytes.

mod digits;
#[path = "peers/gemm.rs"]
mod gemm;
mod lenet;

use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use saggar_compile::compile;
use saggar_device::{Backend, DeviceBuffer, Executable, Meter, cpu};
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, nn, verify};

/// A loaded program with its tensors.
struct KernelBenchProgram {
    executable: Arc<dyn Executable>,
    inputs: Vec<DeviceBuffer>,
    variables: Vec<DeviceBuffer>,
}

impl KernelBenchProgram {
    fn new(
        backend: &dyn Backend,
        graph: &VerifiedGraph,
        inputs: &[InterpTensor],
        variables: &[InterpTensor],
    ) -> KernelBenchProgram {
        let meter = Meter::unlimited();
        let program = compile(graph, &backend.target()).expect("the device has all types");
        let buffer = |value: &InterpTensor| {
            let buffer = backend.allocate(value.descriptor(), &meter).expect("memory");
            backend.write(&buffer, &value.to_bytes()).expect("sizes agree");
            buffer
        };
        KernelBenchProgram {
            executable: backend.load(Arc::new(program), &meter).expect("it runs"),
            inputs: inputs.iter().map(buffer).collect(),
            variables: variables.iter().map(buffer).collect(),
        }
    }

    fn run(&self) {
        self.executable.dispatch(&self.inputs, &self.variables).expect("it runs");
    }
}

fn value(dims: &[usize]) -> InterpTensor {
    let shape = Shape::new(dims).expect("small");
    let numbers: Vec<f64> = (0..shape.elements()).map(|i| (i * 7919 % 2003) as f64 / 1001.5 - 1.0).collect();
    InterpTensor::from_numbers(DType::F32, shape, &numbers).expect("as many numbers as elements")
}

type OperatorBuilder<'a> = &'a dyn Fn(&mut GraphBuilder, &[NodeId]) -> Result<NodeId, GraphError>;

/// Returns a program of one operator on inputs of these dimensions.
fn operator_program(backend: &dyn Backend, inputs: &[&[usize]], build: OperatorBuilder<'_>) -> KernelBenchProgram {
    let mut g = GraphBuilder::new();
    let values: Vec<InterpTensor> = inputs.iter().map(|dims| value(dims)).collect();
    let given = |(index, value): (usize, &InterpTensor)| {
        let descriptor: Descriptor = value.descriptor().clone();
        g.input(&format!("x{index}"), descriptor).expect("names differ")
    };
    let nodes: Vec<NodeId> = values.iter().enumerate().map(given).collect();
    let output = build(&mut g, &nodes).expect("the operator is valid");
    g.output("y", output).expect("one output");
    KernelBenchProgram::new(backend, &verify(g.finish()).expect("the graph is valid"), &values, &[])
}

/// Benchmarks of one kind on one device.
struct KernelBenchGroup<'c> {
    group: BenchmarkGroup<'c, WallTime>,
    backend: &'c dyn Backend,
    threads: usize,
}

impl KernelBenchGroup<'_> {
    /// Measures the program that `build` returns. It is built only if criterion selects the benchmark.
    fn bench_program(&mut self, name: &str, amount: Throughput, build: impl Fn(&dyn Backend) -> KernelBenchProgram) {
        let backend = self.backend;
        self.group.throughput(amount).bench_function(name, |bencher| {
            let loaded = build(backend);
            loaded.run();
            bencher.iter(|| loaded.run());
        });
    }

    /// Measures one operator on inputs of these dimensions.
    fn bench_operator(&mut self, name: &str, amount: Throughput, inputs: &[&[usize]], build: OperatorBuilder<'_>) {
        self.bench_program(name, amount, |backend| operator_program(backend, inputs, build));
    }
}

/// Returns a throughput in operations; a multiply-add counts as two.
fn multiply_add_throughput(multiply_adds: usize) -> Throughput {
    Throughput::Elements(2 * multiply_adds as u64)
}

fn bench_matmuls(group: &mut KernelBenchGroup<'_>) {
    for n in [128, 512, 1024, 2048] {
        let amount = multiply_add_throughput(n * n * n);
        group.bench_operator(&format!("matmul {n}"), amount, &[&[n, n], &[n, n]], &|g, x| g.matmul(x[0], x[1]));
        let threads = group.threads;
        group.group.bench_function(format!("matmul {n}, gemm crate"), |bencher| {
            let numbers = value(&[n, n]).to_f64_numbers().into_iter().map(|number| number as f32);
            let numbers: Vec<f32> = numbers.collect();
            let mut product = gemm::GemmProduct::new(threads, n, numbers.clone(), numbers).expect("threads start");
            bencher.iter(|| product.run());
        });
    }
    let sizes: [&[usize]; 2] = [&[64, 800], &[800, 500]];
    group.bench_operator("matmul 64x800x500", multiply_add_throughput(64 * 800 * 500), &sizes, &|g, x| {
        g.matmul(x[0], x[1])
    });
}

fn bench_elementwise(group: &mut KernelBenchGroup<'_>) {
    let n: usize = 1 << 22;
    let bytes = |arrays: u64| Throughput::Bytes(arrays * 4 * n as u64);
    let numbers = Throughput::Elements(n as u64);
    group.bench_operator("add 4M", bytes(3), &[&[n], &[n]], &|g, x| g.add(x[0], x[1]));
    group.bench_operator("gelu 4M", numbers.clone(), &[&[n]], &|g, x| nn::gelu(g, x[0]));
    group.bench_operator("exp 4M", numbers, &[&[n]], &|g, x| g.exp(x[0]));
    group.bench_operator("scale rows 2048x2048", bytes(2), &[&[2048, 2048], &[2048]], &|g, x| {
        let y = g.mul(x[0], x[1])?;
        let one = g.scalar(DType::F32, Scalar::Float(1.0))?;
        g.add(y, one)
    });
    group.bench_operator("transpose 2048x2048", bytes(2), &[&[2048, 2048]], &|g, x| {
        let turned = g.transpose(x[0], &[1, 0])?;
        g.neg(turned)
    });
}

fn bench_reductions(group: &mut KernelBenchGroup<'_>) {
    let numbers = 2048 * 2048;
    for (name, axes) in [("row sums", vec![1]), ("column sums", vec![0]), ("sum of all", vec![0, 1])] {
        let name = format!("{name} 2048x2048");
        group.bench_operator(&name, Throughput::Bytes(4 * numbers), &[&[2048, 2048]], &|g, x| {
            g.reduce_sum(x[0], &axes, false)
        });
    }
    let softmax: OperatorBuilder<'_> = &|g, x| nn::softmax(g, x[0], 1);
    group.bench_operator("softmax 2048x2048", Throughput::Elements(numbers), &[&[2048, 2048]], softmax);
}

fn bench_networks(group: &mut KernelBenchGroup<'_>) {
    for (name, batch, training) in [("train", 64, true), ("predict", 1, false), ("predict", 64, false)] {
        group.bench_program(&format!("lenet {name} b{batch}"), Throughput::Elements(batch as u64), |backend| {
            let network = lenet::network(batch, training);
            KernelBenchProgram::new(backend, &network.graph, &network.inputs, &network.variables)
        });
    }
}

/// Measures convolutions with a bias on several images: those of LeNet, of a ResNet for small and for large images, and
/// others.
fn bench_convolutions(group: &mut KernelBenchGroup<'_>) {
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
        let places = ((side + 2 * padding - window) / stride + 1).pow(2);
        let amount = multiply_add_throughput(images * outputs * places * channels * window * window);
        let name = format!("{images}x{channels}x{side} {outputs}x{window}p{padding}s{stride}");
        group.bench_operator(&name, amount, &sizes, &|g, x| nn::conv2d(g, x[0], x[1], Some(x[2]), options));
    }
    for side in [14, 56] {
        let conv = Conv2d { padding: [1; 4], strides: [1; 2], dilations: [1; 2], groups: 64 };
        let options = nn::Conv2dOptions { conv, ..Default::default() };
        let sizes: [&[usize]; 2] = [&[1, 64, side, side], &[64, 1, 3, 3]];
        let (name, amount) = (format!("1x64x{side} 64 of 1x3p1s1"), multiply_add_throughput(64 * side * side * 9));
        group.bench_operator(&name, amount, &sizes, &|g, x| nn::conv2d(g, x[0], x[1], None, options));
    }
}

fn bench_digits(group: &mut KernelBenchGroup<'_>) {
    for batch in [1, 2, 4, 8, 16, 32] {
        group.bench_program(&format!("digits b{batch}"), Throughput::Elements(batch as u64), |backend| {
            let network = digits::digits(batch);
            KernelBenchProgram::new(backend, &network.graph, &[network.images], &network.variables)
        });
    }
}

/// Measures each kernel of the digits network as a separate program.
fn bench_digits_kernels(group: &mut KernelBenchGroup<'_>) {
    let cases: [(&str, &[&[usize]], OperatorBuilder<'_>); 8] = [
        ("nothing", &[&[1]], &|g, x| g.neg(x[0])),
        ("relu of 16 channels", &[&[1, 16, 28, 28], &[16, 1, 1]], &|g, x| {
            let y = g.add(x[0], x[1])?;
            nn::relu(g, y)
        }),
        ("pool 16x28x28", &[&[1, 16, 28, 28]], &|g, x| nn::max_pool2d(g, x[0], max_pool_2x2_options())),
        ("pool 32x14x14", &[&[1, 32, 14, 14]], &|g, x| nn::max_pool2d(g, x[0], max_pool_2x2_options())),
        ("matmul 1x1568x64", &[&[1, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 8x1568x64", &[&[8, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 3x1568x64", &[&[3, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
        ("matmul 32x1568x64", &[&[32, 1568], &[1568, 64]], &|g, x| g.matmul(x[0], x[1])),
    ];
    for (name, inputs, build) in cases {
        group.bench_operator(name, Throughput::Elements(1), inputs, build);
    }
}

fn max_pool_2x2_options() -> nn::Pool2dOptions {
    nn::Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..nn::Pool2dOptions::default() }
}

/// Adds benchmarks to a group.
type KernelBenchmark = fn(&mut KernelBenchGroup<'_>);

/// All benchmarks, by name.
const BENCHMARKS: [(&str, KernelBenchmark); 7] = [
    ("products", bench_matmuls),
    ("elementwise", bench_elementwise),
    ("folds", bench_reductions),
    ("convolutions", bench_convolutions),
    ("networks", bench_networks),
    ("digits", bench_digits),
    ("parts", bench_digits_kernels),
];

fn main() {
    let criterion = Criterion::default().sample_size(20);
    let criterion = criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = criterion.configure_from_args();
    for threads in [1, 2] {
        let backend = cpu::open(Some(threads)).expect("threads start");
        let info = backend.info();
        for (name, measure) in BENCHMARKS {
            let name = format!("{name}, {}, {}", info.adapter, info.driver);
            let group = criterion.benchmark_group(name);
            let mut group = KernelBenchGroup { group, backend: &*backend, threads };
            measure(&mut group);
            group.group.finish();
        }
    }
    criterion.final_summary();
}
