//! HTTP requests that a model's plugin answers with its own code: leases, time limits, memory, cancellation and the
//! stream of a response. The routes and the checks of responses are in `saggar_plugin`, the protocol in `serve`.

pub(crate) mod handler_call;
mod handler_record;
pub(crate) mod handler_stream;
