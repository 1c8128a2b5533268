//! `saggar worker drain`.

use saggar_rest::workers::{WorkerDrainRequest, WorkerListDocument};
use serde_json::json;

use crate::args::WorkerDrainArgs;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::CliError;
use crate::output::CliOutput;

pub(super) fn drain(args: &WorkerDrainArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let path = format!("/api/v1/workers/{}", encode_path_segment(&args.name));
    let changed: WorkerListDocument = if args.resume {
        client.post(&format!("{path}/resume"), RequestBody::json(&json!({})))?
    } else {
        let request = WorkerDrainRequest { finish: args.finish };
        client.post(&format!("{path}/drain"), RequestBody::json(&request))?
    };
    if output.json {
        output.print_json(&changed.workers);
        return Ok(());
    }
    for worker in &changed.workers {
        output.print_line(&format!("{} {}", worker.name, worker.state));
        if !worker.jobs.is_empty() && !args.resume {
            let what = if args.finish { "runs until they end" } else { "saves and queues again" };
            output.print_note(&format!("  {what}: {}", worker.jobs.join(", ")));
        }
    }
    Ok(())
}
