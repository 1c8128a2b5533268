//! Input optimization: finds images that a trained classifier assigns to a class with high confidence.
//!
//! The classifier is a published version of `lenet`, opened with its weights fixed. The trained variable is the image.
//! Each step moves every pixel so that the probability of the target class rises, from noise or from an image of a
//! dataset. Source: Szegedy et al., "Intriguing properties of neural networks", arXiv:1312.6199.

mod class_probabilities;
mod image;

/// The classifier's network, included as a module: the crate `lenet` would add another plugin's exports.
#[path = "../../lenet/src/model.rs"]
pub mod network;

use network::{Lenet, LenetConfig};
use saggar_plugin::losses::CrossEntropy;
use saggar_plugin::optimizers::{Adam, Optimizer, Update};
use saggar_plugin::{
    DataType, Error, Executable, Graph, Initializer, Job, Params, Result, Tensor, Variable, VariableKind, Variables,
    descriptor, info, named, png,
};

use class_probabilities::ClassProbabilities;

/// The number of steps between two step boundaries.
const STEPS_PER_BOUNDARY: u64 = 10;

/// Finds an image for the class `target` and writes it as `target-NNN.png`.
///
/// Parameters: `target` (a class number), `classifier` (the model's name), `version` (default: the newest), `steps`,
/// `lr`, `item` (the item of the dataset at `/data` to start from; default: noise).
///
/// # Errors
/// Returns an error if a parameter, a model or a dataset does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let (target, steps): (u32, u64) = (job.params().require("target")?, job.param("steps", 1000)?);
    let adam = Adam::new(job.param("lr", 0.01)?);
    let item: Option<u64> = job.params().optional("item")?;
    let (name, version) = (job.param("classifier", "digits".to_owned())?, job.params().optional("version")?);
    job.params().check()?;

    let (version, weights, config) = job.open_model(&name, version)?;
    let classifier = load_classifier(&weights, &config, target)?;
    let image = classifier.config().image_shape();
    let begin = item.map(|item| image::load_item(&image, item)).transpose()?;
    let initial = match &begin {
        Some(pixels) => Initializer::Bytes(pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect()),
        None => Initializer::Uniform((0.0, 1.0)),
    };
    let variables = job.variables();
    let one = descriptor(DataType::Float32, [&[1], image.as_slice()].concat());
    let picture = variables.get("picture", one, &initial, VariableKind::Parameter)?;
    info(&format!("a picture {image:?} for class {target} of {name}@{version}"));

    let step = step(&classifier, &variables, &picture, &adam, target)?;
    let mut done = job.resume(&variables, &[])?.map_or(0, |(step, _)| step);
    while done < steps {
        done += 1;
        let outputs = step.dispatch(std::iter::empty::<(&str, &Tensor)>())?;
        let scalar =
            |name| Ok::<_, Error>(f64::from(named(&outputs, name)?.read_f32()?.first().copied().unwrap_or(f32::NAN)));
        let (loss, probability) = (scalar("loss")?, scalar("probability")?);
        info(&format!("{done:04} - loss: {loss:.6} ({probability:.6})"));
        job.metric(done, "loss", loss);
        job.metric(done, "probability", probability);
        job.progress(done, steps);
        if done.is_multiple_of(STEPS_PER_BOUNDARY) || done == steps {
            job.boundary(done, &variables, &[], &[])?;
        }
    }
    write_result(job, &classifier, &picture, begin.as_deref(), target)
}

fn load_classifier(weights: &Variables, config: &Params, target: u32) -> Result<Lenet> {
    let architecture = LenetConfig::from_params(config)?;
    config.check()?;
    let classes = architecture.classes.count();
    if target >= classes {
        let (name, given) = ("target".to_owned(), target.to_string());
        return Err(Error::Parameter { name, expected: format!("a class below {classes}"), given });
    }
    Lenet::new(weights, architecture)
}

/// Builds one step: returns the loss of the current image and assigns a better image.
fn step(
    classifier: &Lenet,
    variables: &Variables,
    picture: &Variable,
    optimizer: &dyn Optimizer,
    target: u32,
) -> Result<Executable> {
    let graph = Graph::for_training();
    let value = graph.variable(picture)?;
    let logits = classifier.logits_from_floats(&value)?;
    let label = graph.fill(&descriptor(DataType::Int32, [1]), f64::from(target))?;
    let loss = CrossEntropy::new().loss(&logits, &label)?;
    // The softmax of the target, for the log. The loss is its negative logarithm.
    let probability = logits.softmax(1)?.slice(&[0, target], &[1, 1])?.reshape(&[])?;
    let gradient = graph.gradients(&loss, &[&value])?.remove(0);
    graph.constrain_range(picture, 0.0, 1.0);
    optimizer.step(&graph, variables, &[Update { variable: picture.clone(), value, gradient }])?;
    graph.build([("loss", &loss), ("probability", &probability)])
}

/// Writes the image as a file and logs the classifier's prediction for that file.
fn write_result(job: &Job, classifier: &Lenet, picture: &Variable, begin: Option<&[f32]>, target: u32) -> Result<()> {
    let bytes = picture.read()?;
    let pixels: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|pixel| f32::from_le_bytes(*pixel)).collect();
    let image = classifier.config().image_shape();
    let rounded = png::quantize(&pixels);
    job.write_output(&format!("target-{target:03}.png"), &png::encode(&image, &rounded)?)?;

    let (low, high) = image::pixel_range(&pixels);
    info(&format!("pixels from {low:.6} to {high:.6}"));
    if let Some(begin) = begin {
        info(&format!("mean change of a pixel: {:.6}", image::mean_change(begin, &pixels)));
    }
    let answer = ClassProbabilities::predict(classifier, &rounded)?;
    info(&format!("the file is taken for {}", answer.format_top(3)));
    Ok(())
}

saggar_plugin::export!(train: train);
