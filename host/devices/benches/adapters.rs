//! Speed of every adapter's kernels, with criterion: `cargo bench -p saggar-device --bench adapters [-- PATTERN]`.
//!
//! Each kernel is measured in the adapter's default variant and in others: matrix products with and without cooperative
//! matrices, reductions with and without subgroups, attention and its gradients with stored and with recomputed scores.
//! Times are wall times of consecutive dispatches with one wait at the end. Software adapters are measured on smaller
//! tensors, which says nothing about hardware.

mod lenet;

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use saggar_compile::compile;
use saggar_compile::target::CompileTarget;
use saggar_device::{Backend, DeviceBuffer, Executable, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, VerifiedGraph, nn, verify};
use saggar_testgen::{AttentionConfig, MaskKind, attention_case};

/// A loaded program with its tensors.
struct AdapterBenchProgram<'a> {
    device: &'a dyn Backend,
    executable: Arc<dyn Executable>,
    inputs: Vec<DeviceBuffer>,
    variables: Vec<DeviceBuffer>,
}

impl AdapterBenchProgram<'_> {
    fn new<'a>(
        device: &'a dyn Backend,
        target: &CompileTarget,
        graph: &VerifiedGraph,
        [inputs, variables]: [&[InterpTensor]; 2],
    ) -> AdapterBenchProgram<'a> {
        let meter = Meter::unlimited();
        let program = compile(graph, target).expect("the adapter has all types");
        let buffer = |value: &InterpTensor| {
            let buffer = device.allocate(value.descriptor(), &meter).expect("memory");
            device.write(&buffer, &value.to_bytes()).expect("sizes agree");
            buffer
        };
        AdapterBenchProgram {
            device,
            executable: device.load(Arc::new(program), &meter).expect("it loads"),
            inputs: inputs.iter().map(buffer).collect(),
            variables: variables.iter().map(buffer).collect(),
        }
    }

    /// Returns the wall time of this many dispatches.
    fn time_dispatches(&self, dispatches: u64) -> Duration {
        let began = Instant::now();
        for _ in 0..dispatches {
            self.executable.dispatch(&self.inputs, &self.variables).expect("it runs");
        }
        self.device.synchronize().expect("it runs");
        began.elapsed()
    }
}

/// Benchmarks on one adapter.
struct AdapterBenchGroup<'c> {
    group: BenchmarkGroup<'c, WallTime>,
    index: usize,
    software: bool,
}

impl AdapterBenchGroup<'_> {
    fn default_tuning(&self) -> ShaderTuning {
        let (matrices, subgroup) = (saggar_gpu::cooperative_matrix(self.index), saggar_gpu::subgroup_size(self.index));
        ShaderTuning {
            workgroup_memory: !self.software,
            cooperative_matrix: matrices,
            subgroup,
            ..ShaderTuning::UNLIMITED
        }
    }

    /// Measures a graph with the given tuning, compiled for `target` of the device's target. The graph is built only if
    /// criterion selects the benchmark.
    fn bench_graph(
        &mut self,
        name: &str,
        amount: Throughput,
        tuning: ShaderTuning,
        target: fn(CompileTarget) -> CompileTarget,
        graph: &dyn Fn() -> (VerifiedGraph, Vec<InterpTensor>, Vec<InterpTensor>),
    ) {
        let index = self.index;
        self.group.throughput(amount).bench_function(name, |bencher| {
            let device = saggar_gpu::open_tuned(index, tuning).expect("it opens");
            let (graph, inputs, variables) = graph();
            let loaded = AdapterBenchProgram::new(&*device, &target(device.target()), &graph, [&inputs, &variables]);
            loaded.time_dispatches(1);
            bencher.iter_custom(|dispatches| loaded.time_dispatches(dispatches));
        });
    }
}

fn value(dtype: DType, dims: &[usize]) -> InterpTensor {
    let shape = Shape::new(dims).expect("small");
    let numbers: Vec<f64> = (0..shape.elements()).map(|i| (i * 7919 % 2003) as f64 / 1001.5 - 1.0).collect();
    InterpTensor::from_numbers(dtype, shape, &numbers).expect("as many numbers as elements")
}

/// Returns a graph of one operator on inputs of this type and these dimensions.
fn operator_graph(
    dtype: DType,
    inputs: &[&[usize]],
    build: impl Fn(&mut GraphBuilder, &[NodeId]) -> NodeId,
) -> (VerifiedGraph, Vec<InterpTensor>, Vec<InterpTensor>) {
    let mut g = GraphBuilder::new();
    let mut nodes = Vec::new();
    for (number, dims) in inputs.iter().enumerate() {
        let descriptor = Descriptor::new(dtype, Shape::new(*dims).expect("small"));
        nodes.push(g.input(&format!("x{number}"), descriptor).expect("names differ"));
    }
    let output = build(&mut g, &nodes);
    g.output("y", output).expect("one output");
    let values = inputs.iter().map(|dims| value(dtype, dims)).collect();
    (verify(g.finish()).expect("it is valid"), values, Vec::new())
}

