//! Per-image standardization matches a reference in f64 to 1e-5 on every device, with its gradient, also where a formula
//! in one pass or with one mean would lose every digit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::{DType, GraphBuilder, Shape, VerifiedGraph, nn, verify};

use support::devices;

/// The largest error, relative to the larger of 1 and the largest element of the reference.
const TOLERANCE: f64 = 1e-5;

/// Images `[batch, item...]` whose elements are `mean + deviation * noise`, with noise of mean 0 and deviation 1.
struct ImageCase {
    dims: &'static [usize],
    mean: f64,
    deviation: f64,
}

const CASES: [ImageCase; 9] = [
    ImageCase { dims: &[2, 96, 96, 3], mean: 120.0, deviation: 60.0 },
    ImageCase { dims: &[3, 27_648], mean: 0.5, deviation: 0.25 },
    ImageCase { dims: &[2, 3, 96, 96], mean: 1e4, deviation: 1.0 },
    ImageCase { dims: &[2, 96, 96, 3], mean: -1e6, deviation: 30.0 },
    // Constant images: the deviation is 0, and the least deviation divides.
    ImageCase { dims: &[2, 96, 96, 3], mean: 255.0, deviation: 0.0 },
    // The deviation is less than 1 / sqrt(27,648), which is about 0.006.
    ImageCase { dims: &[2, 96, 96, 3], mean: 0.0, deviation: 0.001 },
    ImageCase { dims: &[1, 1], mean: 7.0, deviation: 1.0 },
    ImageCase { dims: &[4, 5, 7], mean: -3.0, deviation: 2.0 },
    ImageCase { dims: &[5, 64], mean: 0.0, deviation: 1e6 },
];

/// Pseudo-random numbers of mean 0 and deviation 1, uniformly distributed.
fn noise(count: usize, seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) * 3f64.sqrt()
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Returns the standardized images, and the derivatives of the sum of their elements times `weights`.
fn reference(images: &[f64], weights: &[f64], elements: usize) -> (Vec<f64>, Vec<f64>) {
    let count = elements as f64;
    let mean = |numbers: &mut dyn Iterator<Item = f64>| numbers.sum::<f64>() / count;
    let (mut values, mut slopes) = (Vec::new(), Vec::new());
    for (image, weights) in images.chunks(elements).zip(weights.chunks(elements)) {
        let middle = mean(&mut image.iter().copied());
        let centred: Vec<f64> = image.iter().map(|x| x - middle).collect();
        let deviation = mean(&mut centred.iter().map(|x| x * x)).sqrt();
        let divisor = deviation.max(1.0 / count.sqrt());
        let standard: Vec<f64> = centred.iter().map(|x| x / divisor).collect();
        let mean_weight = mean(&mut weights.iter().copied());
        // The deviation depends on the image only if it is the divisor.
        let along =
            if deviation < divisor { 0.0 } else { mean(&mut weights.iter().zip(&standard).map(|(w, y)| w * y)) };
        slopes.extend(weights.iter().zip(&standard).map(|(w, y)| (w - mean_weight - y * along) / divisor));
        values.extend(standard);
    }
    (values, slopes)
}

/// Returns the graph from images and weights to the standardized images and the derivatives.
fn standardization(dims: &[usize], dtype: DType) -> VerifiedGraph {
    let mut g = GraphBuilder::new();
    let descriptor = saggar_tensor::Descriptor::new(dtype, Shape::new(dims).unwrap());
    let x = g.input("x", descriptor.clone()).unwrap();
    let weights = g.input("weights", descriptor).unwrap();
    let y = nn::per_image_standardization(&mut g, x).unwrap();
    let product = g.mul(y, weights).unwrap();
    let axes: Vec<usize> = (0..dims.len()).collect();
    let loss = g.reduce_sum(product, &axes, false).unwrap();
    let slopes = gradients(&mut g, loss, &[x]).unwrap();
    g.output("y", y).unwrap();
    g.output("slopes", slopes[0]).unwrap();
    verify(g.finish()).unwrap()
}

fn run(backend: &dyn Backend, graph: &VerifiedGraph, inputs: &[InterpTensor]) -> Vec<InterpTensor> {
    let meter = Meter::unlimited();
    let executable = backend.load(Arc::new(compile(graph, &backend.target()).unwrap()), &meter).unwrap();
    let buffers: Vec<_> = inputs
        .iter()
        .map(|value| {
            let buffer = backend.allocate(value.descriptor(), &meter).unwrap();
            backend.write(&buffer, &value.to_bytes()).unwrap();
            buffer
        })
        .collect();
    let outputs = executable.dispatch(&buffers, &[]).unwrap();
    let read = |buffer: &saggar_device::DeviceBuffer| {
        InterpTensor::from_bytes(buffer.descriptor().clone(), &backend.read(buffer).unwrap()).unwrap()
    };
    outputs.iter().map(read).collect()
}

