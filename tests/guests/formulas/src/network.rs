//! A small network with every kind of state, trained with every option of the SDK.

use saggar_plugin::layers::{BatchNorm, Conv2d, Dropout, Linear};
use saggar_plugin::losses::CrossEntropy;
use saggar_plugin::optimizers::{Adam, LearningRateSchedule, Muon, Optimizer, Sgd};
use saggar_plugin::{
    Classes, DataType, Dataset, Feed, Fit, Graph, Inputs, Job, Model, Objective, Operand, Params, Port, Result,
    Variables,
};

const SIDE: u32 = 8;
const CHANNELS: u32 = 16;

/// A convolution with batch normalization and dropout, and a linear layer.
#[derive(Debug)]
pub struct FormulasNetwork {
    convolution: Conv2d,
    norm: BatchNorm,
    dropout: Dropout,
    linear: Linear,
}

fn classes() -> Classes {
    Classes::new((0..10).map(|digit| digit.to_string()).collect())
}

impl FormulasNetwork {
    fn new(v: &Variables) -> Result<Self> {
        Ok(Self {
            convolution: Conv2d::without_bias(&v.scope("convolution"), (1, CHANNELS), [3, 3])?.padding([1, 1]),
            norm: BatchNorm::new(&v.scope("norm"), CHANNELS)?,
            dropout: Dropout::new(v, 0.1),
            linear: Linear::new(&v.scope("linear"), CHANNELS * SIDE * SIDE / 4, 10)?,
        })
    }

    fn logits(&self, image: &Operand) -> Result<Operand> {
        let batch = image.shape()[0];
        let x = image.cast(image.graph().float())?.div_scalar(255.0)?.reshape(&[batch, 1, SIDE, SIDE])?;
        let x = self.norm.forward(&self.convolution.forward(&x)?)?.relu()?.max_pool2d([2, 2])?;
        self.linear.forward(&self.dropout.forward(&x.flatten(1)?)?)
    }
}

impl Model for FormulasNetwork {
    fn load(variables: &Variables, _: &Params) -> Result<Self> {
        Self::new(variables)
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new("image", DataType::Uint8, [SIDE, SIDE]).semantics("image")]
    }

    fn outputs(&self) -> Vec<Port> {
        classes().ports()
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        classes().outputs(&self.logits(inputs.get("image")?)?)
    }
}

/// Trains on the dataset at `/data`, whose images have 8 by 8 pixels.
pub(crate) fn train(job: &Job, epochs: u64) -> Result<()> {
    let data = Dataset::open("/data")?;
    let feed = Feed::new(&data, &["image", "label"], job.param("batch", 32)?)?;
    let accumulate: u32 = job.param("accumulate", 1)?;
    let steps = feed.steps_per_epoch()? * epochs / u64::from(accumulate);
    // Scales gradients up so far that float16 overflows.
    let boost = job.param("boost", 1.0)?;
    let peak = |rate| LearningRateSchedule::Cosine { peak: rate, warmup: 5, steps };
    let optimizer: Box<dyn Optimizer> = match job.params().choice("optimizer", &["adam", "sgd", "muon"])? {
        "sgd" => Box::new(Sgd::new(peak(0.05)).momentum(0.9).nesterov()),
        "muon" => Box::new(Muon::new(peak(0.02), Adam::new(peak(0.003)).weight_decay(0.01)).adam_for(&["linear"])),
        _ => Box::new(Adam::new(peak(0.003))),
    };
    let name = job.param("model", "network".to_owned())?;
    let publishes = job.param("publishes", true)?;
    let variables = job.variables();
    let network = FormulasNetwork::new(&variables)?;
    let objective = |_: &Graph, batch: &Inputs| {
        let (logits, label) = (network.logits(batch.get("image")?)?, batch.get("label")?);
        let cross_entropy = CrossEntropy::new().label_smoothing(0.1);
        let accuracy = cross_entropy.accuracy(&logits, label)?;
        let loss = cross_entropy.loss(&logits, label)?.mul_scalar(boost)?;
        Ok(Objective::new(loss).metric("accuracy", accuracy))
    };
    let mut fit = Fit::new(job, &variables, optimizer.as_ref(), &objective).clip_grad_norm(5.0 * boost);
    fit = fit.gradient_accumulation_steps(accumulate).mixed_precision(job.param("half", false)?);
    if let Some(decay) = job.params().optional("average")? {
        fit = fit.exponential_moving_average(decay);
    }
    if let Some(patience) = job.params().optional("patience")? {
        fit = fit.early_stopping(patience);
    }
    fit.epochs(&feed, epochs)?;
    if publishes {
        job.publish(&name, &variables, &Params::new())?;
    }
    Ok(())
}
