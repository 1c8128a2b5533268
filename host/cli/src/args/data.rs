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
    /// Store a well-known dataset: one that this program has or generates, or one of your files.
    #[command(subcommand)]
    Recipe(RecipeCommand),
    /// Print the JSON Schema of dataset.json, for editors.
    Schema,
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
    /// The directory: .npy, .npz, .safetensors, .parquet, .arrow, .feather, .jsonl or WebDataset's .tar files, one folder
    /// of images per class, text files, MNIST's IDX files, CIFAR-10's binary files, one CSV file, or any files with a
    /// dataset.json. Files that match .saggarignore are skipped. Or one such file.
    pub(crate) dir: PathBuf,
    /// The dataset's name [default: the name of the directory or file].
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) table: DataTableArgs,
}

/// Keys of dataset.json that can be given as options.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DataTableArgs {
    /// The column of a CSV file that is predicted [default: the column `label`, `class`, `target`, `y` or `species`,
    /// else the last one].
    #[arg(long, value_name = "COLUMN")]
    pub(crate) target: Option<String>,
    /// The share of the items that becomes the part `test`, such as 0.2. The others become the part `train`.
    #[arg(long, value_name = "SHARE", value_parser = parse_test_share)]
    pub(crate) split: Option<f64>,
    /// What happens to rows with missing values: `refuse` fails, `drop` leaves the rows out, `mean` takes the mean of
    /// the column or its most frequent class [default: refuse].
    #[arg(long, value_name = "POLICY", value_parser = ["refuse", "drop", "mean"])]
    pub(crate) missing: Option<String>,
    /// A column of a CSV file that is left out. Can be given several times.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) ignore: Vec<String>,
    /// The size in pixels that all images of a folder are converted to, such as 32x32.
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_image_size)]
    pub(crate) resize: Option<ImageSize>,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageSize {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Parses a width and a height.
fn parse_image_size(text: &str) -> Result<ImageSize, String> {
    let size = text
        .split_once('x')
        .and_then(|(width, height)| Some(ImageSize { width: width.parse().ok()?, height: height.parse().ok()? }));
    let size = size.filter(|size| size.width > 0 && size.height > 0);
    size.ok_or_else(|| "expected a width and a height in pixels, such as 32x32".to_owned())
}

/// Parses the share of the part `test`.
fn parse_test_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0001..=0.9999).contains(share));
    share.ok_or_else(|| "expected a number between 0 and 1, such as 0.2".to_owned())
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
    /// Let the server fetch the file, in a job. Its `--fetch-from` must allow the address.
    #[arg(long)]
    pub(crate) on_server: bool,
    /// Do not wait for the job of --on-server.
    #[arg(long, requires = "on_server")]
    pub(crate) detach: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecipeCommand {
    /// List the recipes, and the files that they need.
    Ls,
    /// Store the dataset of a recipe.
    Add {
        /// The recipe, as `saggar data recipe ls` lists it.
        recipe: String,
        /// The directory with the files that the recipe needs.
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
        /// The dataset's name [default: the recipe's].
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
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
    /// Store it in a job of the server, for example after a queue's other jobs.
    #[arg(long)]
    pub(crate) as_job: bool,
    /// Do not wait for the job of --as-job.
    #[arg(long, requires = "as_job")]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DataRmArgs {
    /// NAME/VERSION, or NAME for all versions.
    pub(crate) dataset: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
