//! The access log and the traces of a server, as its arguments and the variables of OpenTelemetry say.

use std::path::Path;
use std::time::Duration;

use saggar_metrics::MetricsRegistry;
use saggar_serve::{AccessLog, AccessLogFormat, RequestObserver};
use saggar_telemetry::{LineTarget, LineWriter, SpanTracer, TracingConfig};
use tokio::signal::unix::{SignalKind, signal};

use super::unexpected_error;
use crate::args::{AccessLogStyle, ServeArgs};
use crate::exit::{self, CliError};
use crate::logging;

/// The longest time that the end of a server waits for the access log and for the collector, each.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Opens the access log and starts the export of spans, if they are wanted. Counts lost lines.
///
/// # Errors
/// `INVALID` if the access log cannot be opened.
pub(super) fn start_telemetry(args: &ServeArgs, metrics: &MetricsRegistry) -> Result<RequestObserver, CliError> {
    let lost = |log| metrics.families.log_lines_lost.with_label_values(&[log]);
    if let Some(log) = logging::server_log() {
        log.count_in(lost("server"));
    }
    let access_log =
        args.access_log.as_deref().map(|path| open_access_log(path, args.access_log_format)).transpose()?;
    if let Some(log) = &access_log {
        log.writer().count_in(lost("access"));
    }
    let (config, warnings) = TracingConfig::from_variables(|name| std::env::var(name).ok());
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let url = config.as_ref().map(|config| config.url.clone());
    let tracer = config.map(|config| SpanTracer::start(config, metrics)).transpose().map_err(unexpected_error)?;
    if let Some(url) = url {
        tracing::info!(url, "spans go to a collector");
    }
    Ok(RequestObserver { access_log, tracer })
}

fn open_access_log(path: &Path, style: AccessLogStyle) -> Result<AccessLog, CliError> {
    let target = if path == Path::new("-") { LineTarget::Stdout } else { LineTarget::File(path.to_owned()) };
    let writer = LineWriter::start(target).map_err(|error| {
        let message = format!("--access-log {}: {error}", path.display());
        CliError::new(exit::INVALID, "access_log", message)
            .with_hint("name a file in a directory that this user can write to")
    })?;
    let format = match style {
        AccessLogStyle::Json => AccessLogFormat::Json,
        AccessLogStyle::Common => AccessLogFormat::Common,
    };
    Ok(AccessLog::new(writer, format))
}

/// Opens the access log again at each SIGHUP. Without an access log, SIGHUP ends the server, as when its terminal is
/// closed. Must be called in a runtime.
pub(super) fn reopen_on_hangup(observer: &RequestObserver) {
    let Some(log) = observer.access_log.clone() else { return };
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => return tracing::warn!(%error, "SIGHUP does not open the access log again"),
    };
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            log.writer().reopen();
            tracing::info!("SIGHUP: the access log is opened again");
        }
    });
}

/// Writes and sends what waits, for a moment at most, before the server ends.
pub(super) fn flush_telemetry(observer: &RequestObserver) {
    if let Some(log) = &observer.access_log {
        log.writer().flush(FLUSH_TIME_MAX);
    }
    if let Some(tracer) = &observer.tracer {
        tracer.flush(FLUSH_TIME_MAX);
    }
}
