//! Models and data: real networks, formats of files, precision, the way from a training to predictions.

mod cifar;
mod datasets;
mod device_agreement;
mod image_preprocessing;
mod input_opt;
mod inspect_command;
mod mixed_precision;
mod model_cards;
mod onnx;
mod optimizations;
mod own_images;
mod own_models;
mod own_tables;
mod pipeline_cache;
mod training_to_serving;
mod translate;
mod webnn;
