//! The log of a command on standard error, as text or as JSON. That of a server never blocks it: lines wait in a bounded
//! queue and are lost, and counted, if standard error takes nothing.

mod json_layer;

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use saggar_telemetry::{LineTarget, LineWriter};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use self::json_layer::JsonLayer;
use crate::args::{Cli, CliCommand, LogFormat, WorkerCommand};

/// The crates whose level is chosen. The others log at `warn`, because wgpu and cranelift log much.
const OWN_CRATES: [&str; 11] = [
    "saggar",
    "saggar_serve",
    "saggar_serving",
    "saggar_jobs",
    "saggar_plugin",
    "saggar_devices",
    "saggar_device",
    "saggar_cpu",
    "saggar_gpu",
    "saggar_store",
    "saggar_telemetry",
];

/// The longest time that the end of a server waits for standard error.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The writer of a server's log.
static SERVER_LOG: OnceLock<LineWriter> = OnceLock::new();

/// Initializes logging to standard error: the server at `info`, other commands at `warn`, unless `SAGGAR_LOG` or `-v`
/// says otherwise.
pub(crate) fn init_logging(cli: &Cli) {
    let level = match (&cli.command, cli.verbose) {
        (command, 0) if !cli.quiet && host_format(command).is_some() => "info",
        (_, 0) => "warn",
        (_, 1) => "debug",
        (_, _) => "trace",
    };
    let ours = OWN_CRATES.map(|name| format!("{name}={level}")).join(",");
    let filter = EnvFilter::try_from_env("SAGGAR_LOG").unwrap_or_else(|_| EnvFilter::new(format!("warn,{ours}")));
    let format = host_format(&cli.command).unwrap_or(LogFormat::Text);
    let writer = match &cli.command {
        command if host_format(command).is_some() => server_log_writer(),
        _ => BoxMakeWriter::new(std::io::stderr),
    };
    let layer = match format {
        LogFormat::Json => JsonLayer::new(writer).boxed(),
        LogFormat::Text => {
            let colour = !cli.no_color && std::io::stderr().is_terminal();
            tracing_subscriber::fmt::layer().with_ansi(colour).with_target(false).with_writer(writer).boxed()
        }
    };
    tracing_subscriber::registry().with(filter).with(layer).init();
}

/// Returns the format of the log of a command that runs jobs, or `None` for another command.
fn host_format(command: &CliCommand) -> Option<LogFormat> {
    match command {
        CliCommand::Serve(serve) => Some(serve.log_format),
        CliCommand::Worker(WorkerCommand::Join(join)) => Some(join.offer.log_format),
        CliCommand::Worker(WorkerCommand::Host(host)) => Some(host.offer.log_format),
        CliCommand::Worker(WorkerCommand::Run(run)) => Some(run.host.offer.log_format),
        _ => None,
    }
}

/// Returns the writer of the server's log, or that of other commands if its thread cannot be started.
fn server_log_writer() -> BoxMakeWriter {
    match LineWriter::start(LineTarget::Stderr) {
        Ok(writer) => {
            let writer = SERVER_LOG.get_or_init(|| writer).clone();
            BoxMakeWriter::new(move || writer.clone())
        }
        Err(_) => BoxMakeWriter::new(std::io::stderr),
    }
}

/// Returns the writer of the server's log, or `None` for another command.
pub(crate) fn server_log() -> Option<&'static LineWriter> {
    SERVER_LOG.get()
}

/// Waits until the lines so far are written, for a moment at most. Called before the process ends.
pub(crate) fn flush_log() {
    if let Some(log) = server_log() {
        log.flush(FLUSH_TIME_MAX);
    }
}
