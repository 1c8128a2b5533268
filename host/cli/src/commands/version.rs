//! `saggar version`: prints the versions of this program and of the server.

use std::time::Duration;

use saggar_rest::server::VersionDocument;
use serde::Serialize;

use crate::exit::CliError;
use crate::output::CliOutput;
use crate::server::ServerAddress;

/// Maximum time for the server to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Both versions as JSON.
#[derive(Serialize)]
struct VersionsDocument<'a> {
    version: &'a str,
    server: ServerVersion<'a>,
}

#[derive(Serialize)]
struct ServerVersion<'a> {
    url: &'a str,
    /// The server's version, or `None` if it does not answer.
    version: Option<&'a str>,
}

/// Prints both versions. A server that does not answer is reported but is not an error, because this program's version
/// is known without it.
///
/// # Errors
/// Fails if the server's address, key or certificates are invalid.
pub(crate) fn print_versions(server: &ServerAddress, output: CliOutput) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION");
    let answer: Result<VersionDocument, CliError> = server.client()?.get_within("/version", ANSWER_TIME_MAX);
    if output.json {
        let theirs = answer.as_ref().ok().map(|answer| answer.version.as_str());
        output.print_json(&VersionsDocument {
            version: own,
            server: ServerVersion { url: server.host(), version: theirs },
        });
        return Ok(());
    }
    output.print_line(&format!("saggar {own}"));
    match answer {
        Ok(answer) => {
            output.print_note(&format!("server at {}: {}", server.host(), answer.version));
        }
        Err(failure) => output.print_note(&format!("server at {}: no answer ({failure})", server.host())),
    }
    Ok(())
}
