//! Arguments of `saggar predict`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// The model, or a version of it: `digits`, `digits@3` [default: the server's default model].
    pub(crate) model: Option<String>,
    /// An input: a JSON value, a text, or `@` and a file. Can be given several times.
    #[arg(short, long, required_unless_present = "dataset", value_name = "NAME=VALUE|NAME=@FILE")]
    pub(crate) input: Vec<String>,
    /// Predict every item of a dataset, as a job: `digits`, `digits/2`. The dataset's fields are the inputs.
    #[arg(long = "in", value_name = "DATASET", requires = "model", conflicts_with_all = ["input", "stream", "top_k", "show", "output"])]
    pub(crate) dataset: Option<String>,
    /// Predict only this split of the dataset.
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub(crate) split: Option<String>,
    /// Store the answers as a version of this dataset.
    #[arg(long, value_name = "DATASET", requires = "dataset")]
    pub(crate) out: Option<String>,
    /// The device of the job: auto, cpu, gpu, vulkan:0.
    #[arg(long, value_name = "DEVICE", requires = "dataset")]
    pub(crate) device: Option<String>,
    /// The project of the job.
    #[arg(long, env = "SAGGAR_PROJECT", default_value = "predictions", value_name = "NAME")]
    pub(crate) project: String,
    /// Wait until the job ends, and exit with its result.
    #[arg(long, requires = "dataset")]
    pub(crate) wait: bool,
    /// Show the output as the model writes it, instead of all of it at the end.
    #[arg(long, conflicts_with_all = ["output", "top_k"])]
    pub(crate) stream: bool,
    /// Show the K most probable classes.
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw the picture that was sent, in characters.
    #[arg(long)]
    pub(crate) show: bool,
    /// The file to write the whole response to, with its headers, for `saggar verify`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dataset", "stream"])]
    pub(crate) save: Option<PathBuf>,
    /// The file to write the answer to.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
