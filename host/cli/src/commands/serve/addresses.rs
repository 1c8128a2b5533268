//! The addresses of a server: in its log, on its standard output, and for jobs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use saggar_serve::{AppState, ServerListener};

use super::reexec;
use crate::output::CliOutput;

/// Returns the address by which programs of this machine reach a listener, or `None` if it is no port.
fn local_url(url: &str) -> Option<String> {
    let (scheme, address) = url.split_once("://")?;
    let mut address: SocketAddr = address.parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Some(format!("{scheme}://{address}"))
}

/// Logs and prints the addresses of the server, tells jobs the one of this machine, and returns them.
pub(super) fn announce_addresses(listeners: &[ServerListener], app: &AppState, output: CliOutput) -> Vec<String> {
    let urls: Vec<String> = listeners.iter().map(ServerListener::url).collect();
    if let Some(url) = urls.iter().find_map(|url| local_url(url)) {
        app.jobs().set_server_url(url);
    }
    log_addresses(&urls);
    print_addresses(&urls, output);
    urls
}

/// Logs the addresses, and where a browser finds the console.
fn log_addresses(urls: &[String]) {
    for url in urls {
        // A browser cannot open the address of a Unix socket.
        if url.starts_with("http") {
            tracing::info!("serving on {url}; the console is at {url}/");
        } else {
            tracing::info!("serving on {url}");
        }
    }
}

/// Prints the addresses, unless the process before this one did.
fn print_addresses(urls: &[String], output: CliOutput) {
    // One line per address, because scripts read the addresses. All in one piece, because a script that reads only the
    // first line closes the pipe, and the next write would end the command.
    if !reexec::is_restarted() {
        output.print_text(&format!("{}\n", urls.join("\n")));
    }
}
