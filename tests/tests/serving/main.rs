//! Serving: protocols and their clients, swaps, metrics, the console, `saggar top` and `saggar bench`.

mod access_log;
mod backups;
mod bench_command;
mod bench_serve;
mod console;
mod grpc;
mod metrics;
mod oip;
mod predictions;
mod prometheus;
mod python_client;
mod soak;
mod streaming;
mod swap;
mod tfs;
mod top;
mod top_sources;
mod top_terminal;
mod tracing;
mod transport;
