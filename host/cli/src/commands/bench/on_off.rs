//! `saggar bench infer --on-off`: predictions with and without each optimization, in turn.

use saggar_compile::{Optimization, OptimizationScope};
use serde::Serialize;

use super::confidence::{RatioEstimate, estimate_ratio, mean};
use super::device::format_seconds;
use crate::output::CliOutput;

/// The seed of the resamples.
const SEED: u64 = 0;

/// The effect of one optimization on one device and request size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OptimizationEffect {
    optimization: &'static str,
    device: String,
    batch: u32,
    /// Mean seconds of a request with and without it.
    on_seconds: f64,
    off_seconds: f64,
    /// The time without it divided by the time with it: above 1 if it makes requests faster.
    ratio: f64,
    interval: Option<[f64; 2]>,
}

/// Returns the optimizations that concern predictions on a device. The others concern trainings and servers, or only
/// what is stored between processes.
pub(super) fn measured_optimizations() -> impl Iterator<Item = Optimization> {
    Optimization::ALL.iter().copied().filter(|optimization| optimization.scope() == OptimizationScope::Program)
}

impl OptimizationEffect {
    /// Returns the effect from the mean seconds of a request in parts of both measurements.
    pub(super) fn new(
        optimization: Optimization,
        (device, batch): (String, u32),
        on: &[f64],
        off: &[f64],
    ) -> Option<OptimizationEffect> {
        let RatioEstimate { ratio, interval } = estimate_ratio(on, off, SEED)?;
        let optimization = optimization.name();
        Some(OptimizationEffect {
            optimization,
            device,
            batch,
            on_seconds: mean(on),
            off_seconds: mean(off),
            ratio,
            interval,
        })
    }
}

pub(super) fn print_effects(effects: &[OptimizationEffect], output: CliOutput) {
    let row = |it: &OptimizationEffect| {
        vec![
            it.optimization.to_owned(),
            it.device.clone(),
            it.batch.to_string(),
            format_seconds(it.on_seconds),
            format_seconds(it.off_seconds),
            format!("{:.2}", it.ratio),
            it.interval.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.2} to {high:.2}")),
        ]
    };
    let headers = ["OPTIMIZATION", "DEVICE", "BATCH", "ON", "OFF", "OFF/ON", "95% INTERVAL"];
    output.print_table(&headers, &effects.iter().map(row).collect::<Vec<_>>());
}
