//! The NaN guard: ends an attempt whose loss or variables are infinite or not a number before they are saved or
//! published, so that stored state stays valid.

use saggar_plugin::PluginError;
use saggar_store::SavedVariable;
use saggar_tensor::DType;

use crate::spec::{NonFinite, Precision};

/// Maximum number of warnings about skipped updates.
const SKIP_WARNINGS_MAX: u32 = 10;

/// The state of the guard.
#[derive(Debug)]
pub(super) struct NanGuard {
    policy: NonFinite,
    precision: Precision,
    /// The number of warnings about skipped updates so far.
    skip_warnings: u32,
    failure: Option<PluginError>,
}

impl NanGuard {
    pub(super) fn new(policy: NonFinite) -> NanGuard {
        NanGuard { policy, precision: Precision::default(), skip_warnings: 0, failure: None }
    }

    /// Sets the training's precision, which can be the cause of such numbers.
    pub(super) fn with_precision(self, precision: Precision) -> NanGuard {
        NanGuard { precision, ..self }
    }

    /// Checks a value that the plugin reported, and returns a warning for the log, or `None`. Only losses must be
    /// finite, because an accuracy over no items is legitimately NaN.
    pub(super) fn check_metric(&mut self, step: u64, name: &str, value: f64) -> Option<String> {
        let is_loss = name.rsplit('/').next().is_some_and(|last| last.ends_with("loss"));
        if !is_loss || value.is_finite() {
            return None;
        }
        let what = format!("`{name}` is {} at step {step}", value_description(value));
        if self.policy == NonFinite::Skip {
            self.skip_warnings += 1;
            let more =
                if self.skip_warnings == SKIP_WARNINGS_MAX { "; further such warnings are suppressed" } else { "" };
            return (self.skip_warnings <= SKIP_WARNINGS_MAX)
                .then(|| format!("{what}: an update with such numbers is skipped{more}"));
        }
        self.record_non_finite(what);
        None
    }

    /// Checks variables that are about to be stored, after `step` steps if known.
    ///
    /// # Errors
    /// `NonFinite` if a variable or an earlier loss is not finite, unless the policy is to continue.
    pub(super) fn check_variables(
        &mut self,
        step: Option<u64>,
        variables: &[SavedVariable],
    ) -> Result<(), PluginError> {
        // If updates are skipped, only the initial values can be non-finite.
        if self.policy != NonFinite::Continue && self.failure.is_none() {
            let broken = variables.iter().find_map(|it| Some((it, find_non_finite(it)?)));
            if let Some((variable, value)) = broken {
                let when = step.map_or(String::new(), |step| format!(" at step {step}"));
                self.record_non_finite(format!(
                    "variable `{}` has an element that is {}{when}",
                    variable.name,
                    value_description(value)
                ));
            }
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns whether the attempt must end.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn record_non_finite(&mut self, what: String) {
        if self.policy != NonFinite::Continue {
            let precision = match self.precision {
                Precision::Float32 => "",
                Precision::Mixed => {
                    "; in mixed precision values above 65504 are infinite, `--precision float32` has a larger range"
                }
            };
            let message = format!(
                "{what}; nothing of it was saved or published, and older checkpoints stay (a lower learning rate usually \
                 helps{precision}; `--non-finite skip` skips such steps, `--non-finite continue` ignores them)"
            );
            self.failure.get_or_insert(PluginError::NonFinite { message });
        }
    }
}

fn value_description(value: f64) -> &'static str {
    if value.is_nan() { "not a number" } else { "infinite" }
}

/// Returns an element of the variable that is not finite, or `None`.
fn find_non_finite(variable: &SavedVariable) -> Option<f64> {
    // Checks for exponents of all ones; bytes from a file need not be aligned.
    match variable.descriptor.dtype {
        DType::F32 => {
            let (numbers, _) = variable.bytes.as_chunks::<4>();
            let bits = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes));
            let value = bits.into_iter().find(|bits| bits & 0x7f80_0000 == 0x7f80_0000)?;
            Some(f64::from(f32::from_bits(value)))
        }
        DType::F16 => {
            let (numbers, _) = variable.bytes.as_chunks::<2>();
            let bits = numbers.iter().map(|bytes| u16::from_le_bytes(*bytes));
            let value = bits.into_iter().find(|bits| bits & 0x7c00 == 0x7c00)?;
            Some(if value & 0x03ff == 0 { f64::INFINITY } else { f64::NAN })
        }
        DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 => None,
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::VariableKind;
    use saggar_tensor::Descriptor;

