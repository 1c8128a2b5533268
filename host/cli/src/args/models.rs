//! Arguments of `saggar models` and `saggar import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use saggar_project::units;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List models.
    Ls,
    /// Show a model's versions and what it takes and gives.
    Show {
        /// The model.
        model: String,
    },
    /// Make a version the default and keep it so; `newest` follows new versions again.
    Promote {
        /// The model.
        model: String,
        /// The version's number, or `newest`.
        #[arg(id = "number", value_name = "VERSION")]
        version: String,
    },
    /// Make the version the default that was it before.
    Rollback {
        /// The model.
        model: String,
    },
    /// Give a version a share of the default requests, under the alias `canary`; `0%` ends it.
    Canary {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: u64,
        /// Its share: `10%`.
        #[arg(value_parser = units::parse_percent)]
        share: u32,
    },
    /// Point an alias at a version that is loaded, or take it away.
    Alias {
        /// The model.
        model: String,
        /// The alias: `stable`, `next`.
        alias: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION", required_unless_present = "remove")]
        version: Option<u64>,
        /// Take the alias away.
        #[arg(long, conflicts_with = "number")]
        remove: bool,
    },
    /// Have a loaded version repeat a share of the requests and compare what it answers, which nobody gets; or end that.
    Shadow {
        /// The model.
        model: String,
        /// A version's number, or an alias.
        #[arg(id = "target", value_name = "VERSION|ALIAS", required_unless_present = "remove")]
        to: Option<String>,
        /// Its share of the requests: `10%`.
        #[arg(value_parser = units::parse_percent, default_value = "100%")]
        share: u32,
        /// End it.
        #[arg(long, conflicts_with = "target")]
        remove: bool,
    },
    /// Say which projects a model belongs to: keys that are limited to others do not change it.
    Projects {
        /// The model.
        model: String,
        /// A project. May be given several times; without any, the model belongs to none.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
    /// Bring a model, or one more of its versions, up.
    Load {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Take a model, or one of its versions, down, and free what it holds.
    Unload {
        /// The model.
        model: String,
        /// The version.
        #[arg(id = "number", value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Bring a model up where it sleeps, and predict its warm-up samples.
    Warm {
        /// The model.
        model: String,
    },
    /// Remove a version of a model, or the model with all of its versions.
    Rm(ModelRmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ModelRmArgs {
    /// MODEL@VERSION, or MODEL for all versions.
    pub(crate) model: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The ONNX file.
    pub(crate) file: PathBuf,
    /// The model's name; the file's by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Batch sizes to build graphs for, where the model leaves its batch open.
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub(crate) batch: Vec<u32>,
    /// Dimensions that the model leaves open: `image=1x3x224x224`; `?` leaves one as it is. May be given several times.
    #[arg(long, value_name = "INPUT=SHAPE")]
    pub(crate) shape: Vec<String>,
    /// The value of an input that is then no input: `k=5`, `axes=[0,1]`. May be given several times.
    #[arg(long, value_name = "INPUT=JSON")]
    pub(crate) constant: Vec<String>,
}
