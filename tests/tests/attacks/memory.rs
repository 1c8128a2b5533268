//! Attacks on the server's memory, one by one and all at once, in a control group of 512 MiB. A client with a separate
//! key must continue to get correct responses. `ATTACK_SECONDS` sets the duration (`make attack`: one minute).
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use saggar_tests::component::plugin_with_functions;
use saggar_tests::{HttpPayload, MemoryGroup, ServerProcess, binary, guest, lower_priority, memory_kib};
use serde_json::{Value, json};

const SECONDS_DEFAULT: u64 = 8;
const GROUP_BYTES: u64 = 512 << 20;
const DIGITS: &str = "/models/digits/predict";
const HOARD: &str = "/models/hoard/predict";

fn seconds() -> Duration {
    let seconds = std::env::var("ATTACK_SECONDS").map_or(SECONDS_DEFAULT, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Creates a key with these scopes for the server with its state in `home`.
fn key(home: &Path, name: &str, scopes: &str) -> String {
    let mut command = std::process::Command::new(binary());
    let output = command.args(["key", "create", name, "--scope", scopes, "--home"]).arg(home).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts a server in `group` that requires keys and serves `digits` and `hoard`, which are trained in `home` outside
/// the group. Returns when it is ready.
fn serve_in(group: &MemoryGroup, home: &Path) -> ServerProcess {
    let server = ServerProcess::start_with_digits(home, &[]);
    publish_hoard(&server);
    drop(server);
    let mut command = group.command(&binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--require-keys", "--home"]).arg(home);
    let server = ServerProcess::from_command(command, home);
    server.wait_for("the models", |server| {
        (server.request_as(None, "GET", "/readyz", HttpPayload::Nothing).status == 200).then_some(())
    });
    server
}

fn digit() -> Value {
    json!({ "image": vec![[0, 3, 12, 16, 2, 0, 0, 0]; 8] })
}

/// Sends requests until `over` returns true, and returns the duration of each. Every response must equal `expected`.
fn ask_until(server: &ServerProcess, key: &str, expected: &str, over: impl Fn() -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !over() {
        let began = Instant::now();
        let answer = server.request_as(Some(key), "POST", DIGITS, HttpPayload::Json(&digit()));
        assert_eq!((answer.status, &*answer.text), (200, expected), "the client beside the attack is answered");
        times.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    times.sort();
    times
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() - 1) * percent / 100]
}

/// Returns 64 MB of zeros, a million digits, compressed to about 62 KB.
fn bomb() -> (Vec<u8>, usize) {
    let parameters = json!({ "binary_data_size": 64_000_000 });
    let input = json!({ "name": "image", "shape": [1_000_000, 8, 8], "datatype": "UINT8", "parameters": parameters });
    let head = json!({ "inputs": [input] }).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(head.as_bytes()).unwrap();
    encoder.write_all(&vec![0; 64_000_000]).unwrap();
    (encoder.finish().unwrap(), head.len())
}

/// Sends an HTTP/1.1 request and drops the connection after `patience`.
fn send_raw(address: &str, head: &str, body: &[u8], patience: Duration) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let _ = stream.set_read_timeout(Some(patience));
    let _ = stream.set_write_timeout(Some(patience));
    // A server that refuses can close the connection before everything is sent.
    if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_ok() {
        let _ = stream.read(&mut [0; 1024]);
    }
}

/// Sends an input that is small when transferred and large in the queue.
fn send_bomb(address: &str, key: &str, (body, json_bytes): &(Vec<u8>, usize)) {
    let head = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-encoding: gzip\r\ninference-header-content-length: {json_bytes}\r\nx-saggar-deadline-ms: 600000\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    send_raw(address, &head, body, Duration::from_secs(3));
}

/// Sends requests whose bodies are announced but hardly sent.
fn send_slowly(address: &str, key: &str, until: Instant) {
    let head = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-length: 64000000\r\n\r\n"
    );
    let streams = (0..16).filter_map(|_| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(head.as_bytes()).ok()?;
        Some(stream)
    });
    let mut streams: Vec<TcpStream> = streams.collect();
    while Instant::now() < until {
        streams.retain_mut(|stream| stream.write_all(b"x").is_ok());
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns a frame of HTTP/2. Source: RFC 9113, 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a literal header field without indexing. Source: RFC 7541, 6.2.2.
fn encode_header_field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127, "longer ones need another form");
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    };
    [vec![0], text(name), text(value)].concat()
}

