//! SDK for saggar plugins written in Rust.
//!
//! A plugin describes tensor graphs; the host holds the data, executes the graphs and stores the state. This crate
//! wraps the host's interfaces ([`bindings`]) in types for writing models, and adds [layers](layers), [losses](losses),
//! [optimisers](optimizers), the [training loop](Fit) and the [predictor](Model).
//!
//! A plugin is a `cdylib` crate that calls [`export!`]. Its code runs in a sandbox without files, clock, environment
//! variables or threads: do not use `std::fs`, `std::time`, `std::env` or `std::thread`.
//!
//! # Example
//! A plugin that trains and serves a linear regression of `y` `float32[1]` on `x` `float32[4]`:
//! ```no_run
//! use saggar_plugin::layers::Linear;
//! use saggar_plugin::losses::mean_squared_error;
//! use saggar_plugin::optimizers::Adam;
//! use saggar_plugin::{
//!     DataType, Dataset, Feed, Fit, Graph, Inputs, Job, Model, Objective, Operand, Params, Port, Result, Variables,
//! };
//!
//! struct Regression(Linear);
//!
//! impl Model for Regression {
//!     fn load(v: &Variables, _: &Params) -> Result<Self> {
//!         Ok(Self(Linear::new(v, 4, 1)?))
//!     }
//!     fn inputs(&self) -> Vec<Port> {
//!         vec![Port::new("x", DataType::Float32, [4])]
//!     }
//!     fn outputs(&self) -> Vec<Port> {
//!         vec![Port::new("y", DataType::Float32, [1])]
//!     }
//!     fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
//!         Ok(vec![("y", self.0.forward(inputs.get("x")?)?)])
//!     }
//! }
//!
//! fn train(job: &Job) -> Result<()> {
//!     let data = Dataset::open("/data")?;
//!     let feed = Feed::new(&data, &["x", "y"], job.param("batch", 32)?)?;
//!     let adam = Adam::new(job.param("lr", 0.001)?);
//!     let epochs = job.param("epochs", 3)?;
//!     let variables = job.variables();
//!     let model = Regression(Linear::new(&variables, 4, 1)?);
//!     Fit::new(job, &variables, &adam, &|_, batch| {
//!         let y = model.0.forward(batch.get("x")?)?;
//!         Ok(Objective::new(mean_squared_error(&y, batch.get("y")?)?))
//!     })
//!     .epochs(&feed, epochs)?;
//!     job.publish("regression", &variables, &Params::new()).map(drop)
//! }
//!
//! saggar_plugin::export!(Regression, train);
//! ```

pub mod bindings;
mod call_site;
mod classes;
mod confusion_matrix;
mod dataset;
mod error;
mod export;
mod fit;
mod graph;
mod http;
mod import;
mod job;
mod json;
pub mod layers;
mod loaded;
mod logged;
mod logging;
pub mod losses;
pub mod optimizers;
mod params;
pub mod png;
mod predict;
mod step;
mod streaming;
mod tensor;
mod variables;

pub use bindings::graphs::{
    Conv2dFilterOperandLayout, Conv2dOptions, ConvTranspose2dFilterOperandLayout, ConvTranspose2dOptions, GemmOptions,
    GruWeightLayout, InputOperandLayout, InterpolationMode, LstmWeightLayout, PaddingMode, Pool2dOptions,
    RecurrentNetworkActivation, RecurrentNetworkDirection, ReduceOptions, Resample2dOptions, RoundingType,
    ScatterReduction,
};
pub use bindings::http_handler::HttpMethod;
pub use bindings::job::{
    ColumnValues, ImageColors, ImageFit, ImageLayout, ImageNormalization, ImagePreprocessing, MeanAndScale,
};
pub use bindings::tensors::{DataType, Descriptor, ErrorCode};
pub use bindings::variables::{Initializer, VariableKind};
pub use classes::Classes;
pub use confusion_matrix::ConfusionMatrix;
pub use dataset::{BatchOptions, Batches, Column, Dataset, Field};
pub use error::{Error, Result};
pub use export::{LoadedPredictor, run_import, run_training};
pub use fit::{Feed, Fit, Objective};
pub use graph::operand::{
    GruOptions, GruStates, LstmOptions, LstmStates, Operand, concat, gru, gru_cell, lstm, lstm_cell,
};
pub use graph::{Executable, Graph, Inputs};
pub use http::request::HttpRequest;
pub use http::response::{HttpResponse, HttpStream};
pub use http::routes::{HttpRoutes, list_http_routes, run_http_handler};
pub use import::{Importer, Weights};
pub use job::Job;
pub use json::Json;
pub use logged::Histogram;
pub use logging::{debug, info, warn};
pub use losses::{CrossEntropy, accuracy};
pub use params::{FromJson, Params};
pub use predict::port::{data_type_name, parse_data_type};
pub use predict::{BATCH_SIZES, Graphs, Model, Port, Predictor, Route, Signature};
pub use step::{StepInputs, StepOutputs, run_step};
pub use streaming::{emit, emit_tensor};
pub use tensor::{NamedTensor, Tensor, descriptor, named, unpadded};
pub use variables::{Variable, Variables};
