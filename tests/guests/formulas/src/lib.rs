//! A guest that checks the guest library: what its losses, layers, optimisers and operators compute on the host must be what the
//! same formulas give here. A check that fails traps, and its message is in the job's log.
//!
//! With the parameter `epochs` it trains a small network too, in the way that the other parameters say.

mod layers;
mod losses;
mod network;
mod numbers;
mod operators;
mod optimizers;

use saggar_plugin::{Job, Result, info};

pub use network::FormulasNetwork;

/// Checks everything, then trains if it is asked to.
///
/// # Errors
/// What the host refuses.
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