/// Sends 128 requests for a large response over one connection with a flow-control window of 0.
fn request_without_reading(address: &str, key: &str, until: Instant) {
    let (headers, settings, ping) = (1, 4, 6);
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let _ = stream.set_write_timeout(Some(Duration::from_secs(3)));
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(settings, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    let authorization = format!("Bearer {key}");
    for number in 0..128 {
        let head = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/openapi.json"),
            (":authority", "localhost"),
            ("authorization", &authorization),
        ];
        let head: Vec<u8> = head.iter().flat_map(|(name, value)| encode_header_field(name, value)).collect();
        // END_STREAM and END_HEADERS.
        bytes.extend(frame(headers, 5, 2 * number + 1, &head));
    }
    if stream.write_all(&bytes).is_err() {
        return;
    }
    let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
    while Instant::now() < until {
        if stream.write_all(&frame(ping, 0, 0, &[0; 8])).is_err() {
            return;
        }
        let _ = stream.read(&mut [0; 4096]);
    }
}

/// Writes a folder with a compressed text of `bytes` newlines.
fn write_newlines(folder: &Path, bytes: usize) {
    std::fs::create_dir(folder).unwrap();
    let mut encoder = GzEncoder::new(std::fs::File::create(folder.join("x.txt.gz")).unwrap(), Compression::best());
    let piece = vec![b'\n'; 1 << 20];
    (0..bytes >> 20).for_each(|_| encoder.write_all(&piece).unwrap());
    encoder.finish().unwrap();
}

/// Trains `hostile` to publish a model that retains 64 MB more with each call of [`HOARD`] with
/// [`memory_keeping_input`].
fn publish_hoard(server: &ServerProcess) {
    let plugin = guest("hostile");
    let run = ["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", "model=hoard", "predict=hoard"];
    server.saggar_ok(&run);
    server.wait_for_version("hoard", 1);
}

/// Returns an input for which `hoard` retains memory. Warming it up does not.
fn memory_keeping_input() -> Value {
    json!({ "x": [1, 2, 3, 4] })
}

#[test]
fn instances_that_accumulate_device_memory_are_replaced() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--model-memory-limit", "1GiB"]);
    publish_hoard(&server);
    let bytes = |server: &ServerProcess| server.get("/api/v1/models/hoard")["versions"][0]["bytes"].as_u64().unwrap();
    let warm = bytes(&server);
    let mut most = 0;
    for call in 0..8 {
        let answer = server.request("POST", HOARD, HttpPayload::Json(&memory_keeping_input()));
        assert_eq!(answer.status, 200, "call {call}: {}", answer.text);
        most = most.max(bytes(&server));
    }
    // The limit: an eighth of the memory for models, and a little for programs.
    assert!(most <= warm + (128 << 20) + (1 << 20), "{most} bytes are kept, {warm} when it was warm");
    assert!(most >= warm + (64 << 20), "the case is reached");
}

/// Returns the server's anonymous memory in MiB.
fn anonymous_mib(server: &ServerProcess) -> u64 {
    memory_kib(server.pid(), "RssAnon") >> 10
}

#[test]
fn freed_memory_is_returned_to_the_operating_system() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--model-memory-limit", "1GiB"]);
    publish_hoard(&server);
    server.push_digits();
    let before = anonymous_mib(&server);
    let most = std::thread::scope(|scope| {
        // Several threads use several arenas of the allocator.
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let _ = server.try_request("POST", HOARD, HttpPayload::Json(&memory_keeping_input()));
                    // Refused only after it was read, because the model has no such input.
                    let large = json!({ "x": "0".repeat(12 << 20) });
                    let _ = server.try_request("POST", HOARD, HttpPayload::Json(&large));
                }
            });
        }
        (0..100)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                anonymous_mib(&server)
            })
            .max()
            .unwrap()
    });
    assert!(most >= before + 64, "the case is reached: {most} MiB at most, {before} before");
    server.saggar_ok(&["models", "unload", "hoard"]);
    let after = server.wait_for("the memory", |server| {
        let after = anonymous_mib(server);
        (after < before + 48).then_some(after)
    });
    println!("{before} MiB before, {most} at most, {after} after");
}

