//! Log lines that plugins write: those of a training go to its job, those of a model to the server's log. Lines are
//! truncated at a limit; past a limit on their number and bytes they are only counted.

pub(crate) mod log_budget;

use crate::bindings::logging::{Host, Level};
use crate::convert;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::job_context::LogLevel;
use log_budget::{LogLineVerdict, truncate_line};

impl InstanceState {
    /// Writes a line of the host, without any limit.
    pub(crate) fn write_log(&mut self, level: LogLevel, line: &str) {
        match &mut self.role {
            InstanceRole::Train(train) => train.context.log(level, line),
            InstanceRole::Predict { plugin, .. } => match level {
                LogLevel::Debug => tracing::debug!(target: "saggar::model", %plugin, line),
                LogLevel::Info => tracing::info!(target: "saggar::model", %plugin, line),
                LogLevel::Warn => tracing::warn!(target: "saggar::model", %plugin, line),
                LogLevel::Error => tracing::error!(target: "saggar::model", %plugin, line),
            },
        }
    }

    /// Writes a line of the plugin, within the limits of lines and bytes.
    pub(crate) fn log_line(&mut self, level: LogLevel, line: &str) {
        let line = truncate_line(line);
        match self.logs.charge_line(line.len()) {
            LogLineVerdict::Keep => self.write_log(level, line),
            LogLineVerdict::LimitNotice => {
                self.write_log(LogLevel::Warn, "the plugin logs too much: later lines are only counted")
            }
            LogLineVerdict::Drop => {}
        }
    }

    /// Writes the lines that a call has left unfinished on standard output and error, since it has ended.
    pub(crate) fn finish_output(&mut self) {
        if let Some(line) = self.wasi.stdout.finish() {
            self.log_line(LogLevel::Info, &line);
        }
        if let Some(line) = self.wasi.stderr.finish() {
            self.log_line(LogLevel::Warn, &line);
        }
    }
}

impl Host for InstanceState {
    fn log(&mut self, level: Level, line: String) -> wasmtime::Result<()> {
        self.log_line(convert::log_level(level), &line);
        Ok(())
    }
}
