//! Limits of notebooks.

use std::time::Duration;

/// The maximum time from the start of JupyterLab until it answers.
pub const START_TIME_MAX: Duration = Duration::from_secs(60);
/// The maximum time of a request about the activity of a notebook.
pub const ACTIVITY_TIME_MAX: Duration = Duration::from_secs(10);
/// The time that JupyterLab has to end its kernels, after which they are killed.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(10);
/// The maximum bytes of a response about the activity of a notebook.
pub const ACTIVITY_BYTES_MAX: usize = 1 << 20;
/// The maximum time before the end of an idle notebook at which its log says so.
pub const IDLE_WARNING_MAX: Duration = Duration::from_secs(300);