#[test]
fn simultaneous_memory_attacks_do_not_affect_other_clients() {
    let Some(group) = MemoryGroup::new(GROUP_BYTES) else { return };
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let server = serve_in(&group, &home);
    let [good, bad] = [("good", "predict"), ("bad", "predict,jobs:read,jobs:write")].map(|(n, s)| key(&home, n, s));
    let expected = server.wait_for("the model", |server| {
        let answer = server.request_as(Some(&good), "POST", DIGITS, HttpPayload::Json(&digit()));
        (answer.status == 200).then_some(answer.text)
    });
    let alone_until = Instant::now() + seconds();
    let alone = ask_until(&server, &good, &expected, || Instant::now() >= alone_until);
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let folder = directory.path().join("newlines");
    write_newlines(&folder, 100 << 20);
    // Each local is set to its value plus one: about a megabyte of code within every limit.
    let code: Vec<u8> = (0..100).flat_map(|at| [0x20, at, 0x41, 1, 0x6a, 0x21, at]).collect();
    let uploaded = AtomicUsize::new(0);
    let (bomb, until, over) = (bomb(), Instant::now() + seconds(), AtomicBool::new(false));
    let upload = || {
        // A new component each time, because compiled components are cached.
        let wasm = plugin_with_functions(1_500 + uploaded.fetch_add(1, Ordering::Relaxed), 100, &code);
        let _ = server.request_as(Some(&bad), "POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &wasm));
    };
    let push = || {
        let mut push = server.command(&["data", "push", folder.to_str().unwrap(), "--name", "newlines"]);
        let _ = push.env("SAGGAR_API_KEY", &bad).output().unwrap();
    };
    let hoard = || {
        let _ = server.request_as(Some(&bad), "POST", HOARD, HttpPayload::Json(&memory_keeping_input()));
    };
    // The responses do not matter, only that the server continues.
    let attacks: [(usize, &(dyn Fn() + Sync)); 6] = [
        (20, &|| send_bomb(&address, &bad, &bomb)),
        (2, &|| request_without_reading(&address, &bad, until)),
        (1, &|| send_slowly(&address, &bad, until)),
        (1, &upload),
        (1, &push),
        (2, &hoard),
    ];
    let beside = std::thread::scope(|scope| {
        let client = scope.spawn(|| ask_until(&server, &good, &expected, || over.load(Ordering::Relaxed)));
        let attack_again = |attack: &(dyn Fn() + Sync)| {
            // Attackers would run on other machines, so here they must not take CPU time from server and client.
            lower_priority();
            while Instant::now() < until {
                attack();
            }
        };
        let attackers: Vec<_> = attacks
            .into_iter()
            .flat_map(|(count, attack)| (0..count).map(move |_| attack))
            .map(|attack| scope.spawn(move || attack_again(attack)))
            .collect();
        let ended: Vec<_> = attackers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        let beside = client.join().unwrap();
        assert!(ended.iter().all(Result::is_ok));
        beside
    });
    assert_eq!(server.request_as(None, "GET", "/healthz", HttpPayload::Nothing).status, 200);
    let [alone_p99, beside_p99] = [&alone, &beside].map(|times| percentile(times, 99));
    let peak = group.peak_bytes().unwrap_or(0) >> 20;
    let ratio = beside_p99.as_secs_f64() / alone_p99.as_secs_f64();
    println!(
        "attack: {} answers beside it, p50 {:?} (alone {:?}), p99 {beside_p99:?} (alone {alone_p99:?}, {ratio:.1} times), \
         {peak} MiB at most",
        beside.len(),
        percentile(&beside, 50),
        percentile(&alone, 50),
    );
    assert!(beside.len() > 20, "only {} answers beside the attack", beside.len());
}
