//! Arguments of `saggar inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use saggar_project::units;

use super::without::WithoutArgs;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The source of the graphs: a plugin's component or directory, a reference plugin's name, a model version's directory, a served model's name
    /// (digits, digits@2), an ONNX file, or a graph in text form (*.graph).
    #[arg(value_name = "GRAPH")]
    pub(crate) source: String,
    /// The number of the graph to show. Without this and --stage, the graphs are listed.
    #[arg(long, value_name = "N")]
    pub(crate) graph: Option<usize>,
    /// The stage to show: graph as verified, simplified, fused, schedule, memory, wgsl (for gpu), routines (for cpu),
    /// or all.
    #[arg(long, value_enum, value_name = "STAGE")]
    pub(crate) stage: Option<CompileStage>,
    /// The target to compile for [default: cpu; gpu with --stage wgsl]. The machine need not have such a device.
    #[arg(long, value_enum, value_name = "TARGET")]
    pub(crate) target: Option<TargetArg>,
    #[command(flatten)]
    pub(crate) without: WithoutArgs,
    /// The dataset of the state directory that a plugin trains on at /data: digits or digits/1. Without it, a
    /// placeholder dataset has the fields image, label, text, source and target.
    #[arg(long, value_name = "NAME[/VERSION]", conflicts_with = "field")]
    pub(crate) data: Option<String>,
    /// A field of the placeholder dataset: image=uint8[32,32,3], or label=int32:10 for 10 classes. Can be given several
    /// times, and replaces the default fields.
    #[arg(long, value_name = "NAME=TYPE[SHAPE]")]
    pub(crate) field: Vec<String>,
    /// Items in each split of the placeholder dataset.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20), value_name = "N")]
    pub(crate) items: u32,
    /// The maximum time for a plugin to build its graphs; graphs built by then are shown.
    #[arg(long, default_value = "60s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) limit: Duration,
    /// The state directory with served models and datasets.
    #[arg(long, env = "SAGGAR_HOME", default_value = ".saggar", value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The plugin that reads ONNX files [default: the one inside the program].
    #[arg(long, env = "SAGGAR_ONNX_PLUGIN", value_name = "FILE")]
    pub(crate) onnx_plugin: Option<PathBuf>,
    /// The training's parameters, such as batch=64, or the import's options for an ONNX file.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

/// A compiler stage whose result can be shown.
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

/// A compile target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetArg {
    Cpu,
    Gpu,
}
