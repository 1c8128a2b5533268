//! What `saggar predict` takes.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// The model, or a version of it: `digits`, `digits@3`. The server's default where it is left out.
    pub(crate) model: Option<String>,
    /// An input: a JSON value, text, or `@` and a file. May be given several times.
    #[arg(short, long, required_unless_present = "dataset", value_name = "NAME=VALUE|NAME=@FILE")]
    pub(crate) input: Vec<String>,
    /// Predict every item of a dataset, as a job: `digits`, `digits/2`. Its fields are the inputs.
    #[arg(long = "in", value_name = "DATASET", requires = "model", conflicts_with_all = ["input", "stream", "top_k", "show", "output"])]
    pub(crate) dataset: Option<String>,
    /// Only this part of the dataset.
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub(crate) split: Option<String>,
    /// Make the answers a version of this dataset.
    #[arg(long, value_name = "DATASET", requires = "dataset")]
    pub(crate) out: Option<String>,
    /// The device of the job: auto, cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE", requires = "dataset")]
    pub(crate) device: Option<String>,
    /// The project that the job is one of.
    #[arg(long, env = "SAGGAR_PROJECT", default_value = "predictions", value_name = "NAME")]
    pub(crate) project: String,
    /// Wait until the job is over, and end as it did.
    #[arg(long, requires = "dataset")]
    pub(crate) wait: bool,
    /// Show what the model writes as it comes, not all of it at the end.
    #[arg(long, conflicts_with_all = ["output", "top_k"])]
    pub(crate) stream: bool,
    /// Show the K most probable classes.
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw the picture that was sent.
    #[arg(long)]
    pub(crate) show: bool,
    /// Write the answer to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
