//! What the WASI interfaces of an instance remember: unfinished lines of output, and the position in the random numbers.

mod output_stream;
mod random_bytes;

pub(crate) use output_stream::GuestOutput;
pub(crate) use random_bytes::RandomBytes;

/// The state behind the WASI interfaces of an instance.
#[derive(Debug)]
pub(crate) struct WasiState {
    pub(crate) stdout: GuestOutput,
    pub(crate) stderr: GuestOutput,
    pub(crate) random: RandomBytes,
}

impl WasiState {
    /// Creates the state of an instance whose random numbers depend on `seed`.
    pub(crate) fn new(seed: u64) -> WasiState {
        WasiState { stdout: GuestOutput::default(), stderr: GuestOutput::default(), random: RandomBytes::new(seed) }
    }
}

/// The error of a stream, which does not occur.
#[derive(Debug)]
pub(crate) struct StreamFailure;
