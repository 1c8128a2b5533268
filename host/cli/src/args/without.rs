//! The option that switches optimizations off.

use clap::Args;
use saggar_compile::{DisabledOptimizations, Optimization, OptimizationScope};

use crate::exit::{self, CliError};

/// The optimizations that are switched off.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WithoutArgs {
    /// Leave these optimizations out, to measure their effect or to avoid them: fusion,winograd. An unknown name is
    /// refused with the list of all.
    #[arg(long, value_delimiter = ',', value_name = "OPTIMIZATION,...")]
    without: Vec<Optimization>,
}

impl WithoutArgs {
    /// Returns the set of these optimizations.
    pub(crate) fn optimizations(&self) -> DisabledOptimizations {
        self.without.iter().copied().collect()
    }

    /// Returns the set of these optimizations for a server.
    ///
    /// # Errors
    /// Returns a usage error for an optimization of trainings, which jobs switch off.
    pub(crate) fn of_server(&self) -> Result<DisabledOptimizations, CliError> {
        let of_jobs = |it: &&Optimization| it.scope() == OptimizationScope::Training;
        match self.without.iter().find(of_jobs) {
            None => Ok(self.optimizations()),
            Some(wrong) => {
                let message =
                    format!("--without {wrong}: this is an optimization of trainings, which a server leaves to jobs");
                let hint = format!("give it to the job: `saggar run PLUGIN --without {wrong}`");
                Err(CliError::new(exit::USAGE, "without", message).with_hint(hint))
            }
        }
    }
}
