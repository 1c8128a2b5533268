//! Faults of the machine and the network around a server: signals, stopped processes, few file descriptors, a port in
//! use, clients that half-close their connection, and a kill with requests in flight.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say SKIP")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, command_as_user, kill_9, worker_processes};
use serde_json::{Value, json};

/// Sends a signal by name.
fn send_signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Returns whether a process is running or stopped. A zombie is neither.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn digit() -> Value {
    json!({ "image": vec![[7; 8]; 8] })
}

#[test]
fn a_terminated_server_loses_no_saved_step_for_any_grace_period() {
    let home = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(home.path());
    let job = SteadyJob::with_steps(1_000_000).submit(&server);
    let mut saved = 0;
    for grace in [30, 5, 0].map(Duration::from_secs) {
        server.wait_for_step(&job, saved + 40);
        saved = server.checkpoints(&job)[0].0;
        let (pid, workers) = (server.pid(), worker_processes(server.pid()));
        send_signal("TERM", pid);
        let began = Instant::now();
        while is_alive(pid) && began.elapsed() < grace {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!is_alive(pid) || grace < Duration::from_secs(30), "it ends by itself");
        drop(server);
        // The worker ends with its server, even if the server could not notify it.
        let began = Instant::now();
        while workers.iter().any(|worker| is_alive(*worker)) && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!workers.iter().any(|worker| is_alive(*worker)), "a worker of {grace:?} is left");
        server = ServerProcess::start(home.path());
        let after = server.wait_for_step(&job, saved);
        assert!(after["attempt"].as_u64() > Some(1), "{after}");
    }
    server.saggar_ok(&["stop", &job]);
}

#[test]
fn a_stopped_worker_process_is_killed_and_replaced() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--worker-silence", "2s"]);
    let job = SteadyJob::with_steps(400).submit(&server);
    server.wait_for_step(&job, 20);
    let stopped = worker_processes(server.pid())[0];
    send_signal("STOP", stopped);
    let again = server.wait_for("another attempt", |server| {
        let job = server.job(&job);
        (job["attempt"].as_u64() > Some(1)).then_some(job)
    });
    assert!(!is_alive(stopped), "two workers of one job: {again}");
    let ended = server.wait_for_job(&job);
    assert_eq!((&ended["state"], &ended["step"]), (&json!("SUCCEEDED"), &json!(400)), "{ended}");
}

#[test]
fn a_server_out_of_file_descriptors_recovers() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("bash");
    let script = "ulimit -n 64; exec \"$0\" serve --addr 127.0.0.1:0 --device cpu --home \"$1\"";
    command.args(["-c", script]).arg(binary()).arg(home.path());
    let server = ServerProcess::from_command(command, home.path());
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    // They send no request and keep their connections open.
    let clients: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert!(clients.len() > 64, "the kernel accepts what the server cannot: {}", clients.len());
    drop(clients);
    server.wait_for("an answer", |server| {
        let answer = server.try_request("GET", "/healthz", HttpPayload::Nothing)?;
        (answer.status == 200).then_some(())
    });
    let job = SteadyJob::with_steps(5).submit(&server);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
}

#[test]
fn a_port_in_use_is_reported_and_nothing_is_started() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let other = tempfile::tempdir().unwrap();
    let address = server.url().strip_prefix("http://").unwrap();
    let second = Command::new(binary())
        .args(["serve", "--addr", address, "--device", "cpu", "--home"])
        .arg(other.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(5), "{said}");
    assert!(said.contains(address) && said.contains("in use"), "{said}");
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
}

