//! HTTP requests that plugins answer with their own code: the routes that a plugin declares, the checks of its
//! responses, and the streaming of their bodies.
//!
//! Deliberately elsewhere: sockets, request headers and their allow list (`serve`); leases, time limits and memory
//! (`serving`).

pub(crate) mod handler_call;
pub(crate) mod handler_route;
pub(crate) mod response_head;
