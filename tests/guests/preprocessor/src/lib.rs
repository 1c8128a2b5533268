//! A guest that declares the preprocessing of `image` as its parameters state, writes what its training gets, and
//! publishes the model `preprocessor` that returns what it gets.
//!
//! Parameters: `height`, `width`, `fit` (`stretch`, `crop`), `colors` (`rgb`, `grey`), `layout` (`nchw`, `nhwc`), `mean`
//! and `scale` (both empty: each image is standardized), `late` (declares after it created batches), `again` (declares a
//! second time, with another height), `shape` (of the model's input, if it differs from the declared one), `input` (the
//! name of the model's input).
//!
//! Outputs, in hexadecimal digits: `batches.txt` has all items in the stored order, and `run.txt` the first one as a
//! graph gets it.

use saggar_plugin::{
    BatchOptions, DataType, Dataset, Field, Graph, ImageColors, ImageFit, ImageNormalization, ImagePreprocessing,
    InputOperandLayout, Inputs, Job, MeanAndScale, Model, Operand, Params, Port, Result, Variables, named,
};

/// The model: the name and shape of its input.
#[derive(Debug)]
pub struct PreprocessorModel {
    input: String,
    shape: Vec<u32>,
}

impl Model for PreprocessorModel {
    fn load(_: &Variables, config: &Params) -> Result<Self> {
        Ok(Self { input: config.require("input")?, shape: config.require("shape")? })
    }

    fn inputs(&self) -> Vec<Port> {
        vec![Port::new(&self.input, DataType::Float32, self.shape.clone())]
    }

    fn outputs(&self) -> Vec<Port> {
        vec![Port::new("y", DataType::Float32, self.shape.clone())]
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        Ok(vec![("y", inputs.get(&self.input)?.identity()?)])
    }
}

fn declaration(job: &Job) -> Result<ImagePreprocessing> {
    let (mean, scale) = (job.param("mean", Vec::new())?, job.param("scale", Vec::new())?);
    Ok(ImagePreprocessing {
        height: job.param("height", 4)?,
        width: job.param("width", 4)?,
        fit: match job.params().choice("fit", &["stretch", "crop"])? {
            "crop" => ImageFit::Crop,
            _ => ImageFit::Stretch,
        },
        colors: match job.params().choice("colors", &["rgb", "grey"])? {
            "grey" => ImageColors::Grey,
            _ => ImageColors::Rgb,
        },
        normalization: match mean.is_empty() && scale.is_empty() {
            true => ImageNormalization::PerImageStandardization,
            false => ImageNormalization::MeanAndScale(MeanAndScale { mean, scale }),
        },
        layout: match job.params().choice("layout", &["nchw", "nhwc"])? {
            "nhwc" => InputOperandLayout::Nhwc,
            _ => InputOperandLayout::Nchw,
        },
    })
}

/// Returns batches of `size` items of the field `image`.
fn batches(data: &Dataset, size: u32) -> Result<saggar_plugin::Batches> {
    data.batches(&["image".to_owned()], &BatchOptions { size, shuffle_seed: None, drop_last: false, split: None })
}

/// Returns the first item as a graph gets it.
fn first_item(data: &Dataset, field: &Field) -> Result<Vec<u8>> {
    let graph = Graph::new();
    let inputs = graph.inputs([("image", &field.item)], 1)?;
    let executable = graph.build([("y", &inputs.get("image")?.identity()?)])?;
    let (_, outputs) = batches(data, 1)?.run(&executable, 1)?;
    outputs[0].1.read()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let preprocessing = declaration(job)?;
    if job.param("late", false)? {
        batches(&data, 1)?;
    }
    job.declare_image_input("image", &preprocessing)?;
    job.declare_image_input("image", &preprocessing)?;
    if job.param("again", false)? {
        let other = ImagePreprocessing { height: preprocessing.height + 1, ..preprocessing };
        job.declare_image_input("image", &other)?;
    }
    let field = data.field("image")?;
    let (mut all, items) = (Vec::new(), batches(&data, 2)?);
    while let Some(batch) = items.next_batch()? {
        all.extend(named(&batch, "image")?.read()?);
    }
    job.write_output("batches.txt", digits(&all).as_bytes())?;
    job.write_output("run.txt", digits(&first_item(&data, &field)?).as_bytes())?;
    let shape = job.param("shape", field.item.shape)?;
    let config = Params::new().with("shape", shape).with("input", job.param("input", "image".to_owned())?);
    job.publish("preprocessor", &job.variables(), &config)?;
    Ok(())
}

saggar_plugin::export!(PreprocessorModel, train);