fn bench_matmuls(group: &mut AdapterBenchGroup<'_>) {
    for n in if group.software { [64, 128, 256] } else { [1024, 2048, 4096] } {
        let amount = Throughput::Elements(2 * (n as u64).pow(3));
        let product =
            |dtype| operator_graph(dtype, &[&[n, n], &[n, n]], |g, x| g.matmul(x[0], x[1]).expect("sizes agree"));
        let suited = group.default_tuning();
        group.bench_graph(&format!("float32 {n}"), amount.clone(), suited, |target| target, &|| product(DType::F32));
        group.bench_graph(&format!("float16 {n}"), amount.clone(), suited, |target| target, &|| product(DType::F16));
        let by_lanes = ShaderTuning { cooperative_matrix: None, ..suited };
        group
            .bench_graph(&format!("float16 {n}, by lanes"), amount, by_lanes, |target| target, &|| product(DType::F16));
    }
}

fn bench_reductions(group: &mut AdapterBenchGroup<'_>) {
    let side = if group.software { 256 } else { 4096 };
    let suited = group.default_tuning();
    for (name, axis) in [("rows", 1), ("columns", 0)] {
        let amount = Throughput::Bytes(4 * (side * side) as u64);
        let sums = || {
            operator_graph(DType::F32, &[&[side, side]], |g, x| g.reduce_sum(x[0], &[axis], false).expect("an axis"))
        };
        group.bench_graph(&format!("sums of {name}"), amount.clone(), suited, |target| target, &sums);
        let shared = ShaderTuning { subgroup: None, ..suited };
        group.bench_graph(&format!("sums of {name}, without subgroups"), amount, shared, |target| target, &sums);
    }
    let softmax = || operator_graph(DType::F32, &[&[side, side]], |g, x| nn::softmax(g, x[0], 1).expect("an axis"));
    group.bench_graph("softmax", Throughput::Elements((side * side) as u64), suited, |target| target, &softmax);
}

fn bench_attention(group: &mut AdapterBenchGroup<'_>) {
    // Software adapters recompute scores only on request, as here.
    let tuning = ShaderTuning { workgroup_memory: true, ..group.default_tuning() };
    for places in if group.software { vec![64] } else { vec![128, 256, 512, 1024, 2048, 4096] } {
        for gradients in [false, true] {
            let heads = if group.software { 1 } else { 16 };
            let sizes = AttentionConfig {
                batch: 1,
                heads,
                queries: places,
                keys: places,
                width: 64,
                value_width: 64,
                mask: MaskKind::Causal,
                transposed: false,
                gradients,
            };
            let graph = || {
                let case = attention_case(sizes, 1);
                (case.verified_graph(), case.inputs, Vec::new())
            };
            let name = format!("{heads} heads of {places} places{}", if gradients { " with gradients" } else { "" });
            let amount = Throughput::Elements((heads * places) as u64);
            let again: fn(CompileTarget) -> CompileTarget = |target| CompileTarget { chain_rows_min: 0, ..target };
            group.bench_graph(&format!("{name}, scores computed again"), amount.clone(), tuning, again, &graph);
            let stored: fn(CompileTarget) -> CompileTarget = |target| CompileTarget { chain_values_max: 0, ..target };
            group.bench_graph(&format!("{name}, scores stored"), amount, tuning, stored, &graph);
        }
    }
}

fn bench_training_steps(group: &mut AdapterBenchGroup<'_>) {
    let step = || {
        let network = lenet::network(64, true);
        (network.graph, network.inputs, network.variables)
    };
    let suited = group.default_tuning();
    group.bench_graph("lenet b64", Throughput::Elements(64), suited, |target| target, &step);
    let plain = ShaderTuning { workgroup_memory: false, ..suited };
    group.bench_graph("lenet b64, plain", Throughput::Elements(64), plain, |target| target, &step);
}

/// Adds benchmarks to a group.
type AdapterBenchmark = fn(&mut AdapterBenchGroup<'_>);

/// All benchmarks, by name.
const BENCHMARKS: [(&str, AdapterBenchmark); 4] = [
    ("products", bench_matmuls),
    ("folds", bench_reductions),
    ("attention", bench_attention),
    ("steps", bench_training_steps),
];

fn main() {
    let criterion = Criterion::default().sample_size(10);
    let criterion = criterion.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
    let mut criterion = criterion.configure_from_args();
    for (index, info) in saggar_gpu::adapters().into_iter().enumerate() {
        for (name, measure) in BENCHMARKS {
            let group = criterion.benchmark_group(format!("{name}, {}", info.adapter));
            let mut group = AdapterBenchGroup { group, index, software: info.software };
            measure(&mut group);
            group.group.finish();
        }
    }
    criterion.final_summary();
}
