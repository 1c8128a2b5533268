//! Arguments of `saggar models` and `saggar import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_project::units;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List models.
    Ls,
    /// Show a model's versions, inputs and outputs; or what one version is made from: MODEL@VERSION.
    Show {
        /// MODEL, or MODEL@VERSION.
        model: String,
        /// Read all files of the version and compare their digests.
        #[arg(long)]
        verify: bool,
    },
    /// Create a version from a plugin and weights that were made elsewhere, and serve it.
    Push(ModelPushArgs),
    /// Write a version to one file, which `saggar models import-bundle` reads.
    Export(ModelExportArgs),
    /// Create a version from a file that `saggar models export` wrote, and serve it.
    ImportBundle(BundleImportArgs),
    /// Make a version the default and pin it; `newest` follows new versions again.
    Promote {
        /// The model.
        model: String,
        /// The version's number, or `newest`.
        #[arg(id = "number", value_name = "VERSION")]
        version: String,
    },
    /// Make the previous default version the default again.
    Rollback {
        /// The model.
        model: String,
    },
    /// Give a version a share of the default requests, under the alias `canary`; `0%` ends the canary.
    Canary {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: u64,
        /// The version's share of the requests: `10%`.
        #[arg(value_parser = units::parse_percent)]
        share: u32,
    },
    /// Point an alias at a loaded version, or remove the alias.
    Alias {
        /// The model.
        model: String,
        /// The alias: `stable`, `next`.
        alias: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION", required_unless_present = "remove")]
        version: Option<u64>,
        /// Remove the alias.
        #[arg(long, conflicts_with = "number")]
        remove: bool,
    },
    /// Have a loaded version repeat a share of the requests and compare its answers, which clients do not get; or end
    /// that.
    Shadow {
        /// The model.
        model: String,
        /// The number of a version, or an alias.
        #[arg(id = "target", value_name = "VERSION|ALIAS", required_unless_present = "remove")]
        to: Option<String>,
        /// The share of the requests to repeat: `10%`.
        #[arg(value_parser = units::parse_percent, default_value = "100%")]
        share: u32,
        /// End the shadow.
        #[arg(long, conflicts_with = "target")]
        remove: bool,
    },
    /// Set the projects that a model belongs to: keys that are limited to other projects do not change it.
    Projects {
        /// The model.
        model: String,
        /// A project. Can be given several times; without any, the model belongs to no project.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
    /// Load a model, or one more of its versions.
    Load {
        /// The model.
        model: String,
        /// The version's number [default: those that would serve].
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Unload a model, or one of its versions, and free its memory.
    Unload {
        /// The model.
        model: String,
        /// The version's number [default: all loaded versions].
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Load a model that sleeps, and predict its warm-up samples.
    Warm {
        /// The model.
        model: String,
    },
    /// Remove a version of a model, or the model with all its versions.
    Rm(ModelRmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ModelPushArgs {
    /// The model's name.
    pub(crate) name: String,
    /// The plugin's component, which predicts, or a reference plugin, such as `lenet`.
    pub(crate) plugin: PathBuf,
    /// A safetensors file with the tensors that the plugin declares [default: no tensors].
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// The configuration that the plugin gets when it loads [default: {}].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The preprocessing of its image inputs, a JSON object by input.
    #[arg(long, value_name = "FILE")]
    pub(crate) image_inputs: Option<PathBuf>,
    /// A description of the version for people, in Markdown.
    #[arg(long, value_name = "FILE")]
    pub(crate) card: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelExportArgs {
    /// MODEL@VERSION, or MODEL for the version that serves.
    pub(crate) model: String,
    /// The file to write.
    pub(crate) file: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BundleImportArgs {
    /// The bundle.
    pub(crate) file: PathBuf,
    /// The model's name [default: the one in the bundle].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The signature of the bundle [default: the bundle's name with .minisig added, if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    /// Refuse the bundle unless this key has signed it: the key itself, RW..., or its file. Can be given several times.
    #[arg(long, value_name = "KEY|FILE")]
    pub(crate) public_key: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelRmArgs {
    /// MODEL@VERSION, or MODEL for all versions.
    pub(crate) model: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The ONNX file.
    pub(crate) file: PathBuf,
    /// The model's name [default: the file's].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Batch sizes to build graphs for, if the model leaves its batch size open.
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub(crate) batch: Vec<u32>,
    /// Dimensions that the model leaves open: `image=1x3x224x224`; `?` keeps one open. Can be given several times.
    #[arg(long, value_name = "INPUT=SHAPE")]
    pub(crate) shape: Vec<String>,
    /// A constant for an input, which then is no longer an input: `k=5`, `axes=[0,1]`. Can be given several times.
    #[arg(long, value_name = "INPUT=JSON")]
    pub(crate) constant: Vec<String>,
    /// The preprocessing of its image inputs, a JSON object by input.
    #[arg(long, value_name = "FILE")]
    pub(crate) image_inputs: Option<PathBuf>,
}
