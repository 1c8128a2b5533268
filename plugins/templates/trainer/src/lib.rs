//! A custom training loop whose result is a file: one linear layer classifies items, and `weights.csv` holds the weight
//! of each number of an item for each class. A template for trainings that [`saggar_plugin::Fit`] does not cover, or
//! whose result is not served.

use saggar_plugin::layers::Linear;
use saggar_plugin::optimizers::{Adam, Optimizer, Update};
use saggar_plugin::{BatchOptions, Classes, DataType, Dataset, Descriptor, Error, Executable, Graph, Job, Result};
use saggar_plugin::{Variables, info, named};

/// The number of steps between two boundaries. At a boundary, a checkpoint can be taken and a stop request is seen.
const STEPS_PER_BOUNDARY: u64 = 10;

/// Trains on the dataset at `/data`. Parameters: `steps`, `batch`, `lr`, `input` (the input field), `classes` (their
/// number, if the dataset does not name them).
pub fn train(job: &Job) -> Result<()> {
    let (data, name) = (Dataset::open("/data")?, job.param("input", "image".to_owned())?);
    let (steps, size): (u64, u32) = (job.param("steps", 500)?, job.param("batch", 32)?);
    let adam = Adam::new(job.param("lr", 0.002)?);
    let (input, label) = (data.field(&name)?, data.field("label")?);
    let classes = Classes::of(&label, job.param("classes", 10)?);
    job.params().check()?;

    let split = data.splits().into_iter().find(|split| split == "train");
    let options = BatchOptions { size, shuffle_seed: Some(job.seed()), drop_last: true, split };
    let batches = data.batches(&[name.clone(), "label".to_owned()], &options)?;
    if batches.full_batches() == 0 {
        return Err(Error::NoItems);
    }
    let variables = job.variables();
    let linear = Linear::new(&variables, input.item.shape.iter().product(), classes.count())?;
    let step = step(&linear, &variables, &adam, (&name, &input.item), &label.item, size)?;

    // The host holds all state that a resumed training needs: the variables, the position in the dataset and the step
    // number.
    let mut done = job.resume(&variables, &[&batches])?.map_or(0, |(step, _)| step);
    while done < steps {
        // `None` is the end of an epoch. The next epoch has another order.
        let Some(batch) = batches.next_batch()? else { continue };
        let outputs = step.dispatch(batch.iter().map(|field| (field.name.as_str(), &field.tensor)))?;
        let loss = named(&outputs, "loss")?.read_f32()?.first().copied().map_or(f64::NAN, f64::from);
        done += 1;
        job.metric(done, "loss", loss);
        job.progress(done, steps);
        if done.is_multiple_of(STEPS_PER_BOUNDARY) || done == steps {
            info(&format!("step {done}: loss {loss:.5}"));
            job.boundary(done, &variables, &[&batches], &[])?;
        }
    }
    job.write_output("weights.csv", table(&variables, &classes)?.as_bytes())
}

/// Builds one step: forward, backward, update.
fn step(
    linear: &Linear,
    variables: &Variables,
    adam: &Adam,
    (name, input): (&str, &Descriptor),
    label: &Descriptor,
    size: u32,
) -> Result<Executable> {
    let graph = Graph::for_training();
    let inputs = graph.inputs([(name, input), ("label", label)], size)?;
    let white = if input.data_type == DataType::Uint8 { 255.0 } else { 1.0 };
    let x = inputs.get(name)?.cast(graph.float())?.div_scalar(white)?.flatten(1)?;
    let loss = linear.forward(&x)?.softmax_cross_entropy(inputs.get("label")?)?;
    let parameters = variables.parameters();
    let values = parameters.iter().map(|variable| graph.variable(variable)).collect::<Result<Vec<_>>>()?;
    let gradients = graph.gradients(&loss, &values.iter().collect::<Vec<_>>())?;
    let updates = parameters.into_iter().zip(values).zip(gradients);
    let updates: Vec<Update> =
        updates.map(|((variable, value), gradient)| Update { variable, value, gradient }).collect();
    adam.step(&graph, variables, &updates)?;
    graph.build([("loss", &loss)])
}

/// Formats the weights: a line for each number of an item, a column for each class. The last line is the bias.
fn table(variables: &Variables, classes: &Classes) -> Result<String> {
    let mut text = classes.names().join(",") + "\n";
    let mut parameters = variables.parameters();
    // The weights have two dimensions and the bias one.
    parameters.sort_by_key(|parameter| std::cmp::Reverse(parameter.descriptor().shape.len()));
    for parameter in parameters {
        let bytes = parameter.read()?;
        let numbers: Vec<String> =
            bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x).to_string()).collect();
        for row in numbers.chunks(classes.names().len()) {
            text += &(row.join(",") + "\n");
        }
    }
    Ok(text)
}

saggar_plugin::export!(train: train);
