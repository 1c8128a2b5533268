//! Removes what nobody is going to use any more.

use std::time::Duration;

use saggar_serve::AppState;
use saggar_store::abandoned_content::RemovedContent;
use saggar_telemetry::RepeatedFailure;
use tokio::sync::watch;

use super::repeated_work::repeat;

/// Interval at which a server looks for it. Each time costs a listing of the uploads, and of the parts in the bucket.
const INTERVAL: Duration = Duration::from_hours(6);

static FAILURE: RepeatedFailure = RepeatedFailure::new("unfinished uploads and publications are not removed");

/// Removes it now and at intervals, until the server stops.
pub(super) fn keep_removing(app: &AppState, down: &watch::Receiver<bool>) {
    let app = app.clone();
    repeat(down.clone(), INTERVAL, move || FAILURE.log(app.remove_abandoned_content().map(log_removed)));
}

fn log_removed(removed: RemovedContent) {
    let RemovedContent { uploads, versions } = removed;
    if uploads + versions > 0 {
        tracing::info!(uploads, versions, "removed what was left of unfinished uploads and publications");
    }
}
