//! `saggar output tail`: follows a text file that a job rewrites. Jobs replace a file as a whole, so the part of the
//! new content after the old content is printed; if the new content does not begin with the old one, it is printed in
//! full.

use std::io::Read;
use std::time::Duration;

use saggar_rest::jobs::JobDocument;
use serde::Serialize;

use super::job_path;
use crate::args::OutputTailArgs;
use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

/// How often a followed file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn tail(args: &OutputTailArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    if args.follow {
        crate::commands::job_follow::detach_on_interrupt(args.job.clone());
    }
    let mut printed = String::new();
    let mut reconnect = ReconnectState::new(output);
    let mut is_first = true;
    loop {
        // Checked before the file is read, so that content written in between is still read.
        let over = client.get::<JobDocument>(&job_path(&args.job)).map(|job| job.finished_ms.is_some());
        let (over, text) = match over {
            Ok(over) => (over, read_output(args, client)),
            Err(failure) => (false, Err(failure)),
        };
        match text {
            Ok(text) => {
                reconnect.note_connected();
                let new = text.strip_prefix(printed.as_str()).unwrap_or(&text);
                print_new_text(new, output);
                printed = text;
            }
            // The file may not exist yet.
            Err(failure) if failure.exit_code == exit::NOT_FOUND && args.follow && !over => {}
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
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A part of a file as JSON.
#[derive(Serialize)]
struct OutputText<'a> {
    text: &'a str,
}

fn print_new_text(text: &str, output: CliOutput) {
    if !output.json {
        output.print_text(text);
    } else if !text.is_empty() {
        output.print_json_line(&OutputText { text });
    }
}

fn read_output(args: &OutputTailArgs, client: &ApiClient) -> Result<String, CliError> {
    let path = args.path.split('/').map(crate::client::encode_path_segment).collect::<Vec<_>>().join("/");
    let mut bytes = Vec::new();
    let mut content = client.get_stream(&format!("{}/output/{path}", job_path(&args.job)))?;
    let read = content.read_to_end(&mut bytes);
    read.map_err(|error| CliError::new(exit::UNREACHABLE, "unreachable", format!("{} broke off: {error}", args.path)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