    use super::*;

    fn variable(dtype: DType, bytes: Vec<u8>) -> SavedVariable {
        let items = bytes.len() / dtype.bytes();
        let descriptor = Descriptor::new(dtype, saggar_tensor::Shape::new([items]).unwrap());
        SavedVariable { name: "w".to_owned(), kind: VariableKind::Parameter, descriptor, bytes: bytes.into() }
    }

    fn floats(values: &[f32]) -> SavedVariable {
        variable(DType::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    #[test]
    fn a_non_finite_variable_is_not_saved() {
        let fine = floats(&[0.0, -1.0, f32::MAX, f32::MIN_POSITIVE, 1e-45]);
        let halves = |bits: [u16; 2]| variable(DType::F16, bits.into_iter().flat_map(u16::to_le_bytes).collect());
        let integers = variable(DType::I32, vec![0xff; 8]);
        for accepted in [fine.clone(), halves([0x7bff, 0x0001]), integers] {
            NanGuard::new(NonFinite::Stop).check_variables(Some(1), &[accepted]).unwrap();
        }
        for (bad, says) in [
            (floats(&[0.0, f32::NAN]), "not a number at step 7"),
            (floats(&[f32::NEG_INFINITY]), "infinite at step 7"),
            (halves([0, 0x7e00]), "not a number"),
            (halves([0xfc00, 0]), "infinite"),
        ] {
            let mut finite = NanGuard::new(NonFinite::Stop);
            let error = finite.check_variables(Some(7), &[fine.clone(), bad.clone()]).unwrap_err();
            assert_eq!(error.reason().as_str(), "NON_FINITE");
            assert!(error.to_string().contains(says), "{error}");
            // A failure is permanent.
            finite.check_variables(Some(8), std::slice::from_ref(&fine)).unwrap_err();
            NanGuard::new(NonFinite::Continue).check_variables(Some(7), &[bad]).unwrap();
        }
    }

    #[test]
    fn a_non_finite_loss_ends_the_attempt() {
        for (name, value, ends) in [
            ("loss", f64::NAN, true),
            ("main/loss", f64::INFINITY, true),
            ("train_loss", f64::NAN, true),
            ("loss", 1e300, false),
            ("accuracy", f64::NAN, false),
            ("loss/rate", f64::NAN, false),
        ] {
            let mut finite = NanGuard::new(NonFinite::Stop);
            assert_eq!(finite.check_metric(3, name, value), None, "the attempt's end tells it");
            assert_eq!(finite.has_failed(), ends, "{name} {value}");
            let mut mixed = NanGuard::new(NonFinite::Stop).with_precision(Precision::Mixed);
            mixed.check_metric(3, name, value);
            let says = |finite: &mut NanGuard| {
                finite.check_variables(None, &[]).err().map_or(String::new(), |it| it.to_string())
            };
            assert_eq!(says(&mut mixed).contains("`--precision float32`"), ends, "it may be why");
            assert!(!says(&mut finite).contains("--precision"));
            assert_eq!(finite.check_variables(None, &[]).is_err(), ends, "{name} {value}");
            let mut goes_on = NanGuard::new(NonFinite::Continue);
            assert_eq!(goes_on.check_metric(3, name, value), None);
            assert!(!goes_on.has_failed());
            let mut skipping = NanGuard::new(NonFinite::Skip);
            let warnings: Vec<String> = (0..100).filter_map(|step| skipping.check_metric(step, name, value)).collect();
            assert!(
                warnings.len() == if ends { SKIP_WARNINGS_MAX as usize } else { 0 } && !skipping.has_failed(),
                "{name} {value}"
            );
        }
    }
}
