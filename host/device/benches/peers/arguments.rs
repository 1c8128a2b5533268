//! What the command was told.

use std::path::PathBuf;

use crate::alone::IsolatedRun;

/// Rounds of turns, by default.
const DEFAULT_ROUNDS: usize = 5;

/// Seconds of a turn, by default.
const DEFAULT_TURN_SECONDS: f64 = 0.5;

/// Seconds that a work waits for a quiet machine, by default and all turns together.
const DEFAULT_QUIET_WAIT_SECONDS: u64 = 60;

/// Options and the names of works.
#[derive(Debug)]
pub(crate) struct BenchArguments {
    pub(crate) list: bool,
    /// The adapters are told, and nothing else is done.
    pub(crate) adapters: bool,
    /// What kernels take is said too.
    pub(crate) kernels: bool,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) patience: u64,
    /// The device that is measured; none is the processor, beside the peers of processors.
    pub(crate) device: Option<String>,
    /// Networks shrink: the harness is tried out.
    pub(crate) small: bool,
    /// Seconds after which no other work is begun.
    pub(crate) budget: u64,
    pub(crate) save: Option<PathBuf>,
    pub(crate) python: Option<PathBuf>,
    /// Where the peers' programs are; none is this source tree.
    pub(crate) sources: Option<PathBuf>,
    /// Where results and what has to be made for them go; none is the build's own folder.
    pub(crate) folder: Option<PathBuf>,
    /// This process is one that the harness has started to measure in.
    pub(crate) alone: Option<IsolatedRun>,
    names: Vec<String>,
}

impl BenchArguments {
    /// # Errors
    /// An option that there is not, or that lacks its value.
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
                // Cargo says so to every benchmark.
                "--bench" => {}
                _ if word.starts_with('-') => return Err(format!("there is no option {word}")),
                _ => arguments.names.push(word),
            }
        }
        Ok(arguments)
    }

    /// Whether the work of this name is to be measured.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part))
    }
}

fn parse_number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} takes a number, not {text}"))
}
