//! How a plugin is made a component.

use crate::bindings::{predictor, tensors, variables};
use crate::error::{Error, Result};
use crate::import::{Importer, Weights};
use crate::job::Job;
use crate::logging::report_panics;
use crate::params::Params;
use crate::predict::Predictor;
use crate::variables::Variables;

/// Exports a plugin. To be called once, at the top of the crate.
///
/// - `export!(Model, train)`: a plugin that predicts with a [`Model`](crate::Model) and trains with a function
///   `fn(&Job) -> Result<()>`;
/// - `export!(predict: Model)`: one that only predicts;
/// - `export!(predictor: Predictor)`: one that only predicts, by its own [`Predictor`](crate::Predictor);
/// - `export!(train: function)`: one that only trains;
/// - `export!(importer: Importer)`: one that makes models of files in a foreign format and predicts with them, by its own
///   [`Importer`](crate::Importer).
///
/// `predictor:` or `predict:` and `train:` may stand together.
#[macro_export]
macro_rules! export {
    (predict: $model:ty) => {
        $crate::export!(predictor: $crate::Graphs<$model>);
    };
    (predictor: $predictor:ty) => {
        // Only there do the exported names mean anything; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct PredictorExport;
            impl $crate::bindings::predictor::Guest for PredictorExport {
                type Model = $crate::Loaded<$predictor>;
            }
            $crate::bindings::predict::export_predictor!(PredictorExport with_types_in $crate::bindings::predict);
        };
    };
    (importer: $importer:ty) => {
        $crate::export!(predictor: $importer);
        // Only there do the exported names mean anything; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct ImporterExport;
            impl $crate::bindings::importer::Guest for ImporterExport {
                fn import_model(
                    file: ::std::vec::Vec<u8>,
                    options: ::std::string::String,
                    variables: &$crate::bindings::variables::Variables,
                ) -> ::core::result::Result<::std::string::String, $crate::bindings::tensors::Error> {
                    $crate::run_import::<$importer>(&file, &options, variables)
                }
            }
            $crate::bindings::import::export_importer!(ImporterExport with_types_in $crate::bindings::import);
        };
    };
    (train: $train:path) => {
        // Only there do the exported names mean anything; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct TrainerExport;
            impl $crate::bindings::trainer::Guest for TrainerExport {
                fn train() -> ::core::result::Result<(), $crate::bindings::tensors::Error> {
                    $crate::run_training($train)
                }
            }
            $crate::bindings::train::export_trainer!(TrainerExport with_types_in $crate::bindings::train);
        };
    };
    ($model:ty, $train:path) => {
        $crate::export!(predict: $model);
        $crate::export!(train: $train);
    };
}

/// What the exported training does; called by [`export!`].
///
/// # Errors
/// What `train` failed with. A training that was told to stop has not failed.
pub fn run_training(train: fn(&Job) -> Result<()>) -> std::result::Result<(), tensors::Error> {
    report_panics();
    match Job::open().and_then(|job| train(&job)) {
        Ok(()) | Err(Error::Stopped) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the exported import does; called by [`export!`].
///
/// # Errors
/// What the import failed with; `UnknownParameter` for an option that it did not ask for.
pub fn run_import<I: Importer>(
    file: &[u8],
    options: &str,
    variables: &variables::Variables,
) -> std::result::Result<String, tensors::Error> {
    report_panics();
    let options = Params::parse(options)?;
    let config = I::import(file, &options, &Weights(variables))?;
    options.check()?;
    Ok(config.to_string())
}

/// A predictor as the host's bindings want it; named by [`export!`].
#[derive(Debug)]
pub struct Loaded<P>(P);

impl<P: Predictor> predictor::GuestModel for Loaded<P> {
    fn load(variables: variables::Variables, config: String) -> std::result::Result<predictor::Model, tensors::Error> {
        report_panics();
        let model = Params::parse(&config).and_then(|config| P::load(Variables::from_raw(variables), config))?;
        Ok(predictor::Model::new(Self(model)))
    }

    fn signature(&self) -> predictor::Signature {
        self.0.signature().into()
    }

    fn predict(
        &self,
        inputs: Vec<tensors::NamedTensor>,
    ) -> std::result::Result<Vec<tensors::NamedTensor>, tensors::Error> {
        let outputs = self.0.predict(inputs.into_iter().map(Into::into).collect())?;
        Ok(outputs.into_iter().map(Into::into).collect())
    }
}
