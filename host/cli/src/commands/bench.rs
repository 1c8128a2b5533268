//! `saggar bench`: what a plugin does on the devices of this machine, measured in this process, without a server.
//!
//! The plugin runs as a worker would run it, and nothing of it is kept. Devices are measured one after the other; one that
//! is not there, or fails, is said and leaves the others alone.

mod data;
mod device;
mod infer;
mod profile;
mod trace;
mod train;

use crate::args::Bench;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn bench(args: &Bench, output: Output) -> Result<i32, Failure> {
    match args {
        Bench::Train(args) => train::train(args, output),
        Bench::Infer(args) => infer::infer(args, output),
    }
}
