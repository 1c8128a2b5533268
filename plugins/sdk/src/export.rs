//! Exports of a plugin: implements the host's interfaces with a plugin's types and functions.

use std::rc::Rc;

use crate::bindings::{predictor, tensors, variables};
use crate::error::{Error, Result};
use crate::import::{Importer, Weights};
use crate::job::Job;
use crate::loaded::set_loaded;
use crate::logging::report_panics;
use crate::params::Params;
use crate::predict::Predictor;
use crate::variables::Variables;

/// Exports a plugin. Call it at the top level of the crate.
///
/// - `export!(Model, train)`: predicts with a [`Model`](crate::Model) and trains with a function `fn(&Job) ->
///   Result<()>`.
/// - `export!(predict: Model)`: predicts with a [`Model`](crate::Model).
/// - `export!(predictor: Predictor)`: predicts with a [`Predictor`](crate::Predictor).
/// - `export!(train: function)`: trains.
/// - `export!(step: function)`: is a step, a function `fn(&Job, &StepInputs) -> Result<StepOutputs>` from typed inputs
///   to typed outputs. See [`StepOutputs`](crate::StepOutputs). A step trains and predicts nothing.
/// - `export!(http: routes)`: answers HTTP requests with the handlers of a function `fn() -> HttpRoutes<P>`, beside
///   another call that exports the predictor `P`. See [`HttpRoutes`](crate::HttpRoutes).
/// - `export!(importer: Importer)`: imports files in a foreign format with an [`Importer`](crate::Importer), and
///   predicts with the imported models.
///
/// To export a [`Predictor`](crate::Predictor) and a training, call it twice: once with `predictor:` and once with
/// `train:`.
///
/// ```no_run
/// use saggar_plugin::{DataType, Graph, Inputs, Job, Model, Operand, Params, Port, Result, Variables};
///
/// struct Double;
///
/// impl Model for Double {
///     fn load(_: &Variables, _: &Params) -> Result<Self> {
///         Ok(Self)
///     }
///     fn inputs(&self) -> Vec<Port> {
///         vec![Port::new("x", DataType::Float32, [])]
///     }
///     fn outputs(&self) -> Vec<Port> {
///         vec![Port::new("y", DataType::Float32, [])]
///     }
///     fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
///         Ok(vec![("y", inputs.get("x")?.mul_scalar(2.0)?)])
///     }
/// }
///
/// fn train(job: &Job) -> Result<()> {
///     job.publish("double", &job.variables(), &Params::new()).map(drop)
/// }
///
/// saggar_plugin::export!(Double, train);
/// ```
#[macro_export]
macro_rules! export {
    (predict: $model:ty) => {
        $crate::export!(predictor: $crate::Graphs<$model>);
    };
    (predictor: $predictor:ty) => {
        // The exported names are only valid in WebAssembly; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct PredictorExport;
            impl $crate::bindings::predictor::Guest for PredictorExport {
                type Model = $crate::LoadedPredictor<$predictor>;
            }
            $crate::bindings::predict::export_predictor!(PredictorExport with_types_in $crate::bindings::predict);
        };
    };
    (importer: $importer:ty) => {
        $crate::export!(predictor: $importer);
        // The exported names are only valid in WebAssembly; a native linker refuses them.
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
    (http: $routes:path) => {
        // The exported names are only valid in WebAssembly; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct HandlerExport;
            impl $crate::bindings::http_handler::Guest for HandlerExport {
                fn routes() -> ::std::vec::Vec<$crate::bindings::http_handler::HandlerRoute> {
                    $crate::list_http_routes($routes)
                }
                fn handle(
                    route: u32,
                    request: $crate::bindings::http_handler::HttpRequest,
                ) -> ::core::result::Result<
                    ::core::option::Option<$crate::bindings::http_handler::HttpResponse>,
                    $crate::bindings::tensors::Error,
                > {
                    $crate::run_http_handler($routes, route, request)
                }
            }
            $crate::bindings::http::export_http_handler!(HandlerExport with_types_in $crate::bindings::http);
        };
    };
    (train: $train:path) => {
        // The exported names are only valid in WebAssembly; a native linker refuses them.
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
    (step: $run:path) => {
        // The exported names are only valid in WebAssembly; a native linker refuses them.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct StepExport;
            impl $crate::bindings::step::Guest for StepExport {
                fn run(
                    inputs: ::std::vec::Vec<$crate::bindings::step::NamedValue>,
                ) -> ::core::result::Result<
                    ::std::vec::Vec<$crate::bindings::step::NamedValue>,
                    $crate::bindings::tensors::Error,
                > {
                    $crate::run_step($run, inputs)
                }
            }
            $crate::bindings::stepping::export_step!(StepExport with_types_in $crate::bindings::stepping);
        };
    };
    ($model:ty, $train:path) => {
        $crate::export!(predict: $model);
        $crate::export!(train: $train);
    };
}

/// Runs the exported training. Called by [`export!`].
///
/// # Errors
/// Returns the error of `train`. `Stopped` is not an error: the training returned because the job is stopping.
pub fn run_training(train: fn(&Job) -> Result<()>) -> std::result::Result<(), tensors::Error> {
    report_panics();
    match Job::open().and_then(|job| train(&job)) {
        Ok(()) | Err(Error::Stopped) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Runs the exported import. Called by [`export!`].
///
/// # Errors
/// Returns the error of the import, and `UnknownParameter` for an option that it did not read.
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

/// A predictor in the form that the host's bindings require. Used by [`export!`].
#[derive(Debug)]
pub struct LoadedPredictor<P>(Rc<P>);

impl<P: Predictor> predictor::GuestModel for LoadedPredictor<P> {
    fn load(variables: variables::Variables, config: String) -> std::result::Result<predictor::Model, tensors::Error> {
        report_panics();
        let model = Params::parse(&config).and_then(|config| P::load(Variables::from_raw(variables), config))?;
        let model = Rc::new(model);
        set_loaded(Rc::<P>::clone(&model));
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
