//! A classifier: two linear layers over all numbers of an item. It trains on any dataset with a field `label` and a
//! field of images or features, whose name is `image` or the parameter `input`, and publishes the result.

use saggar_plugin::layers::Linear;
use saggar_plugin::optimizers::Adam;
use saggar_plugin::{Classes, DataType, Dataset, Feed, Fit, Graph, Inputs, Job, Model, Objective};
use saggar_plugin::{Operand, Params, Port, Result, Variables};

/// The network, the shape of its input and its classes.
pub struct Classifier {
    input: Port,
    classes: Classes,
    layers: [Linear; 2],
}

impl Classifier {
    /// Returns the logits: `[batch, item...]` -> `[batch, classes]`.
    fn logits(&self, inputs: &Inputs) -> Result<Operand> {
        let white = if self.input.item().data_type == DataType::Uint8 { 255.0 } else { 1.0 };
        let x = inputs.get(self.input.name())?.cast(DataType::Float32)?.div_scalar(white)?.flatten(1)?;
        self.layers[1].forward(&self.layers[0].forward(&x)?.relu()?)
    }
}

impl Model for Classifier {
    fn load(v: &Variables, config: &Params) -> Result<Self> {
        let (input, classes): (Port, Classes) = (config.require("input")?, config.require("classes")?);
        let (numbers, units) = (input.item().shape.iter().product(), config.require("units")?);
        let hidden = Linear::new(&v.scope("hidden"), numbers, units)?;
        let output = Linear::new(&v.scope("output"), units, classes.count())?;
        Ok(Self { input, classes, layers: [hidden, output] })
    }
    fn inputs(&self) -> Vec<Port> {
        vec![self.input.clone()]
    }
    fn outputs(&self) -> Vec<Port> {
        self.classes.ports()
    }
    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        self.classes.outputs(&self.logits(inputs)?)
    }
}

/// Trains with cross-entropy and Adam. `Fit` takes checkpoints, resumes from them, validates and reports automatically.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let input = Port::of(&data.field(&job.param("input", "image".to_owned())?)?);
    let classes = Classes::of(&data.field("label")?, job.param("classes", 10)?);
    let (units, epochs): (u32, u64) = (job.param("units", 128)?, job.param("epochs", 10)?);
    let feed = Feed::new(&data, &[input.name(), "label"], job.param("batch", 32)?)?;
    let (adam, model) = (Adam::new(job.param("lr", 0.001)?), job.param("model", env!("CARGO_PKG_NAME").to_owned())?);
    let config = Params::new().with("input", &input).with("classes", &classes).with("units", units);
    let variables = job.variables();
    let network = Classifier::load(&variables, &config)?;
    let objective = |_: &Graph, batch: &Inputs| Objective::classification(&network.logits(batch)?, batch.get("label")?);
    Fit::new(job, &variables, &adam, &objective).epochs(&feed, epochs)?;
    job.publish(&model, &variables, &config).map(drop)
}

saggar_plugin::export!(Classifier, train);
