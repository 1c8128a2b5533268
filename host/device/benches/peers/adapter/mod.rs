//! What is measured of an adapter, beside PyTorch on the same GPU: products, trainings, predictions, and what a step costs.
//!
//! Single precision is compared with TF32 off, which is the same arithmetic, and goals are about that; rows with TF32 on say
//! so. Where PyTorch computes on a processor, or networks are small, goals are told and not judged.

mod beside;
mod dispatches;
mod first;
mod mean;
mod networks;
mod products;

use crate::Work;
use crate::task::{DECODER, LENET, RESNET50, TRANSFORMER};

/// In running order: what a run that is cut off must have comes first.
pub(crate) const WORKS: [Work; 18] = [
    Work { name: "matmul-f32-1024", measure: |stage| products::measure(stage, products::F32, 1024) },
    Work { name: "matmul-f32-2048", measure: |stage| products::measure(stage, products::F32, 2048) },
    Work { name: "matmul-f32-4096", measure: |stage| products::measure(stage, products::F32, 4096) },
    Work { name: "matmul-f16-4096", measure: |stage| products::measure(stage, products::F16, 4096) },
    Work { name: "dispatch", measure: dispatches::measure },
    Work { name: "first-step-lenet-cold", measure: first::cold },
    Work { name: "first-step-lenet-warm", measure: first::warm },
    Work { name: "train-lenet", measure: |stage| networks::train(stage, &LENET, 64) },
    Work { name: "train-resnet50", measure: |stage| networks::train(stage, &RESNET50, 4) },
    Work { name: "train-decoder", measure: |stage| networks::train(stage, &DECODER, 1) },
    Work { name: "train-transformer", measure: |stage| networks::train(stage, &TRANSFORMER, 16) },
    Work { name: "train-mean", measure: |stage| mean::measure(stage, "train", 2.5) },
    Work { name: "infer-lenet", measure: |stage| networks::infer(stage, &LENET, 64) },
    Work { name: "infer-resnet50", measure: |stage| networks::infer(stage, &RESNET50, 4) },
    Work { name: "infer-decoder", measure: |stage| networks::infer(stage, &DECODER, 1) },
    Work { name: "infer-transformer", measure: |stage| networks::infer(stage, &TRANSFORMER, 16) },
    Work { name: "infer-mean", measure: |stage| mean::measure(stage, "infer", 1.5) },
    Work { name: "compile", measure: networks::compile },
];
