//! Arguments of `saggar data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Store a directory as a version of a dataset.
    Push(DataPushArgs),
    /// Fetch a file from elsewhere, check and unpack it, and store it as a version of a dataset.
    Pull(DataPullArgs),
    /// List datasets and their versions.
    Ls {
        /// Only this one.
        name: Option<String>,
    },
    /// Show a dataset: its fields, splits, size, projects, and what reads it.
    Show {
        /// The dataset: NAME for its newest version, or NAME/VERSION.
        dataset: String,
    },
    /// Write a dataset into a directory, as .npy files that can be pushed again.
    Get(DataGetArgs),
    /// Store what a job wrote as a version of a dataset.
    Add(DataAddArgs),
    /// Remove a version of a dataset, or all of them.
    Rm(DataRmArgs),
    /// Say which projects a dataset belongs to: keys that are limited to others do not see it.
    Projects {
        /// The dataset.
        name: String,
        /// A project. May be given several times; without any, the dataset belongs to none.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DataPushArgs {
    /// The directory: .npy, .npz, .safetensors or .parquet files, folders of images named as their classes, text files,
    /// MNIST's IDX files, CIFAR-10's binary files, one CSV file, or any with a dataset.json. What .saggarignore names is left
    /// out. Or one such file.
    pub(crate) dir: PathBuf,
    /// The dataset's name; the directory's or the file's by default.
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DataPullArgs {
    /// Where it is: an address that begins with https://, http:// or file://. Archives .tar.gz, .tar and .zip and
    /// compressed files .gz are unpacked.
    pub(crate) url: String,
    /// The file's SHA-256, in hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: String,
    /// The dataset's name.
    #[arg(long)]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DataGetArgs {
    /// The dataset: NAME for its newest version, or NAME/VERSION.
    pub(crate) dataset: String,
    /// The directory, which is made; the dataset's name by default.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DataAddArgs {
    /// The job, or JOB/PATH for one folder or file that it wrote.
    pub(crate) job: String,
    /// The dataset's name.
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DataRmArgs {
    /// NAME/VERSION, or NAME for all versions.
    pub(crate) dataset: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
