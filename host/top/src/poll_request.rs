//! What a poll of a server reads.

use crate::series_name::SeriesSelection;

/// What is read of a server.
#[derive(Clone, Debug)]
pub(crate) struct PollRequest {
    /// The position of the server on the command line.
    pub(crate) host: usize,
    /// The chosen series, whose recorded points are read.
    pub(crate) selection: SeriesSelection,
    /// The start of the visible time, in Unix milliseconds. Series of jobs that ended before are not read.
    pub(crate) since_ms: u64,
}
