//! The flags of `saggar inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// What has graphs: a plugin's component or directory, a model version's directory or a served model's name
    /// (digits, digits@2), an ONNX file, a graph in text form (*.graph).
    #[arg(value_name = "GRAPH")]
    pub(crate) source: String,
    /// Which of its graphs, by the number in the list. Without this and --stage, the list.
    #[arg(long, value_name = "N")]
    pub(crate) graph: Option<usize>,
    /// The stage to show: graph as verified, simplified, fused, schedule, memory, wgsl (for gpu), routines (for cpu), or all.
    #[arg(long, value_enum, value_name = "STAGE")]
    pub(crate) stage: Option<CompileStage>,
    /// What to compile for: cpu where nothing is said, gpu with --stage wgsl. No such device need be there.
    #[arg(long, value_enum, value_name = "TARGET")]
    pub(crate) target: Option<TargetArg>,
    /// The dataset that a plugin trains on at /data, of the state directory: digits or digits/1. Without it a stand-in has
    /// the fields image, label, text, source and target.
    #[arg(long, value_name = "NAME[/VERSION]", conflicts_with = "field")]
    pub(crate) data: Option<String>,
    /// A field of a stand-in for the dataset: image=uint8[32,32,3], label=int32:10 with 10 classes. May be given several
    /// times, and replaces the usual ones.
    #[arg(long, value_name = "NAME=TYPE[SHAPE]")]
    pub(crate) field: Vec<String>,
    /// Items in each part of the stand-in.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20), value_name = "N")]
    pub(crate) items: u32,
    /// How long a plugin may take to build its graphs; what it has built by then is shown.
    #[arg(long, default_value = "60s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) limit: Duration,
    /// The state directory, where served models and datasets are.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The plugin that reads ONNX files; by default it is looked for beside the program.
    #[arg(long, env = "SAGGAR_ONNX_PLUGIN", value_name = "FILE")]
    pub(crate) onnx_plugin: Option<PathBuf>,
    /// The training's parameters, batch=64, or the import's options for an ONNX file.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

/// A stage of a graph's way to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompileStage {
    Graph,
    Simplified,
    Fused,
    Schedule,
    Memory,
    Wgsl,
    Routines,
    All,
}

/// What graphs are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetArg {
    Cpu,
    Gpu,
}
