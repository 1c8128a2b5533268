//! A training with one mistake of a plugin author, which the parameter `mistake` selects. The tests compare the line in
//! the error with the line of the comment `mistake: NAME`.

use saggar_plugin::layers::{Conv2d, Linear, MultiHeadAttention};
use saggar_plugin::losses::mean_squared_error;
use saggar_plugin::optimizers::Sgd;
use saggar_plugin::{
    DataType, Dataset, Feed, Fit, Graph, Initializer, Inputs, Job, Objective, Operand, Result, Variables, descriptor,
};

/// Runs the training.
///
/// # Errors
/// Returns the error that the mistake causes.
pub fn train(job: &Job) -> Result<()> {
    let mistake: String = job.param("mistake", String::new())?;
    job.params().check()?;
    let v = job.variables();
    let graph = Graph::for_training();
    match mistake.as_str() {
        "vector-loss" | "metric-twice" | "fit-layer" => fit(job, &v, &mistake),
        "field" => {
            let data = Dataset::open("/data")?;
            Feed::new(&data, &["image", "lable"], 8).map(drop) // mistake: field
        }
        "mount" => Dataset::open("/nowhere").map(drop), // mistake: mount
        "variable" => {
            v.parameter("w", &[2], &Initializer::Zeros)?;
            v.parameter("w", &[3], &Initializer::Zeros).map(drop) // mistake: variable
        }
        _ => build(&graph, &v, &mistake),
    }
}

/// Builds a graph with the mistake.
fn build(graph: &Graph, v: &Variables, mistake: &str) -> Result<()> {
    let image = graph.input("image", &descriptor(DataType::Float32, [2, 1, 4, 4]))?;
    let hidden = image.flatten(1)?.label("hidden");
    let y = match mistake {
        "linear" => Linear::new(&v.scope("fc1"), 20, 10)?.forward(&hidden)?, // mistake: linear
        "convolution" => Conv2d::new(&v.scope("conv1"), (1, 8), [5, 5])?.forward(&image)?, // mistake: convolution
        "attention" => {
            let attention = MultiHeadAttention::new(&v.scope("block/attention"), 8, 2)?;
            let x = graph.input("x", &descriptor(DataType::Float32, [2, 3, 6]))?;
            attention.forward(&x, &x, true, None)? // mistake: attention
        }
        "operator" => {
            let weight = graph.variable(&v.parameter("weight", &[5, 3], &Initializer::Zeros)?)?;
            hidden.matmul(&weight)? // mistake: operator
        }
        "input-twice" => graph.input("image", &descriptor(DataType::Float32, [1]))?, // mistake: input-twice
        "labels" => {
            let labels = graph.input("label", &descriptor(DataType::Float32, [2]))?;
            hidden.softmax_cross_entropy(&labels)? // mistake: labels
        }
        "shards" => update_by_items(graph, v)?,
        _ => hidden,
    };
    let outputs = if mistake == "output-twice" { vec![("y", &y); 2] } else { vec![("y", &y)] };
    graph.build(outputs)?; // mistake: output-twice
    if mistake == "built" {
        y.relu()?; // mistake: built
    }
    Ok(())
}

/// Adds an update that depends on the items of a batch. A job with shards refuses it when the graph is built.
fn update_by_items(graph: &Graph, v: &Variables) -> Result<Operand> {
    let w = v.parameter("w", &[4], &Initializer::Zeros)?;
    let x = graph.input("x", &descriptor(DataType::Float32, [4]))?; // mistake: shards
    let value = graph.variable(&w)?;
    let loss = x.mul(&value)?.reduce_mean(&[], false)?;
    for gradient in graph.gradients(&loss, &[&value])? {
        graph.assign(&w, &value.sub(&gradient.mul(&x)?)?)?;
    }
    Ok(loss)
}

/// Trains with a mistake in the objective.
fn fit(job: &Job, v: &Variables, mistake: &str) -> Result<()> {
    let data = Dataset::open("/data")?;
    let feed = Feed::new(&data, &["image"], 8)?;
    let size = data.field("image")?.item.shape.iter().product();
    let inputs = if mistake == "fit-layer" { size + 1 } else { size };
    let linear = Linear::new(&v.scope("decoder"), inputs, size)?;
    let objective = |_: &Graph, batch: &Inputs| {
        let x = batch.get("image")?.cast(DataType::Float32)?.flatten(1)?;
        let y = linear.forward(&x)?; // mistake: fit-layer
        if mistake == "vector-loss" {
            return Ok(Objective::new(y.sub(&x)?)); // mistake: vector-loss
        }
        let loss = mean_squared_error(&y, &x)?;
        Ok(Objective::new(loss.clone()).metric("loss", loss)) // mistake: metric-twice
    };
    Fit::new(job, v, &Sgd::new(0.1), &objective).epochs(&feed, 1)
}

saggar_plugin::export!(train: train);
