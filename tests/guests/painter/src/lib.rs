//! A predictor from images to images, with custom routes: `/invert`, and `/dim/{factor}`.

use saggar_plugin::{DataType, Graph, Inputs, Job, Model, Operand, Params, Port, Result, Route, Variables, descriptor};

const SIDE: u32 = 8;

/// The model. It has no weights.
#[derive(Debug)]
pub struct PainterModel;

impl Model for PainterModel {
    const BATCH_SIZES: &'static [u32] = &[1, 4];

    fn load(_: &Variables, _: &Params) -> Result<Self> {
        Ok(Self)
    }

    fn inputs(&self) -> Vec<Port> {
        vec![
            Port::new("image", DataType::Uint8, [SIDE, SIDE]).semantics("image"),
            Port::new("factor", DataType::Float32, []).default_value(1.0),
            Port::new("inverted", DataType::Float32, []).default_value(0.0),
        ]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![
            Port::new("picture", DataType::Uint8, [SIDE, SIDE]).semantics("image"),
            Port::new("brightness", DataType::Float32, []),
        ]
    }

    fn routes(&self) -> Vec<Route> {
        vec![Route::new("/invert").with("inverted", 1.0), Route::new("/dim/{factor}")]
    }

    fn predict(&self, graph: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        let pixels = inputs.get("image")?.cast(DataType::Float32)?;
        let batch = pixels.shape()[0];
        let of_item = |name: &str| inputs.get(name)?.reshape(&[batch, 1, 1]);
        let inverted = of_item("inverted")?;
        // p + i (255 - 2 p): the image, or its inverse.
        let opposite = pixels.linear(-2.0, 255.0)?;
        let picture = pixels.add(&inverted.mul(&opposite)?)?.mul(&of_item("factor")?)?;
        let brightness = picture.reduce_mean(&[1, 2], false)?;
        Ok(vec![("picture", picture.cast(DataType::Uint8)?), ("brightness", brightness)])
    }
}

/// Publishes the model `painter`.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    job.params().check()?;
    job.publish("painter", &job.variables(), &Params::new()).map(|_| ())
}

saggar_plugin::export!(PainterModel, train);
