//! Operators without a gradient: a loss that depends on an operand only through them is refused, with the operator's
//! name and the plugin's label.

use saggar_tensor::grad::gradients;
use saggar_tensor::interp::evaluate;
use saggar_tensor::op::ScatterCombine;
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, nn, verify};

use super::{OperatorFn, constant, ints};

/// Name of the operator; the primitive at which it leaves the floats; its result for a float `[3, 4]`.
pub(super) const ENTRIES: &[(&str, &str, OperatorFn)] = &[
    ("equal", "equal", |g, x| g.equal(x[0], x[0])),
    ("not-equal", "equal", |g, x| g.not_equal(x[0], x[0])),
    ("greater", "lesser", |g, x| greater(g, x[0])),
    ("greater-or-equal", "lesser-or-equal", |g, x| g.greater_or_equal(x[0], x[0])),
    ("lesser", "lesser", |g, x| g.less(x[0], x[0])),
    ("lesser-or-equal", "lesser-or-equal", |g, x| g.less_or_equal(x[0], x[0])),
    ("logical-and", "lesser", |g, x| {
        let truth = greater(g, x[0])?;
        g.logical_and(truth, truth)
    }),
    ("logical-or", "lesser", |g, x| {
        let truth = greater(g, x[0])?;
        g.logical_or(truth, truth)
    }),
    ("logical-xor", "lesser", |g, x| {
        let truth = greater(g, x[0])?;
        g.logical_xor(truth, truth)
    }),
    ("logical-not", "lesser", |g, x| {
        let truth = greater(g, x[0])?;
        g.logical_not(truth)
    }),
    ("arg-max", "arg-max", |g, x| g.arg_max(x[0], 1, false)),
    ("arg-min", "arg-min", |g, x| g.arg_min(x[0], 0, true)),
    ("cast, to integers", "cast", |g, x| g.cast(x[0], DType::I64)),
    ("one-hot, of what was a float", "cast", |g, x| {
        let places = g.cast(x[0], DType::I32)?;
        nn::one_hot(g, places, 3, DType::F32)
    }),
    ("quantize-linear", "cast", |g, x| {
        let scale = constant(g, DType::F32, &[], &[0.5])?;
        let zero_point = constant(g, DType::I8, &[], &[3.0])?;
        nn::quantize_linear(g, x[0], scale, zero_point)
    }),
    ("dequantize-linear, of what was a float", "cast", |g, x| {
        let scale = constant(g, DType::F32, &[], &[0.5])?;
        let zero_point = constant(g, DType::I8, &[], &[3.0])?;
        let quantized = nn::quantize_linear(g, x[0], scale, zero_point)?;
        nn::dequantize_linear(g, quantized, scale, zero_point)
    }),
    ("accuracy", "arg-max", |g, x| {
        let labels = ints(g, &[3], &[0.0, 1.0, 2.0])?;
        nn::accuracy(g, x[0], labels)
    }),
    ("gather, at what was a float", "cast", |g, x| {
        let table = constant(g, DType::F32, &[3], &[1.0, 2.0, 3.0])?;
        let places = g.cast(x[0], DType::I32)?;
        g.gather(table, places, 0)
    }),
    ("scatter-elements, at what was a float", "cast", |g, x| {
        let table = constant(g, DType::F32, &[3, 4], &[1.0; 12])?;
        let places = g.cast(x[0], DType::I32)?;
        nn::scatter_elements(g, table, places, table, 0, ScatterCombine::Add)
    }),
];

fn greater(g: &mut GraphBuilder, x: NodeId) -> saggar_tensor::NodeResult {
    let zero = constant(g, DType::F32, &[], &[0.0])?;
    g.greater(x, zero)
}

fn builder() -> (GraphBuilder, NodeId) {
    let mut g = GraphBuilder::new();
    let x = g.variable("kernel", Descriptor::new(DType::F32, Shape::new([3, 4]).unwrap())).unwrap();
    (g, x)
}

