//! A guest that checks the SDK: losses, layers, optimizers and operators must compute the same on the host as the
//! formulas here. A failed check traps, and its message is in the job's log.
//!
//! With the parameter `epochs`, it also trains a small network as the other parameters state.

mod layers;
mod losses;
mod network;
mod numbers;
mod operators;
mod optimizers;

use saggar_plugin::{Job, Result, info};

pub use network::FormulasNetwork;

/// Runs all checks, then trains if `epochs` is given.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let epochs = job.param("epochs", 0)?;
    if epochs > 0 {
        return network::train(job, epochs);
    }
    job.params().check()?;
    losses::check()?;
    layers::check()?;
    optimizers::check()?;
    operators::check()?;
    info("every formula holds");
    Ok(())
}

saggar_plugin::export!(FormulasNetwork, train);
