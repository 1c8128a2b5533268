//! Command-line arguments of the benchmark.

use std::path::PathBuf;

use crate::separate_process::IsolatedRun;

/// Default number of rounds of turns.
const DEFAULT_ROUNDS: usize = 5;

/// Default duration of a turn, in seconds.
const DEFAULT_TURN_SECONDS: f64 = 0.5;

/// Default time that all turns of a benchmark together wait for a quiet machine, in seconds.
const DEFAULT_QUIET_WAIT_SECONDS: u64 = 60;

/// The options and the names of the selected benchmarks.
#[derive(Debug)]
pub(crate) struct BenchArguments {
    pub(crate) list: bool,
    /// Print the adapters and exit.
    pub(crate) adapters: bool,
    /// Print the time of each kernel too.
    pub(crate) kernels: bool,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) patience: u64,
    /// The device to measure; `None` is the processor, compared with the CPU peers.
    pub(crate) device: Option<String>,
    /// Shrink networks, to test the harness.
    pub(crate) small: bool,
    /// Seconds after which no further benchmark is started.
    pub(crate) budget: u64,
    pub(crate) save: Option<PathBuf>,
    pub(crate) python: Option<PathBuf>,
    /// The directory of the peers' programs; `None` is this source tree.
    pub(crate) sources: Option<PathBuf>,
    /// The directory of results and work files; `None` is a folder of the build directory.
    pub(crate) folder: Option<PathBuf>,
    /// Set if the harness started this process to run one measurement.
    pub(crate) alone: Option<IsolatedRun>,
    names: Vec<String>,
}

impl BenchArguments {
    /// Parses the command line.
    ///
    /// # Errors
    /// Returns an error if an option is unknown or lacks its value.
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<BenchArguments, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut arguments = BenchArguments {
            list: false,
            adapters: false,
            kernels: false,
            threads,
            seconds: DEFAULT_TURN_SECONDS,
            rounds: DEFAULT_ROUNDS,
            patience: DEFAULT_QUIET_WAIT_SECONDS,
            device: None,
            small: false,
            budget: u64::MAX,
            save: None,
            python: None,
            sources: None,
            folder: None,
            alone: None,
            names: Vec::new(),
        };
        while let Some(word) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--list" => arguments.list = true,
                "--adapters" => arguments.adapters = true,
                "--kernels" => arguments.kernels = true,
                "--small" => arguments.small = true,
                "--device" => arguments.device = Some(value()?),
                "--budget" => arguments.budget = parse_number(&word, &value()?)?,
                "--sources" => arguments.sources = Some(value()?.into()),
                "--folder" => arguments.folder = Some(value()?.into()),
                "--threads" => arguments.threads = parse_number(&word, &value()?)?,
                "--rounds" => arguments.rounds = parse_number::<usize>(&word, &value()?)?.max(1),
                "--patience" => arguments.patience = parse_number(&word, &value()?)?,
                "--seconds" => arguments.seconds = parse_number(&word, &value()?)?,
                "--save" => arguments.save = Some(value()?.into()),
                "--python" => arguments.python = Some(value()?.into()),
                "--alone" => arguments.alone = IsolatedRun::from_arguments(given.by_ref()),
                // Cargo passes this to every benchmark.
                "--bench" => {}
                _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
                _ => arguments.names.push(word),
            }
        }
        Ok(arguments)
    }

    /// Returns whether the benchmark of this name is selected.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part))
    }
}

fn parse_number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} takes a number, not {text}"))
}
