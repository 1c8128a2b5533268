//! The job that a training runs in.

use crate::bindings::job as raw;
use crate::dataset::Batches;
use crate::error::{Error, Result};
use crate::params::{FromJson, Params};
use crate::variables::Variables;

/// What a training may ask of its job.
#[derive(Debug)]
pub struct Job {
    params: Params,
}

impl Job {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { params: Params::parse(&raw::parameters())? })
    }

    /// The job's parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The parameter `name`, or `default` where it is absent.
    ///
    /// # Errors
    /// `Parameter` if it has another type or is out of range.
    pub fn param<T: FromJson>(&self, name: &str, default: T) -> Result<T> {
        self.params.get(name, default)
    }

    /// The job's seed, which everything random should follow from.
    pub fn seed(&self) -> u64 {
        raw::seed()
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        raw::attempt()
    }

    /// An empty namespace of variables whose first values follow from the job's seed.
    pub fn variables(&self) -> Variables {
        Variables::new(self.seed())
    }

    /// Into how many shards the host divides every batch that gradients are taken of. A graph that takes gradients is built
    /// for the items of one, the others for whole batches. [`crate::Fit`] does it by itself.
    pub fn shards(&self) -> u32 {
        raw::shards()
    }

    /// Records a value of the series `name` at a step.
    pub fn metric(&self, step: u64, name: &str, value: f64) {
        raw::metric(step, name, value);
    }

    /// Says how far the training is.
    pub fn progress(&self, step: u64, of: u64) {
        raw::progress(step, of);
    }

    /// Restores variables and positions from the newest checkpoint and gives its step and state; none at the beginning.
    /// Called once, when all variables and batches exist. [`crate::Fit`] does it by itself.
    ///
    /// # Errors
    /// `Host` if the checkpoint has other variables or other batches.
    pub fn resume(&self, variables: &Variables, batches: &[&Batches]) -> Result<Option<(u64, Vec<u8>)>> {
        let batches: Vec<_> = batches.iter().map(|batches| batches.raw()).collect();
        Ok(raw::resume(variables.raw(), &batches)?)
    }

    /// A step boundary, where the host may take a checkpoint. [`crate::Fit`] calls it by itself.
    ///
    /// # Errors
    /// `Stopped` if the training is to return now; `Host` if a checkpoint could not be taken.
    pub fn boundary(&self, step: u64, variables: &Variables, batches: &[&Batches], state: &[u8]) -> Result<()> {
        let batches: Vec<_> = batches.iter().map(|batches| batches.raw()).collect();
        if raw::boundary(step, variables.raw(), &batches, state)? { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Begins a phase of the job's work, such as `post`; a job begins in `train`. What was published stays if a later phase
    /// fails, and the job tells what became of each.
    ///
    /// # Errors
    /// `Host` for a name that is not letters, digits, `.`, `_` and `-`.
    pub fn phase(&self, name: &str) -> Result<()> {
        Ok(raw::phase(name)?)
    }

    /// Makes the parameters and statistics a new version of `model`, with this plugin as its code and `config` for its
    /// predictor. Returns the version.
    ///
    /// # Errors
    /// `Host` if the job may not publish under that name.
    pub fn publish(&self, model: &str, variables: &Variables, config: &Params) -> Result<u64> {
        Ok(raw::publish(model, variables.raw(), &config.to_string())?)
    }

    /// A published version of `model`, the newest where none is named: its number, its parameters and statistics, and what
    /// its predictor is given. A training that must end the same after an interruption names the version.
    ///
    /// # Errors
    /// `Host` if there is none; `Json` and `NotAnObject` for a configuration that is not one.
    pub fn open_model(&self, model: &str, version: Option<u64>) -> Result<(u64, Variables, Params)> {
        let opened = raw::open_model(model, version)?;
        Ok((opened.version, Variables::from_raw(opened.variables), Params::parse(&opened.config)?))
    }

    /// A secret that the job was granted (`saggar run --secret NAME`).
    ///
    /// # Errors
    /// `Host` if it was not, or there is none of that name.
    pub fn secret(&self, name: &str) -> Result<String> {
        Ok(raw::secret(name)?)
    }

    /// Keeps a file with the job, in the place of one that has that path: names of letters, digits, `.`, `_` and `-`,
    /// joined by `/`.
    ///
    /// # Errors
    /// `Host` if the path is another or the files are too many or too large.
    pub fn write_output(&self, path: &str, data: &[u8]) -> Result<()> {
        Ok(raw::write_output(path, data)?)
    }
}
