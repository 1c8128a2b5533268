//! Benchmarks of an adapter, compared with PyTorch on the same GPU: products, trainings, predictions, and the cost of a
//! step.
//!
//! Single precision is compared with TF32 off, which is the same arithmetic, and goals apply to that; rows with TF32 on
//! are labelled. If PyTorch computes on a processor, or networks are small, goals are shown but not judged.

mod dispatches;
mod first_step;
mod geometric_mean;
mod networks;
mod products;
mod torch_comparison;

use crate::PeerBenchmark;
use crate::task::{DECODER, LENET, RESNET50, TRANSFORMER};

/// The benchmarks in running order. Those that an interrupted run must include come first.
pub(crate) const ADAPTER_BENCHMARKS: [PeerBenchmark; 18] = [
    PeerBenchmark { name: "matmul-f32-1024", measure: |stage| products::measure(stage, products::F32, 1024) },
    PeerBenchmark { name: "matmul-f32-2048", measure: |stage| products::measure(stage, products::F32, 2048) },
    PeerBenchmark { name: "matmul-f32-4096", measure: |stage| products::measure(stage, products::F32, 4096) },
    PeerBenchmark { name: "matmul-f16-4096", measure: |stage| products::measure(stage, products::F16, 4096) },
    PeerBenchmark { name: "dispatch", measure: dispatches::measure },
    PeerBenchmark { name: "first-step-lenet-cold", measure: first_step::cold },
    PeerBenchmark { name: "first-step-lenet-warm", measure: first_step::warm },
    PeerBenchmark { name: "train-lenet", measure: |stage| networks::train(stage, &LENET, 64) },
    PeerBenchmark { name: "train-resnet50", measure: |stage| networks::train(stage, &RESNET50, 4) },
    PeerBenchmark { name: "train-decoder", measure: |stage| networks::train(stage, &DECODER, 1) },
    PeerBenchmark { name: "train-transformer", measure: |stage| networks::train(stage, &TRANSFORMER, 16) },
    PeerBenchmark { name: "train-mean", measure: |stage| geometric_mean::measure(stage, "train", 2.5) },
    PeerBenchmark { name: "infer-lenet", measure: |stage| networks::infer(stage, &LENET, 64) },
    PeerBenchmark { name: "infer-resnet50", measure: |stage| networks::infer(stage, &RESNET50, 4) },
    PeerBenchmark { name: "infer-decoder", measure: |stage| networks::infer(stage, &DECODER, 1) },
    PeerBenchmark { name: "infer-transformer", measure: |stage| networks::infer(stage, &TRANSFORMER, 16) },
    PeerBenchmark { name: "infer-mean", measure: |stage| geometric_mean::measure(stage, "infer", 1.5) },
    PeerBenchmark { name: "compile", measure: networks::compile },
];
