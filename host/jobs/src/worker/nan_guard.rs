//! Watches that a training's numbers are numbers. A loss that is none, or a variable with an element that is none, ends
//! the attempt before it is saved or published: what is kept stays good.

use saggar_plugin::PluginError;
use saggar_store::SavedVariable;
use saggar_tensor::DType;

use crate::spec::{NonFinite, Precision};

/// How often it is told that an update is left out.
const SKIP_WARNINGS_MAX: u32 = 10;

/// What was seen.
#[derive(Debug)]
pub(super) struct NanGuard {
    policy: NonFinite,
    precision: Precision,
    /// How often it was told that an update is left out.
    skip_warnings: u32,
    failure: Option<PluginError>,
}

impl NanGuard {
    pub(super) fn new(policy: NonFinite) -> NanGuard {
        NanGuard { policy, precision: Precision::default(), skip_warnings: 0, failure: None }
    }

    /// Of a training in this precision, which may be why numbers are none.
    pub(super) fn with_precision(self, precision: Precision) -> NanGuard {
        NanGuard { precision, ..self }
    }

    /// Looks at a value that the plugin reported; what the log is to say of it. Only losses must be numbers: an accuracy
    /// over no items is none, and no harm.
    pub(super) fn check_metric(&mut self, step: u64, name: &str, value: f64) -> Option<String> {
        let is_loss = name.rsplit('/').next().is_some_and(|last| last.ends_with("loss"));
        if !is_loss || value.is_finite() {
            return None;
        }
        let what = format!("`{name}` is {} at step {step}", value_description(value));
        if self.policy == NonFinite::Skip {
            self.skip_warnings += 1;
            let more = if self.skip_warnings == SKIP_WARNINGS_MAX { "; more of the same is not told" } else { "" };
            return (self.skip_warnings <= SKIP_WARNINGS_MAX)
                .then(|| format!("{what}: an update of such numbers is left out{more}"));
        }
        self.record_non_finite(what);
        None
    }

    /// Looks at variables that are about to be kept, as they are after `step` steps where that is known.
    ///
    /// # Errors
    /// `NonFinite` where they or a loss before are none, and the job does not go on all the same.
    pub(super) fn check_variables(
        &mut self,
        step: Option<u64>,
        variables: &[SavedVariable],
    ) -> Result<(), PluginError> {
        // Where updates are left out, only what the training began with can be none.
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

    /// Whether the attempt must end.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn record_non_finite(&mut self, what: String) {
        if self.policy != NonFinite::Continue {
            let precision = match self.precision {
                Precision::Float32 => "",
                Precision::Mixed => {
                    "; in mixed precision what passes 65504 is infinite, `--precision float32` holds more"
                }
            };
            let message = format!(
                "{what}; nothing of it was saved or published, and older checkpoints stay (a lower learning rate usually \
                 helps{precision}; `--non-finite skip` leaves such steps out, `--non-finite continue` goes on all the same)"
            );
            self.failure.get_or_insert(PluginError::NonFinite { message });
        }
    }
}

fn value_description(value: f64) -> &'static str {
    if value.is_nan() { "not a number" } else { "infinite" }
}

/// An element of the variable that is no finite number, if there is one.
fn find_non_finite(variable: &SavedVariable) -> Option<f64> {
    // By their exponents, which are all ones; bytes from a file need not be aligned.
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
        for kept in [fine.clone(), halves([0x7bff, 0x0001]), integers] {
            NanGuard::new(NonFinite::Stop).check_variables(Some(1), &[kept]).unwrap();
        }
        for (bad, says) in [
            (floats(&[0.0, f32::NAN]), "not a number at step 7"),
            (floats(&[f32::NEG_INFINITY]), "infinite at step 7"),
            (halves([0, 0x7e00]), "not a number"),
            (halves([0xfc00, 0]), "infinite"),
        ] {
            let mut finite = NanGuard::new(NonFinite::Stop);
            let error = finite.check_variables(Some(7), &[fine.clone(), bad.clone()]).unwrap_err();
            assert_eq!(error.reason(), "NON_FINITE");
            assert!(error.to_string().contains(says), "{error}");
            // Once broken, it stays so.
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
            let mut leaves_out = NanGuard::new(NonFinite::Skip);
            let told: Vec<String> = (0..100).filter_map(|step| leaves_out.check_metric(step, name, value)).collect();
            assert!(
                told.len() == if ends { SKIP_WARNINGS_MAX as usize } else { 0 } && !leaves_out.has_failed(),
                "{told:?}"
            );
        }
    }
}
