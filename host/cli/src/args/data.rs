//! Arguments of `saggar data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Store a directory as a version of a dataset.
    Push(DataPushArgs),
    /// Download a file, verify and unpack it, and store it as a version of a dataset.
    Fetch(DataFetchArgs),
    /// List datasets and their versions.
    Ls {
        /// List only this dataset.
        name: Option<String>,
    },
    /// Show a dataset: its fields, splits, size, projects, and the jobs that read it.
    Show {
        /// The dataset: NAME for its newest version, or NAME/VERSION.
        dataset: String,
    },
    /// Write a dataset into a directory, as .npy files that can be pushed again.
    Export(DataExportArgs),
    /// Store the output of a job as a version of a dataset.
    Add(DataAddArgs),
    /// Remove a version of a dataset, or all versions.
    Rm(DataRmArgs),
    /// Set the projects that a dataset belongs to: keys that are limited to other projects do not see it.
    Projects {
        /// The dataset.
        name: String,
        /// A project. Can be given several times; without any, the dataset belongs to no project.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DataPushArgs {
    /// The directory: .npy, .npz, .safetensors or .parquet files, one folder of images per class, text files, MNIST's
    /// IDX files, CIFAR-10's binary files, one CSV file, or any files with a dataset.json. Files that match
    /// .saggarignore are skipped. Or one such file.
    pub(crate) dir: PathBuf,
    /// The dataset's name [default: the name of the directory or file].
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DataFetchArgs {
    /// The address, which begins with https://, http:// or file://. Archives (.tar.gz, .tar, .zip) and compressed files
    /// (.gz) are unpacked.
    pub(crate) url: String,
    /// The file's SHA-256, in hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: String,
    /// The dataset's name.
    #[arg(long)]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DataExportArgs {
    /// The dataset: NAME for its newest version, or NAME/VERSION.
    pub(crate) dataset: String,
    /// The directory to create [default: the dataset's name].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DataAddArgs {
    /// The job, or JOB/PATH for one folder or file that the job wrote.
    pub(crate) job: String,
    /// The dataset's name.
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DataRmArgs {
    /// NAME/VERSION, or NAME for all versions.
    pub(crate) dataset: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
