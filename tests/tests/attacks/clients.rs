//! Attacks by clients on the real binary: responses that are never read, idle connections, a stopped worker, a named
//! pipe in place of a certificate, and names with terminal control characters. Each attack is limited in count and
//! time.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, lenet, memory_kib, root, worker_processes};
use serde_json::json;

/// The time limit for any wait before a test fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Returns a frame of HTTP/2 from its type, flags, stream and payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Requests `path` on the maximum number of streams, with a flow-control window of 0 for every response.
fn ask_without_window(server: &ServerProcess, path: &str) -> TcpStream {
    let mut stream = connect(server);
    let settings = [&4_u16.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
    let mut asked = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &settings)].concat();
    let length = u8::try_from(path.len()).unwrap();
    let head = [&[0x82, 0x86, 0x41, 9], &b"localhost"[..], &[0x44, length], path.as_bytes()].concat();
    for number in 0..128 {
        asked.extend(frame(1, 0x5, 2 * number + 1, &head));
    }
    stream.write_all(&asked).unwrap();
    stream
}

fn connect(server: &ServerProcess) -> TcpStream {
    TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap()
}

/// Two connections send pings but read none of 128 responses each. All streams must be reset within two minutes.
#[test]
fn responses_that_a_pinging_client_never_reads_are_reset() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let before = memory_kib(server.pid(), "VmRSS");
    let mut streams: Vec<_> = (0..2).map(|_| ask_without_window(&server, "/openapi.json")).collect();
    let began = Instant::now();
    let mut resets = [0; 2];
    let mut buffers = [Vec::new(), Vec::new()];
    while resets != [128; 2] {
        assert!(began.elapsed() < WAIT_TIMEOUT, "{resets:?} of 128 answers are given up");
        for (at, stream) in streams.iter_mut().enumerate() {
            // Closing the connection also ends its responses.
            if stream.write_all(&frame(6, 0, 0, &[0; 8])).is_err() {
                resets[at] = 128;
                continue;
            }
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut piece = [0; 64 << 10];
            match stream.read(&mut piece) {
                Ok(0) => resets[at] = 128,
                Ok(count) => buffers[at].extend(&piece[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => resets[at] = 128,
            }
            let (reset, pongs) = drain_frames(&mut buffers[at]);
            resets[at] += reset;
            let _ = stream.write_all(&pongs);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
    let grown = memory_kib(server.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 256 << 10, "the server has grown by {grown} KiB");
}

/// Removes whole frames from a buffer. Returns the number of stream resets among them, and the replies to pings.
fn drain_frames(buffer: &mut Vec<u8>) -> (usize, Vec<u8>) {
    let (mut at, mut resets, mut pongs) = (0, 0, Vec::new());
    while buffer.len() - at >= 9 {
        let length = u32::from_be_bytes([0, buffer[at], buffer[at + 1], buffer[at + 2]]) as usize;
        let Some(payload) = buffer.get(at + 9..at + 9 + length) else { break };
        match (buffer[at + 3], buffer[at + 4] & 1) {
            (3, _) => resets += 1,
            (6, 0) => pongs.extend(frame(6, 1, 0, payload)),
            _ => {}
        }
        at += 9 + length;
    }
    buffer.drain(..at);
    (resets, pongs)
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Returns whether the server responds to a request on this connection.
fn is_answered(stream: &mut (impl Read + Write)) -> bool {
    let mut answer = [0; 1024];
    stream.write_all(HEALTH).is_ok()
        && stream.read(&mut answer).is_ok_and(|count| answer[..count].starts_with(b"HTTP/1.1 200"))
}

/// More connections than the limit, each of which requests `/healthz` and stays open. Other clients must still be
/// served, on the port and on the socket file, and models must still be loaded from their directory.
#[test]
fn idle_connections_do_not_block_other_clients() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("s.sock");
    // Few file descriptors, so that few connections reach the limit.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 400 && exec \"$0\" \"$@\""]).arg(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home.path());
    command.arg("--addr").arg(format!("unix:{}", socket.display()));
    let server = ServerProcess::from_command(command, home.path());
    let mut idle: Vec<TcpStream> = Vec::new();
    for at in 0..300 {
        let mut stream = connect(&server);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert!(is_answered(&mut stream), "connection {at}");
        idle.push(stream);
    }
    let mut local = UnixStream::connect(&socket).unwrap();
    local.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(is_answered(&mut local));
    server.push_digits();
    let plugin = lenet();
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--data", "digits", "--wait", "--", "epochs=1"]);
    server.wait_for_version("digits", 1);
    let image = json!({ "image": vec![[0; 8]; 8] });
    assert_eq!(server.request("POST", "/models/digits/predict", HttpPayload::Json(&image)).status, 200);
    assert!(idle.iter_mut().any(is_answered), "not all of them had to go");
}

/// A stopped worker loses its slot, and its job continues in another worker.
#[test]
fn a_stopped_worker_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--worker-silence", "15s"]);
    let job = SteadyJob::with_steps(1000).with_parameter("work", 20).submit(&server);
    server.wait_for_step(&job, 1);
    let worker = worker_processes(server.pid())[0];
    assert!(Command::new("kill").args(["-STOP", &worker.to_string()]).status().unwrap().success());
    let over = server.wait_for_job(&job);
    assert_eq!((over["state"].as_str(), over["attempt"].as_u64()), (Some("SUCCEEDED"), Some(2)), "{over}");
    assert_eq!(over["attempts"][0]["reason"], "WORKER_LOST", "{over}");
    assert!(over["attempts"][0]["message"].as_str().unwrap().contains("no sign of life for 15 s"), "{over}");
}

fn make_named_pipe(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A named pipe without a writer is refused as a certificate and blocks nothing.
#[test]
fn a_named_pipe_as_certificate_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (certificate, key) = (home.path().join("tls.crt"), home.path().join("tls.key"));
    let of_tests = root().join("host/serve/src/tests/certificates");
    let serve = |addr: &str| {
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", addr, "--device", "cpu", "--home"]).arg(home.path());
        command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
        command
    };
    make_named_pipe(&certificate);
    std::fs::copy(of_tests.join("first.key.pem"), &key).unwrap();
    let mut refused = serve("127.0.0.1:0").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait_for_exit_within(&mut refused, WAIT_TIMEOUT);
    assert!(ended.is_some_and(|status| !status.success()), "it waits for the pipe");

    std::fs::remove_file(&certificate).unwrap();
    std::fs::copy(of_tests.join("first.crt.pem"), &certificate).unwrap();
    let server = ServerProcess::from_command(serve("127.0.0.1:0"), home.path());
    make_named_pipe(&certificate);
    server.wait_for_log("is refused; the previous one stays in use");
    let pid = server.pid();
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    let began = Instant::now();
    while is_running(pid) {
        assert!(began.elapsed() < Duration::from_secs(60), "SIGTERM does not end it");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_for_exit_within(child: &mut std::process::Child, time: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Returns whether a process is running. A process that has ended remains a zombie until its parent waits for it.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Sets the title, clears the screen, starts a new line, and reverses the writing direction.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[2J\n\rsaggar: all is well\u{9b}31m\u{202e}\u{200b}";

/// Responds to every request with a job, a log or an error in which all names and texts are hostile.
fn serve_hostile_answers(listener: &TcpListener) {
    for stream in listener.incoming().take(100) {
        let mut stream = stream.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                break;
            }
            head.push(byte[0]);
        }
        let job = json!({
            "id": HOSTILE, "name": HOSTILE, "project": HOSTILE, "state": "FAILED", "reason": HOSTILE, "message": HOSTILE,
            "queue": HOSTILE, "device": HOSTILE, "metrics": { HOSTILE: 1 }, "experiment": HOSTILE, "hints": [HOSTILE],
            "spec": { "plugin": HOSTILE, "parameters": { HOSTILE: HOSTILE }, "data": [] },
            "phases": [{ "name": HOSTILE, "state": "FAILED" }, { "name": HOSTILE, "state": "FAILED" }],
            "attempts": [{ "number": 1, "state": "FAILED", "device": HOSTILE, "message": HOSTILE }],
        });
        let model = json!({ "name": HOSTILE, "versions": [{ "version": 1, "state": "FAILED", "reason": HOSTILE }] });
        let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
        let (status, body) = match path.split('?').next().unwrap_or_default() {
            "/api/v1/jobs" => ("200 OK", json!({ "jobs": [job] }).to_string()),
            "/api/v1/jobs/x-1" => ("200 OK", job.to_string()),
            "/api/v1/jobs/x-1/logs" => ("200 OK", format!("{HOSTILE}\n")),
            "/api/v1/models" => ("200 OK", json!({ "models": [model] }).to_string()),
            _ => ("404 Not Found", json!({ "error": HOSTILE, "code": HOSTILE, "hint": HOSTILE }).to_string()),
        };
        let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// No name, message or log line that is printed can control the terminal or look like another line.
#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || serve_hostile_answers(&listener));
    let commands: [&[&str]; 9] = [
        &["ps", "-a"],
        &["status", "x-1"],
        &["--json", "status", "x-1"],
        &["status", "x-1", "--field", "message"],
        &["logs", "x-1"],
        &["models", "ls"],
        &["stop", "x-2"],
        &["--json", "stop", "x-2"],
        &["wait", "x-1"],
    ];
    for arguments in commands {
        let output = Command::new(binary()).args(arguments).env("SAGGAR_HOST", &host).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        let is_harmless = |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{202e}' | '\u{200b}'));
        assert!(printed.contains("all is well"), "{arguments:?} shows it: {printed:?}");
        assert!(printed.chars().all(is_harmless), "{arguments:?}: {printed:?}");
        assert!(!printed.contains("\nsaggar: all is well") || arguments[0] == "logs", "{arguments:?}: {printed:?}");
    }
}
