//! HTTP requests that plugins answer with their own code: the routes that a plugin declares, the checks of its
//! responses, and the streaming of their bodies.
//!
//! Deliberately elsewhere: sockets, request headers and their allow list (`serve`); leases, time limits and memory
//! (`serving`).

pub(crate) mod handler_call;
pub(crate) mod handler_route;
pub(crate) mod response_head;

use crate::bindings::http_stream::{Host, ResponseHead as WitResponseHead};
use crate::call_limits::CallInterrupted;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::limits::HANDLER_PIECE_BYTES_MAX;
use crate::streaming::reply::SendPieceError;
use handler_call::StreamedResponse;
use response_head::{RefusedHead, ResponseHead};

impl InstanceState {
    fn streamed_response(&mut self) -> Result<&mut StreamedResponse, HostError> {
        self.response.as_mut().ok_or_else(|| {
            HostError::unsupported("a response is streamed during `handle` alone: there is no request here")
        })
    }
}

impl Host for InstanceState {
    fn start(&mut self, head: WitResponseHead) -> Result<(), HostError> {
        self.record_host_call();
        let response = self.streamed_response()?;
        if response.is_started {
            return Err(HostError::invalid("the response was started already"));
        }
        let head = ResponseHead::from_wit(head).map_err(|RefusedHead { place, expected, given }| {
            HostError::invalid_at(place, format!("expected {expected}, got {given}"))
        })?;
        response.is_started = true;
        response.sink.start(head).map_err(|_| HostError::cancelled())
    }

    fn send(&mut self, piece: Vec<u8>) -> Result<(), HostError> {
        self.record_host_call();
        let response = self.streamed_response()?;
        if !response.is_started {
            return Err(HostError::invalid("`start` was not called: a response begins with its status and headers"));
        }
        if piece.len() > HANDLER_PIECE_BYTES_MAX {
            let bytes = piece.len();
            let message = format!("a piece has at most {HANDLER_PIECE_BYTES_MAX} bytes, not {bytes}; send several");
            return Err(HostError::out_of_memory(message));
        }
        let (until, limit) = (response.until, response.limit);
        match response.sink.send(piece, until) {
            Ok(()) => Ok(()),
            Err(SendPieceError::Gone) => Err(HostError::cancelled()),
            Err(SendPieceError::Late) => Err(HostError::Trap(CallInterrupted::Deadline { limit }.into())),
        }
    }
}