/// A client that closes its sending half cannot be distinguished from one that went away, whose work is cancelled. It
/// gets no response, rather than a partial one, and the server continues.
#[test]
fn a_client_that_half_closes_its_connection_counts_as_disconnected() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let body = digit().to_string();
    let head = format!(
        "POST /models/digits/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    for sent in [&head[..20], &head, &format!("{head}{}", &body[..9]), &format!("{head}{body}")] {
        let mut stream = TcpStream::connect(server.url().strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = Vec::new();
        // The connection ends, possibly by a reset.
        let ended = stream.read_to_end(&mut answer);
        assert!(!ended.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the connection is kept: {sent}");
        let answer = String::from_utf8(answer).unwrap();
        let is_refused = answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 408");
        assert!(answer.is_empty() || is_refused || answer.contains("\"label\":"), "{sent}: {answer}");
    }
    assert_eq!(server.request("POST", "/models/digits/predict", HttpPayload::Json(&digit())).status, 200);
    let in_flight = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let in_flight = in_flight.lines().find(|line| line.starts_with("saggar_predict_in_flight{")).unwrap().to_owned();
    assert!(in_flight.ends_with(" 0"), "{in_flight}");
}

#[test]
fn no_request_is_half_answered_when_the_server_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let (url, pid) = (format!("{}/models/digits/predict", server.url()), server.pid());
    let (whole, cut) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let agent = ureq::Agent::new_with_defaults();
                // Until the server is gone.
                while let Ok(mut answer) = agent.post(&url).send_json(digit()) {
                    let Ok(text) = answer.body_mut().read_to_string() else { break };
                    assert!(serde_json::from_str::<Value>(&text).unwrap()["label"].is_u64(), "half an answer: {text}");
                    whole.fetch_add(1, Ordering::Relaxed);
                }
                cut.fetch_add(1, Ordering::Relaxed);
            });
        }
        while whole.load(Ordering::Relaxed) < 300 {
            assert!(cut.load(Ordering::Relaxed) < 100, "all clients ended before the kill");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(kill_9(pid));
    });
    drop(server);
    let server = ServerProcess::start(home.path());
    server.wait_for_version("digits", 1);
    assert_eq!(server.request("POST", "/models/digits/predict", HttpPayload::Json(&digit())).status, 200);
}

/// Returns the log of a server on the device `auto` with this environment, up to the line that says it serves.
fn startup_log(environment: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--home"]).arg(home.path()).envs(environment.iter().copied());
    let server = ServerProcess::from_command(command, home.path());
    assert_eq!(server.request("GET", "/readyz", HttpPayload::Nothing).status, 200);
    std::fs::read_to_string(home.path().join("server.log")).unwrap()
}

#[test]
fn without_a_gpu_the_cpu_device_serves_and_the_log_says_why() {
    let no_driver = startup_log(&[("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")]);
    assert!(no_driver.contains("device=cpu") && no_driver.contains("choice=no GPU was found\n"), "{no_driver}");
    let (_home, server) = ServerProcess::start_in_temp_dir();
    if server.has_vulkan() {
        let devices = server.get("/api/v1/devices")["devices"].clone();
        let is_software =
            |device: &Value| device["backend"] == "vulkan" && device["adapter"].as_str().unwrap().contains("llvmpipe");
        if devices.as_array().unwrap().iter().all(|device| device["backend"] != "vulkan" || is_software(device)) {
            let said = startup_log(&[]);
            let why = "is software, which native kernels outrun";
            assert!(
                said.contains("device=cpu") && said.contains("choice=no GPU was found; ") && said.contains(why),
                "{said}"
            );
        }
    }
}

#[test]
fn a_server_with_too_few_threads_allowed_says_so_and_does_not_start() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP: only root may run the server as another user");
    }
    let place = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(), open).unwrap();
    // The limit counts a user's processes, and does not apply to root.
    let program = place.path().join("saggar");
    std::fs::copy(binary(), &program).unwrap();
    let output = command_as_user(54321)
        .args(["bash", "-c"])
        .arg("ulimit -u 8; exec \"$0\" serve --addr 127.0.0.1:0 --device cpu --home \"$1\"")
        .arg(&program)
        .arg(place.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a server needs more threads than the ") && said.contains("`ulimit -u`"), "{said}");
    assert!(!place.path().join("state").exists(), "nothing is begun");
}
