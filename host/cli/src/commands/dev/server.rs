//! The server of `saggar dev`: a child process of the same program, or a server that already runs.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use saggar_project::PROJECT_FILE;

use super::dev_shutdown::DevShutdown;
use saggar_rest::server::{PROGRAM_NAME, VersionDocument};

use crate::args::DevArgs;
use crate::client::ApiClient;
use crate::commands::run::layers::ConfigSource;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;
use crate::server::ServerAddress;

/// Maximum time for a listener at the address to identify itself.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) struct DevServer {
    address: ServerAddress,
}

impl DevServer {
    /// Returns the named server, or the one that already runs at this command's address; `None` if neither exists.
    ///
    /// # Errors
    /// Fails if another program uses the address.
    pub(super) fn find_running(
        args: &DevArgs,
        address: &ServerAddress,
        output: CliOutput,
    ) -> Result<Option<DevServer>, CliError> {
        if address.is_explicit() {
            return Ok(Some(DevServer { address: address.clone() }));
        }
        match TcpListener::bind(args.addr) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            // The server reports any other problem with the address.
            _ => return Ok(None),
        }
        let url = format!("http://{}", args.addr);
        let server = DevServer {
            address: ServerAddress { host: Some((url.clone(), ConfigSource::BuiltIn)), ..address.clone() },
        };
        // Another program that listens there may never answer.
        match server.client()?.get_within::<VersionDocument>("/version", ANSWER_TIME_MAX) {
            Ok(version) if version.name == PROGRAM_NAME => {
                output.print_note(&format!(
                    "a server runs at {url}: working with it; --addr 127.0.0.1:0 starts another one"
                ));
                Ok(Some(server))
            }
            _ => {
                Err(CliError::new(exit::CONFLICT, "address_taken", format!("another program listens on {}", args.addr))
                    .with_hint("--addr 127.0.0.1:0 takes a free port; --host URL works with a server that runs"))
            }
        }
    }

    /// Starts a server that ends with this command.
    ///
    /// # Errors
    /// Returns the exit code of a server that did not start; its error is on standard error.
    pub(super) fn start(
        args: &DevArgs,
        address: ServerAddress,
        project: &ProjectContext,
        ending: Arc<DevShutdown>,
    ) -> Result<DevServer, CliError> {
        let program = std::env::current_exe().map_err(|error| start_error(exit::UNEXPECTED, &error.to_string()))?;
        let home = args.home.clone().unwrap_or_else(|| project.path(".saggar"));
        let mut serve = Command::new(program);
        serve.args(["serve", "--quiet", "--end-with-input", "--device", &args.device]);
        serve.args(["--addr", &args.addr.to_string()]).arg("--home").arg(&home);
        serve.arg("--config").arg(project.path(PROJECT_FILE));
        // In a separate process group: Ctrl-C reaches only this command, which then shuts the server down in order.
        serve.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = serve.spawn().map_err(|error| start_error(exit::UNEXPECTED, &error.to_string()))?;
        let mut said = BufReader::new(
            child.stdout.take().ok_or_else(|| start_error(exit::UNEXPECTED, "its standard output is not readable"))?,
        );
        let mut url = String::new();
        let read = said.read_line(&mut url);
        if read.is_err() || url.trim().is_empty() {
            let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(exit::UNEXPECTED);
            return Err(start_error(code, "see the error above"));
        }
        ending.set_server(child);
        // Keep reading, so that the server never blocks on a full pipe.
        let drain = move || std::io::copy(&mut said, &mut std::io::sink());
        let _ = std::thread::Builder::new().name("server-output".to_owned()).spawn(drain);
        let said = Some((url.trim().to_owned(), ConfigSource::BuiltIn));
        Ok(DevServer { address: ServerAddress { host: said, ..address } })
    }

    /// Returns a client of the server.
    pub(super) fn client(&self) -> Result<ApiClient, CliError> {
        self.address.client()
    }

    pub(super) fn url(&self) -> &str {
        self.address.host()
    }
}

fn start_error(code: i32, reason: &str) -> CliError {
    CliError::new(code, "no_server", format!("the server did not start: {reason}"))
        .with_hint("--addr 127.0.0.1:0 takes a free port; --host URL works with a server that runs")
}
