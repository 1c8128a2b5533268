//! `saggar output tail`: a text file that a job goes on writing. Jobs replace a file as a whole, so what is printed is what
//! a newer one has beyond the older; one that does not begin as the older did is printed anew.

use std::io::Read;
use std::time::Duration;

use serde_json::json;

use super::job_path;
use crate::args::OutputTail;
use crate::client::Client;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::reconnect::Reconnect;

/// How often a followed file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn tail(args: &OutputTail, client: &Client, output: Output) -> Result<(), Failure> {
    if args.follow {
        crate::commands::jobs::detach_on_interrupt(args.job.clone());
    }
    let mut shown = String::new();
    let mut reconnect = Reconnect::new(output);
    let mut is_first = true;
    loop {
        // Asked before the file is read: what is written in between is then read.
        let over = client.get(&job_path(&args.job)).map(|job| job["finished_ms"].is_u64());
        let (over, text) = match over {
            Ok(over) => (over, read(args, client)),
            Err(failure) => (false, Err(failure)),
        };
        match text {
            Ok(text) => {
                reconnect.connected();
                let new = text.strip_prefix(shown.as_str()).unwrap_or(&text);
                show(new, output);
                shown = text;
            }
            // It may be written yet.
            Err(failure) if failure.exit == exit::NOT_FOUND && args.follow && !over => {}
            Err(failure) if args.follow && !is_first => {
                reconnect.wait_for_retry(failure)?;
                continue;
            }
            Err(failure) => return Err(failure),
        }
        is_first = false;
        if over || !args.follow {
            return Ok(());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn show(text: &str, output: Output) {
    if !output.json {
        output.text(text);
    } else if !text.is_empty() {
        output.json_line(&json!({ "text": text }));
    }
}

fn read(args: &OutputTail, client: &Client) -> Result<String, Failure> {
    let path = args.path.split('/').map(crate::client::segment).collect::<Vec<_>>().join("/");
    let mut bytes = Vec::new();
    let mut content = client.stream(&format!("{}/output/{path}", job_path(&args.job)))?;
    let read = content.read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(exit::UNREACHABLE, "unreachable", format!("{} broke off: {error}", args.path)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
