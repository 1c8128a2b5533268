//! `saggar version`: this program's, and the server's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::Output;
use crate::server::ServerAddress;

/// How long the server may take to say its version.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Prints both versions. A server that does not answer is said to be missing and is no failure: the program's own version is
/// known without it.
///
/// # Errors
/// The address or the key of the server is none.
pub(crate) fn version(server: &ServerAddress, output: Output) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let answer = server.client()?.get_within("/version", ANSWER_TIME_MAX);
    if output.json {
        let theirs = answer.as_ref().map_or(Value::Null, |answer| answer["version"].clone());
        output.json(&json!({ "version": own, "server": { "url": server.host(), "version": theirs } }));
        return Ok(());
    }
    output.line(&format!("saggar {own}"));
    match answer {
        Ok(answer) => {
            output.note(&format!("server at {}: {}", server.host(), answer["version"].as_str().unwrap_or("?")));
        }
        Err(failure) => output.note(&format!("server at {}: none that answers ({failure})", server.host())),
    }
    Ok(())
}
