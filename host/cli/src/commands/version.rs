//! `saggar version`: this program's, and the server's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::exit::CliError;
use crate::output::CliOutput;
use crate::server::ServerAddress;

/// How long the server may take to say its version.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Prints both versions. A server that does not answer is said to be missing and is no failure: the program's own version is
/// known without it.
///
/// # Errors
/// The address or the key of the server is none.
pub(crate) fn print_versions(server: &ServerAddress, output: CliOutput) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION");
    let answer = server.client()?.get_within("/version", ANSWER_TIME_MAX);
    if output.json {
        let theirs = answer.as_ref().map_or(Value::Null, |answer| answer["version"].clone());
        output.print_json(&json!({ "version": own, "server": { "url": server.host(), "version": theirs } }));
        return Ok(());
    }
    output.print_line(&format!("saggar {own}"));
    match answer {
        Ok(answer) => {
            output.print_note(&format!("server at {}: {}", server.host(), answer["version"].as_str().unwrap_or("?")));
        }
        Err(failure) => output.print_note(&format!("server at {}: none that answers ({failure})", server.host())),
    }
    Ok(())
}
