//! The job that a training runs in: parameters, metrics, checkpoints, publishing and output files.

use crate::bindings::job::{self as raw, ImagePreprocessing};
use crate::call_site::AtCallSite;
use crate::dataset::Batches;
use crate::error::{Error, Result};
use crate::params::{FromJson, Params};
use crate::variables::Variables;

/// A training job. The function given to [`export!`](crate::export) receives it.
///
/// ```no_run
/// # use saggar_plugin::*;
/// fn train(job: &Job) -> Result<()> {
///     let epochs: u64 = job.param("epochs", 10)?;
///     let variables = job.variables();
///     // Train here, with `Fit` or with a custom loop.
///     job.publish("digits", &variables, &Params::new().with("epochs", epochs as f64))?;
///     job.write_output("summary.txt", format!("{epochs} epochs\n").as_bytes())
/// }
/// ```
#[derive(Debug)]
pub struct Job {
    params: Params,
}

impl Job {
    #[track_caller]
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { params: Params::parse(&raw::parameters())? })
    }

    /// Returns the job's parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the parameter `name`, or `default` if it is not given.
    ///
    /// # Errors
    /// Returns `Parameter` if the value has another type or is out of range.
    #[track_caller]
    pub fn param<T: FromJson>(&self, name: &str, default: T) -> Result<T> {
        self.params.get(name, default)
    }

    /// Returns the job's seed. Derive all randomness from it.
    pub fn seed(&self) -> u64 {
        raw::seed()
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        raw::attempt()
    }

    /// Returns a new, empty namespace of variables whose random initial values derive from the job's seed.
    pub fn variables(&self) -> Variables {
        Variables::new(self.seed())
    }

    /// Returns the number of equal shards into which the host divides every batch for which gradients are computed.
    /// Build a graph with gradients for the items of one shard, and other graphs for whole batches. [`crate::Fit`] does
    /// this automatically.
    pub fn shards(&self) -> u32 {
        raw::shards()
    }

    /// Records `value` in the series `name` at `step`.
    pub fn metric(&self, step: u64, name: &str, value: f64) {
        raw::metric(step, name, value);
    }

    /// Reports that `step` of `of` steps are done.
    pub fn progress(&self, step: u64, of: u64) {
        raw::progress(step, of);
    }

    /// Restores the variables and batch positions from the newest checkpoint. Returns the checkpoint's step and state,
    /// or `None` if there is no checkpoint and the training starts from the beginning. Call it once, when all variables
    /// and batches exist. [`crate::Fit`] calls it automatically.
    ///
    /// # Errors
    /// Returns `Host` if the checkpoint has other variables or other batches.
    #[track_caller]
    pub fn resume(&self, variables: &Variables, batches: &[&Batches]) -> Result<Option<(u64, Vec<u8>)>> {
        let batches: Vec<_> = batches.iter().map(|batches| batches.raw()).collect();
        raw::resume(variables.raw(), &batches).at_caller()
    }

    /// Marks a step boundary, at which the host can take a checkpoint. [`crate::Fit`] calls it automatically.
    ///
    /// # Errors
    /// Returns `Stopped` if the training must return now, and `Host` if a checkpoint could not be taken.
    #[track_caller]
    pub fn boundary(&self, step: u64, variables: &Variables, batches: &[&Batches], state: &[u8]) -> Result<()> {
        let batches: Vec<_> = batches.iter().map(|batches| batches.raw()).collect();
        let continues = raw::boundary(step, variables.raw(), &batches, state).at_caller()?;
        if continues { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Declares the preprocessing of the image input `name`. Call it before the dataset's fields and batches are used.
    /// From then on fields of this name are `float32` in the declared size and layout, and published versions have the
    /// declaration: the input of their model has the same data type and shape, and clients send images. So training and
    /// serving preprocess alike.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job) -> Result<()> {
    /// let preprocessing = ImagePreprocessing {
    ///     height: 32,
    ///     width: 32,
    ///     fit: ImageFit::Crop,
    ///     colors: ImageColors::Rgb,
    ///     normalization: ImageNormalization::PerImageStandardization,
    ///     layout: InputOperandLayout::Nchw,
    /// };
    /// job.declare_image_input("image", &preprocessing)?;
    /// let data = Dataset::open("/data")?;
    /// assert_eq!(data.field("image")?.item.shape, [3, 32, 32]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if the declaration cannot be applied, differs from an earlier one, or comes after batches of the
    /// field.
    #[track_caller]
    pub fn declare_image_input(&self, name: &str, preprocessing: &ImagePreprocessing) -> Result<()> {
        raw::declare_image_input(name, preprocessing).at_caller()
    }

    /// Starts a phase of the job, such as `post`. A job starts in the phase `train`. If a later phase fails, published
    /// versions are kept; the job reports the outcome of each phase.
    ///
    /// # Errors
    /// Returns `Host` if the name contains characters other than letters, digits, `.`, `_` and `-`.
    #[track_caller]
    pub fn phase(&self, name: &str) -> Result<()> {
        raw::phase(name).at_caller()
    }

    /// Publishes the parameters and statistics as a new version of `model`, with this plugin as its code and `config`
    /// as the configuration of its predictor. Returns the version number.
    ///
    /// # Errors
    /// Returns `Host` if the job is not allowed to publish under that name.
    #[track_caller]
    pub fn publish(&self, model: &str, variables: &Variables, config: &Params) -> Result<u64> {
        raw::publish(model, variables.raw(), &config.to_string()).at_caller()
    }

    /// Opens a published version of `model`, the newest if `version` is `None`. Returns its number, its parameters and
    /// statistics, and the configuration of its predictor. A training whose result must not change after an
    /// interruption must give the version.
    ///
    /// # Errors
    /// Returns `Host` if the version does not exist, and `Json` or `NotAnObject` if its configuration is not a JSON
    /// object.
    #[track_caller]
    pub fn open_model(&self, model: &str, version: Option<u64>) -> Result<(u64, Variables, Params)> {
        let opened = raw::open_model(model, version).at_caller()?;
        Ok((opened.version, Variables::from_raw(opened.variables), Params::parse(&opened.config)?))
    }

    /// Returns the value of a secret that was granted to the job (`saggar run --secret NAME`).
    ///
    /// # Errors
    /// Returns `Host` if the secret was not granted or does not exist.
    #[track_caller]
    pub fn secret(&self, name: &str) -> Result<String> {
        raw::secret(name).at_caller()
    }

    /// Stores a file with the job, replacing any file with that path. A path consists of names of letters, digits, `.`,
    /// `_` and `-`, joined by `/`.
    ///
    /// # Errors
    /// Returns `Host` if the path is invalid, or the files are too many or too large.
    #[track_caller]
    pub fn write_output(&self, path: &str, data: &[u8]) -> Result<()> {
        raw::write_output(path, data).at_caller()
    }
}
