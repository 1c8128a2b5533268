//! The server as clients see it, with models and plugins of the tests' own.

mod connections;
mod fixture;
mod management;
mod observing;
mod outputs;
mod predictions;
mod replies;
mod speaker;
mod versions;
