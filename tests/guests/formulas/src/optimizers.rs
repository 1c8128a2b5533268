//! Checks of each optimizer: three steps on `loss = sum(a * p)`, whose gradient is `a` at every step, against the
//! formulas.

use saggar_plugin::optimizers::{Adam, LearningRateSchedule, Muon, Optimizer, Sgd, Update, clip_grad_norm};
use saggar_plugin::{Graph, Initializer, Result, Tensor, Variable, Variables};

use crate::numbers::{assert_close, floats, noise};

const STEPS: i32 = 3;
const GRADIENT: [f64; 2] = [0.5, -2.0];
const BEGIN: f64 = 1.0;

pub(crate) fn check() -> Result<()> {
    let rate = 0.1;
    let each = |formula: &dyn Fn(f64) -> f64| GRADIENT.map(formula).to_vec();
    let sgd = Sgd::new(rate).momentum(0.9).weight_decay(0.01);
    let expected = each(&|g| sgd_by_hand(g, rate, 0.9, false, 0.01));
    assert_close("sgd", &descend(&sgd)?, &expected, 1e-5);
    let expected = each(&|g| sgd_by_hand(g, rate, 0.9, true, 0.0));
    assert_close("nesterov", &descend(&Sgd::new(rate).momentum(0.9).nesterov())?, &expected, 1e-5);
    let expected = each(&|g| adam_by_hand(g, |_| rate, 0.0));
    assert_close("adam", &descend(&Adam::new(rate))?, &expected, 1e-5);
    let warm = LearningRateSchedule::InverseSquareRoot { peak: 0.2, warmup: 2 };
    let expected = each(&|g| adam_by_hand(g, |step| warm.value(step as u64), 0.1));
    assert_close("adamw", &descend(&Adam::new(warm).weight_decay(0.1))?, &expected, 1e-5);
    // Muon updates vectors with Adam.
    let muon = Muon::new(1.0, Adam::new(rate));
    assert_close("muon's vectors", &descend(&muon)?, &each(&|g| adam_by_hand(g, |_| rate, 0.0)), 1e-5);
    check_orthogonal_step(&[3, 5], 5.0 / 3.0)?;
    check_orthogonal_step(&[5, 3], 1.0)?;
    check_clipping()
}

fn sgd_by_hand(gradient: f64, rate: f64, momentum: f64, nesterov: bool, decay: f64) -> f64 {
    let (mut p, mut v) = (BEGIN, 0.0);
    for _ in 0..STEPS {
        let d = gradient + decay * p;
        v = momentum * v + d;
        p -= rate * if nesterov { d + momentum * v } else { v };
    }
    p
}

fn adam_by_hand(gradient: f64, rate: impl Fn(i32) -> f64, decay: f64) -> f64 {
    let (mut p, mut m, mut v) = (BEGIN, 0.0, 0.0);
    for step in 1..=STEPS {
        m = 0.9 * m + 0.1 * gradient;
        v = 0.999 * v + 0.001 * gradient * gradient;
        let (mean, square) = (m / (1.0 - 0.9f64.powi(step)), v / (1.0 - 0.999f64.powi(step)));
        p -= rate(step) * (mean / (square.sqrt() + 1e-8) + decay * p);
    }
    p
}

/// Returns the parameter after the steps.
fn descend(optimizer: &dyn Optimizer) -> Result<Vec<f64>> {
    let variables = Variables::new(1);
    let parameter = variables.parameter("p", &[2], &Initializer::Constant(BEGIN as f32))?;
    run(optimizer, &variables, &parameter, &GRADIENT, STEPS)
}

/// Returns the parameter after `steps` steps with a constant gradient.
fn run(
    optimizer: &dyn Optimizer,
    variables: &Variables,
    parameter: &Variable,
    gradient: &[f64],
    steps: i32,
) -> Result<Vec<f64>> {
    let graph = Graph::for_training();
    let value = graph.variable(parameter)?;
    let loss = value.mul(&floats(&graph, &value.shape(), gradient)?)?.reduce_sum(&[], false)?;
    let gradient = graph.gradients(&loss, &[&value])?.remove(0);
    optimizer.step(&graph, variables, &[Update { variable: parameter.clone(), value, gradient }])?;
    let step = graph.build([("loss", &loss)])?;
    for _ in 0..steps {
        step.dispatch(std::iter::empty::<(&str, &Tensor)>())?;
    }
    let bytes = parameter.read()?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect())
}

/// Checks that the first step of Muon, at a rate of 1 from 0, is an orthogonal matrix times the root of `growth`. Of
/// rows or columns, whichever are fewer, each pair has a dot product of about 0, and each has one of about `growth`
/// with itself.
fn check_orthogonal_step(shape: &[u32; 2], growth: f64) -> Result<()> {
    let variables = Variables::new(1);
    let parameter = variables.parameter("matrix", shape, &Initializer::Zeros)?;
    let gradient = noise(15, 9);
    let optimizer = Muon::new(1.0, Adam::new(0.1));
    let step = run(&optimizer, &variables, &parameter, &gradient, 1)?;
    let [rows, columns] = shape.map(|size| size as usize);
    let at = |few: usize, many: usize| if rows < columns { few * columns + many } else { many * columns + few };
    let (few, many) = (rows.min(columns), rows.max(columns));
    for a in 0..few {
        for b in 0..few {
            let product: f64 = (0..many).map(|i| step[at(a, i)] * step[at(b, i)]).sum::<f64>() / growth;
            // The quintic iteration leaves singular values between 0.7 and 1.2.
            let expected = if a == b { 0.45..1.5 } else { -0.5..0.5 };
            assert!(expected.contains(&product), "muon {shape:?}: {product} for {a} and {b}");
        }
    }
    let along: f64 = step.iter().zip(&gradient).map(|(step, gradient)| step * gradient).sum();
    assert!(along < 0.0, "muon {shape:?} goes uphill");
    Ok(())
}

/// Checks that gradients of norm 5 are clipped to norm 1, and that gradients with a norm below the limit are unchanged.
fn check_clipping() -> Result<()> {
    for (limit, factor) in [(1.0, 0.2), (10.0, 1.0)] {
        let variables = Variables::new(1);
        let graph = Graph::for_training();
        let mut updates = Vec::new();
        for (name, gradient) in [("a", 3.0), ("b", -4.0)] {
            let variable = variables.parameter(name, &[1], &Initializer::Zeros)?;
            let value = graph.variable(&variable)?;
            updates.push(Update { variable, value, gradient: floats(&graph, &[1], &[gradient])? });
        }
        clip_grad_norm(&mut updates, limit)?;
        let got = crate::numbers::values(&graph, &[&updates[0].gradient, &updates[1].gradient])?;
        assert_close(&format!("clipped to {limit}"), &got.concat(), &[3.0 * factor, -4.0 * factor], 1e-6);
    }
    Ok(())
}
