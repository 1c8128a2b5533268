//! What a saggar plugin written in Rust is made of.
//!
//! A plugin describes tensor graphs and leaves their data, their execution and their safekeeping to the host. This crate
//! wraps the host's interfaces ([`bindings`]) in types that are pleasant to write models with, and adds what every model
//! needs: [layers](layers), [losses](losses), [optimisers](optimizers), the [training loop](Fit) and the [predictor](Model).
//!
//! A plugin is a `cdylib` that calls [`export!`] once. Code runs in a sandbox without files, clock, environment or
//! threads: `std::time`, `std::fs` and `std::env` must not be used.

pub mod bindings;
mod classes;
mod confusion_matrix;
mod dataset;
mod error;
mod export;
mod fit;
mod graph;
mod import;
mod job;
mod json;
pub mod layers;
mod logging;
pub mod losses;
mod operand;
pub mod optimizers;
mod params;
pub mod png;
mod predict;
mod streaming;
mod tensor;
mod variables;

pub use bindings::graphs::{
    Conv2dFilterOperandLayout, Conv2dOptions, ConvTranspose2dFilterOperandLayout, ConvTranspose2dOptions, GemmOptions,
    GruWeightLayout, InputOperandLayout, InterpolationMode, LstmWeightLayout, PaddingMode, Pool2dOptions,
    RecurrentNetworkActivation, RecurrentNetworkDirection, ReduceOptions, Resample2dOptions, RoundingType,
    ScatterReduction,
};
pub use bindings::tensors::{DataType, Descriptor, ErrorCode};
pub use bindings::variables::{Initializer, VariableKind};
pub use classes::Classes;
pub use confusion_matrix::ConfusionMatrix;
pub use dataset::{BatchOptions, Batches, Column, Dataset, Field};
pub use error::{Error, Result};
pub use export::{Loaded, run_import, run_training};
pub use fit::{Feed, Fit, Objective};
pub use graph::{Executable, Graph, Inputs};
pub use import::{Importer, Weights};
pub use job::Job;
pub use json::Json;
pub use logging::{debug, info, warn};
pub use losses::{CrossEntropy, accuracy};
pub use operand::{GruOptions, GruStates, LstmOptions, LstmStates, Operand, concat, gru, gru_cell, lstm, lstm_cell};
pub use params::{FromJson, Params};
pub use predict::{BATCH_SIZES, Graphs, Model, Port, Predictor, Route, Signature};
pub use streaming::{emit, emit_tensor};
pub use tensor::{NamedTensor, Tensor, descriptor, named, unpadded};
pub use variables::{Variable, Variables};