fn float_sum(g: &mut GraphBuilder, node: NodeId) -> NodeId {
    let float = g.cast(node, DType::F32).unwrap();
    let axes: Vec<usize> = (0..g.descriptor(float).shape.rank()).collect();
    g.reduce_sum(float, &axes, false).unwrap()
}

#[test]
fn operators_without_gradient_are_named_in_the_error() {
    for (name, op, build) in ENTRIES {
        let (mut g, x) = builder();
        let result = build(&mut g, &[x]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let loss = float_sum(&mut g, result);
        let error = gradients(&mut g, loss, &[x]).unwrap_err();
        assert_eq!(*error.kind(), GraphError::GradientCut { op, wrt: "variable kernel".to_owned() }, "{name}");
        let place = error.place().unwrap();
        assert!(place.starts_with("node ") && place[5..].parse::<usize>().is_ok(), "{name}: {place}");
        g.label(x, "the kernel").unwrap();
        g.label(result, "choice").unwrap();
        let error = gradients(&mut g, loss, &[x]).unwrap_err();
        assert_eq!(*error.kind(), GraphError::GradientCut { op, wrt: "the kernel".to_owned() }, "{name}");
        let place = error.place().unwrap();
        assert!(place == "choice" || place.ends_with(", before choice"), "{name}: {place}");
    }
}

#[test]
fn the_no_gradient_error_suggests_stop_gradient() {
    let (mut g, x) = builder();
    let guess = g.arg_max(x, 1, false).unwrap();
    g.label(guess, "guess").unwrap();
    let loss = float_sum(&mut g, guess);
    assert_eq!(
        gradients(&mut g, loss, &[x]).unwrap_err().to_string(),
        "arg-max: has no gradient, and variable kernel reaches the loss only through it; add a stop-gradient there to \
         get zeros (at node 1, before guess)"
    );
}

/// A zero gradient is accepted if another path carries a gradient, if zeros are requested, or if zero is the slope.
#[test]
fn legitimate_zero_gradients_are_returned() {
    let builds: [(&str, OperatorFn, bool); 6] = [
        (
            "another way",
            |g, x| {
                let guess = greater(g, x[0])?;
                let guess = g.cast(guess, DType::F32)?;
                g.mul(guess, x[0])
            },
            true,
        ),
        (
            "asked for before",
            |g, x| {
                let stopped = g.stop_gradient(x[0])?;
                g.arg_max(stopped, 0, false)
            },
            false,
        ),
        (
            "asked for after",
            |g, x| {
                let guess = greater(g, x[0])?;
                g.stop_gradient(guess)
            },
            false,
        ),
        (
            "a condition",
            |g, x| {
                let guess = greater(g, x[0])?;
                let (one, two) = (constant(g, DType::F32, &[], &[1.0])?, constant(g, DType::F32, &[], &[2.0])?);
                g.select(guess, one, two)
            },
            false,
        ),
        ("steps", |g, x| g.round_even(x[0]), false),
        ("signs", |g, x| g.sign(x[0]), false),
    ];
    for (name, build, slopes) in builds {
        let (mut g, x) = builder();
        let result = build(&mut g, &[x]).unwrap();
        let loss = float_sum(&mut g, result);
        let found = gradients(&mut g, loss, &[x]).unwrap_or_else(|error| panic!("{name}: {error}"));
        g.output("gradient", found[0]).unwrap();
        let numbers: Vec<f64> = (0..12).map(|i| f64::from(i) - 5.5).collect();
        let value =
            saggar_tensor::interp::InterpTensor::from_numbers(DType::F32, Shape::new([3, 4]).unwrap(), &numbers)
                .unwrap();
        let outputs = evaluate(&verify(g.finish()).unwrap(), &[], &mut [value]).unwrap();
        assert_eq!(outputs[0].to_f64_numbers().iter().any(|slope| *slope != 0.0), slopes, "{name}");
    }
}
