//! Hyper-parameters: named sets, and replacements of single values.

use saggar_plugin::{Error, FromJson, Job, Json, Params, Result};

/// A named set of hyper-parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HparamsSet {
    pub(crate) layers: u32,
    pub(crate) width: u32,
    pub(crate) heads: u32,
    pub(crate) inner: u32,
    pub(crate) warmup: u64,
    /// The peak learning rate is this number divided by the root of `warmup`.
    pub(crate) rate: f64,
    pub(crate) vocabulary: u32,
    pub(crate) length: u32,
    pub(crate) epochs: u64,
    /// The decay of the moving average of the weights.
    pub(crate) average: f64,
}

/// A set for a CPU and an hour.
pub(crate) const TINY: HparamsSet = HparamsSet {
    layers: 2,
    width: 128,
    heads: 4,
    inner: 512,
    warmup: 1000,
    rate: 0.08,
    vocabulary: 4096,
    length: 64,
    epochs: 10,
    average: 0.998,
};

/// The base model for one GPU. Source: `transformer_base_single_gpu` of tensor2tensor 1.15.
pub(crate) const BASE: HparamsSet = HparamsSet {
    layers: 6,
    width: 512,
    heads: 8,
    inner: 2048,
    warmup: 16_000,
    rate: 0.1,
    vocabulary: 32_768,
    length: 256,
    epochs: 20,
    average: 0.0,
};

/// A job's hyper-parameters. A parameter given by name has priority, then a value in the parameter `hparams`, then the
/// set.
///
/// `hparams` is a set's name, or values that replace some of the set's, or both: `base,batch_size=2048`. Names can use
/// `_` for `-`, as in tensor2tensor.
#[derive(Debug)]
pub(crate) struct Hparams<'a> {
    job: &'a Job,
    pub(crate) set: HparamsSet,
    replaced: Params,
}

impl<'a> Hparams<'a> {
    /// Reads the parameter `hparams`.
    ///
    /// # Errors
    /// Returns `Parameter` if `hparams` cannot be parsed.
    pub(crate) fn new(job: &'a Job) -> Result<Self> {
        let text: String = job.param("hparams", String::new())?;
        let (set, replaced) = parse_hparams(&text)?;
        Ok(Self { job, set, replaced })
    }

    /// Returns the value of `name`, or `default`.
    ///
    /// # Errors
    /// Returns `Parameter` if the value has another type or is out of range.
    pub(crate) fn get<T: FromJson>(&self, name: &str, default: T) -> Result<T> {
        let replaced = self.replaced.get(name, default)?;
        self.job.param(name, replaced)
    }

    /// Checks that every value of `hparams` was read. Call it after reading all of them.
    ///
    /// # Errors
    /// Returns `UnknownParameter` for a name in `hparams` that was not read.
    pub(crate) fn check(&self) -> Result<()> {
        self.replaced.check()
    }
}

fn parse_hparams(text: &str) -> Result<(HparamsSet, Params)> {
    let wrong = || {
        let (name, given) = ("hparams".to_owned(), Json::from(text).to_string());
        let expected = "tiny, base or values such as batch_size=1024, joined by commas".to_owned();
        Error::Parameter { name, expected, given }
    };
    let (mut set, mut replaced) = (TINY, Params::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some((name, value)) => {
                let value = Json::parse(value).unwrap_or_else(|_| Json::from(value));
                replaced = replaced.with(&name.replace('_', "-"), value);
            }
            None if part == "tiny" => set = TINY,
            None if part == "base" || part == "transformer_base_single_gpu" => set = BASE,
            None => return Err(wrong()),
        }
    }
    Ok((set, replaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hparams_sets_are_named_and_single_values_overridden() {
        assert_eq!(parse_hparams("").unwrap().0, TINY);
        assert_eq!(parse_hparams("base").unwrap().0, BASE);
        let (set, replaced) = parse_hparams("transformer_base_single_gpu, batch_size=2048,smoothing=0.2").unwrap();
        assert_eq!(set, BASE);
        assert_eq!(replaced.get("batch-size", 1024u32).unwrap(), 2048);
        assert_eq!(replaced.get("smoothing", 0.1).unwrap(), 0.2);
        replaced.check().unwrap();
        assert!(
            parse_hparams("huge").unwrap_err().to_string().starts_with("parameter `hparams` must be tiny, base or")
        );
    }
}
