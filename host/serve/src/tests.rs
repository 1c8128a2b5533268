//! The server as clients see it, with models and plugins of the tests' own.

mod access;
mod batches;
mod cog;
mod connections;
mod events;
mod fixture;
mod formula;
mod heads;
mod history;
mod http2;
mod keys;
mod management;
mod model_commands;
mod observing;
mod oip;
mod openapi;
mod outputs;
mod predictions;
mod publishing;
mod replies;
mod resuming;
mod sight;
mod speaker;
mod tfs;
mod tls;
mod versions;
