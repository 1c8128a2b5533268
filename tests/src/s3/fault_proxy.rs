//! A proxy before a store that injects faults.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use super::http_message::RawRequest;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum S3Fault {
    /// It is not forwarded, and gets this status and this code.
    Refuse(u16, &'static str),
    /// It is forwarded with another last byte of its body.
    DamageBody,
    /// It is forwarded, and the connection ends before the answer.
    LoseAnswer,
    /// It is not forwarded, and the connection ends.
    Cut,
    /// It is forwarded, and the connection ends in the middle of the answer.
    CutAnswer,
    /// It is forwarded, and the answer does not come until the client ends the connection.
    Silence,
    /// It is forwarded without its header field `If-None-Match`.
    IgnoreCondition,
    /// A put with `If-None-Match` is answered from a HEAD, and forwarded without the field if there is no object: the
    /// store checks before it writes, without a lock. The barrier holds the puts between check and write.
    CheckWithoutLock(Arc<Barrier>),
}

/// A fault of the next requests with this method whose target has this text.
#[derive(Debug)]
struct FaultRule {
    fault: S3Fault,
    method: &'static str,
    part: String,
    /// Requests that it still happens to.
    left: u32,
}

#[derive(Debug, Default)]
struct ProxyState {
    rules: Vec<FaultRule>,
    /// Whether every request is cut.
    is_cut_off: bool,
    /// The method and the target of each request.
    requests: Vec<(String, String)>,
}

/// The proxy. Its threads end with their connections and the test's process.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    state: Arc<Mutex<ProxyState>>,
}

impl FaultProxy {
    /// Starts a proxy for the server at this port.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(server: u16) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("the listener has an address").port();
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(client, server, &state));
            }
        });
        FaultProxy { port, state }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Injects a fault into the next `count` requests with this method whose target has this text.
    pub fn inject(&self, fault: S3Fault, method: &'static str, part: &str, count: u32) {
        lock(&self.state).rules.push(FaultRule { fault, method, part: part.to_owned(), left: count });
    }

    /// Cuts every request until the proxy heals.
    pub fn cut_off(&self) {
        lock(&self.state).is_cut_off = true;
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut state = lock(&self.state);
        state.rules.clear();
        state.is_cut_off = false;
    }

    /// Returns the number of requests with this method whose target has this text.
    pub fn requests(&self, method: &str, part: &str) -> usize {
        lock(&self.state).requests.iter().filter(|(of, target)| of == method && target.contains(part)).count()
    }
}

fn lock(state: &Mutex<ProxyState>) -> std::sync::MutexGuard<'_, ProxyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request, as moto does, and ends the connection.
fn serve(mut client: TcpStream, server: u16, state: &Mutex<ProxyState>) {
    if let Some(request) = RawRequest::read(&mut client) {
        let fault = next_fault(&request, state);
        // A client that ended the connection gets no answer.
        let _ = answer(&mut client, server, request, fault);
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn next_fault(request: &RawRequest, state: &Mutex<ProxyState>) -> Option<S3Fault> {
    let mut state = lock(state);
    state.requests.push((request.method.clone(), request.target.clone()));
    if state.is_cut_off {
        return Some(S3Fault::Cut);
    }
    let matches =
        |rule: &&mut FaultRule| rule.left > 0 && rule.method == request.method && request.target.contains(&rule.part);
    let rule = state.rules.iter_mut().find(matches)?;
    rule.left -= 1;
    Some(rule.fault.clone())
}

fn answer(client: &mut TcpStream, server: u16, mut request: RawRequest, fault: Option<S3Fault>) -> std::io::Result<()> {
    match fault {
        None => client.write_all(&request.send(server)?),
        Some(S3Fault::Refuse(status, code)) => client.write_all(&refusal(status, code)),
        Some(S3Fault::Cut) => Ok(()),
        Some(S3Fault::LoseAnswer) => request.send(server).map(drop),
        Some(S3Fault::CutAnswer) => {
            let answer = request.send(server)?;
            client.write_all(&answer[..answer.len() - 1])
        }
        Some(S3Fault::Silence) => {
            request.send(server)?;
            client.read(&mut [0]).map(drop)
        }
        Some(S3Fault::DamageBody) => {
            if let Some(last) = request.body.last_mut() {
                *last ^= 1;
            }
            client.write_all(&request.send(server)?)
        }
        Some(S3Fault::IgnoreCondition) => {
            request.remove("if-none-match");
            client.write_all(&request.send(server)?)
        }
        Some(S3Fault::CheckWithoutLock(together)) if request.has("if-none-match") => {
            let mut check = RawRequest { method: "HEAD".to_owned(), body: Vec::new(), ..request.clone() };
            check.remove("content-length");
            let is_taken = check.send(server)?.starts_with(b"HTTP/1.1 200");
            together.wait();
            if is_taken {
                return client.write_all(&refusal(412, "PreconditionFailed"));
            }
            request.remove("if-none-match");
            client.write_all(&request.send(server)?)
        }
        Some(S3Fault::CheckWithoutLock(_)) => client.write_all(&request.send(server)?),
    }
}

fn refusal(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>");
    let length = body.len();
    format!("HTTP/1.1 {status} Injected\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