#[track_caller]
fn assert_near(what: &str, found: &InterpTensor, expected: &[f64], tolerance: f64) {
    let found = found.to_f64_numbers();
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "{what}: element {at} is {found}, not {expected}: an error of {error}");
    }
}

/// Returns images and weights of a case. They are rounded to the data type, and the reference starts from that.
fn inputs(case: &ImageCase, dtype: DType, seed: u32) -> [InterpTensor; 2] {
    let count = case.dims.iter().product();
    let images: Vec<f64> = noise(count, seed).iter().map(|x| case.mean + case.deviation * x).collect();
    let tensor = |numbers: &[f64]| InterpTensor::from_numbers(dtype, Shape::new(case.dims).unwrap(), numbers).unwrap();
    [tensor(&images), tensor(&noise(count, seed + 100))]
}

#[test]
fn standardization_and_its_gradient_match_a_reference_in_f64() {
    let devices = devices();
    for (case, seed) in CASES.iter().zip(1..) {
        let graph = standardization(case.dims, DType::F32);
        let inputs = inputs(case, DType::F32, seed);
        let numbers = [0, 1].map(|at: usize| inputs[at].to_f64_numbers());
        let (values, slopes) = reference(&numbers[0], &numbers[1], case.dims[1..].iter().product());
        let interpreted = evaluate(&graph, &inputs, &mut []).unwrap();
        let on_devices = devices.iter().map(|device| (device.info().name.clone(), run(&**device, &graph, &inputs)));
        for (name, found) in std::iter::once(("interpreter".to_owned(), interpreted)).chain(on_devices) {
            let what = format!("{:?} of mean {} and deviation {} on {name}", case.dims, case.mean, case.deviation);
            assert_near(&what, &found[0], &values, TOLERANCE);
            assert_near(&format!("{what}, gradient"), &found[1], &slopes, TOLERANCE);
        }
    }
}

/// Equal elements give exact zeros, and derivatives that are finite.
#[test]
fn constant_images_become_zeros_with_finite_gradients() {
    let case = ImageCase { dims: &[2, 96, 96, 3], mean: 0.1, deviation: 0.0 };
    let graph = standardization(case.dims, DType::F32);
    let inputs = inputs(&case, DType::F32, 1);
    for device in devices() {
        let found = run(&*device, &graph, &inputs);
        let name = &device.info().name;
        assert!(found[0].to_f64_numbers().iter().all(|y| *y == 0.0), "{name}");
        assert!(found[1].to_f64_numbers().iter().all(|slope| slope.is_finite()), "{name}");
    }
}

/// In half precision only the images and the result are rounded: sums of squares that exceed its range do not overflow.
#[test]
fn half_precision_standardization_rounds_only_its_result() {
    let case = ImageCase { dims: &[2, 96, 96, 3], mean: 120.0, deviation: 60.0 };
    let graph = standardization(case.dims, DType::F16);
    let inputs = inputs(&case, DType::F16, 1);
    let numbers = [0, 1].map(|at: usize| inputs[at].to_f64_numbers());
    let (values, _) = reference(&numbers[0], &numbers[1], 27_648);
    for device in devices() {
        let found = run(&*device, &graph, &inputs);
        assert_near(&device.info().name, &found[0], &values, 2f64.powi(-11) + TOLERANCE);
    }
}

/// TensorFlow's example: the elements of `[[1, 2], [3, 4]]` divided by their deviation, sqrt(1.25).
#[test]
fn standardization_is_that_of_tensorflow() {
    let graph = standardization(&[1, 2, 2], DType::F32);
    let tensor = |numbers| InterpTensor::from_numbers(DType::F32, Shape::new([1, 2, 2]).unwrap(), numbers).unwrap();
    let found = evaluate(&graph, &[tensor(&[1.0, 2.0, 3.0, 4.0]), tensor(&[0.0; 4])], &mut []).unwrap();
    let unit = 1.25f64.sqrt();
    assert_near("values", &found[0], &[-1.5 / unit, -0.5 / unit, 0.5 / unit, 1.5 / unit], 1e-6);
}
