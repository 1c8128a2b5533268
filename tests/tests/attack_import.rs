//! Attacks by model files: small ones that take much to import or to load. They run in processes of their own, which end in
//! time, and the server answers meanwhile.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::time::{Duration, Instant};

use saggar_plugin::{CompileChildren, Compiler, Host, HostConfig, Import, PluginError};
use saggar_tests::{Payload, Server, binary, children, plugin};
use serde_json::json;

/// A field of a protobuf message that is bytes, text or a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut length = bytes.len();
    let mut field = vec![number << 3 | 2];
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

/// A field that is a small number.
fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// A value of four numbers.
fn value(name: &str) -> Vec<u8> {
    let shape = field(1, &number(1, 1)).into_iter().chain(field(1, &number(1, 4))).collect::<Vec<_>>();
    let tensor = [number(1, 1), field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// An ONNX file that adds `x` to itself `nodes` times, each time another two of the sums before.
fn sums(nodes: usize) -> Vec<u8> {
    let name = |at: usize| if at == 0 { "x".to_owned() } else { format!("v{at}") };
    let mut graph = Vec::new();
    for at in 1..=nodes {
        let (a, b) = (name(at - 1), name(at / 2));
        let node = [field(1, a.as_bytes()), field(1, b.as_bytes()), field(2, name(at).as_bytes()), field(4, b"Add")];
        graph.extend(field(1, &node.concat()));
    }
    graph.extend([field(2, b"sums"), field(11, &value("x")), field(12, &value(&name(nodes)))].concat());
    [number(1, 8), field(7, &graph), field(8, &number(2, 13))].concat()
}

fn compile_children(pid: u32) -> usize {
    let compiles = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"compile-child")
    };
    children(pid).iter().filter(|pid| compiles(pid)).count()
}

/// More than is compiled in place.
const LARGE: usize = 3_000;

#[test]
fn a_model_file_is_imported_and_its_graph_compiled_by_children() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start_with(home.path(), &["--onnx-plugin", plugin("onnx").to_str().unwrap()]);
    let began = Instant::now();
    let answer =
        server.request("POST", "/api/v1/models/sums/import", Payload::Bytes("application/octet-stream", &sums(LARGE)));
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.wait_for_version("sums", 1);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let answer = server.request("POST", "/models/sums/predict", Payload::Json(&json!({ "x": [[0.0, 0.0, 0.0, 0.0]] })));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.contains("0.0"), "{}", answer.text);
}

#[test]
fn an_import_that_takes_too_long_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let compiler = Compiler::Children(CompileChildren::new(binary()));
    let cache_dir = Some(dir.path().to_owned());
    let host = Host::new(HostConfig { compiler, cache_dir, instances_max: 8 }).unwrap();
    let component = std::fs::read(plugin("onnx")).unwrap();
    // Compiled now: the import's time is the file's alone.
    host.compile(&component).unwrap();
    let device = saggar_device::cpu::open(Some(1)).unwrap();
    let import = |file: &[u8], time: Duration| {
        Import { component: &component, file, options: "{}", time }.run(&host, device.clone())
    };
    let file = sums(48_000);
    let began = Instant::now();
    let error = import(&file, Duration::from_millis(30)).unwrap_err();
    // The child interrupts the plugin at its deadline, and is killed at the same time.
    let is_late = matches!(error, PluginError::CompileLimit { .. } | PluginError::Deadline { .. });
    assert!(is_late, "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(compile_children(std::process::id()), 0);
    let error = import(b"no model at all", Duration::from_secs(120)).unwrap_err();
    assert!(matches!(error, PluginError::Guest { .. }), "{error}");
    let made = import(&sums(10), Duration::from_secs(120)).unwrap();
    assert!(made.config.contains("model"), "{}", made.config);
}

#[test]
fn a_file_that_takes_long_in_the_models_directory_holds_up_no_other_model() {
    let home = tempfile::tempdir().unwrap();
    let models = home.path().join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(models.join("large.onnx"), sums(48_000)).unwrap();
    let onnx = plugin("onnx");
    let server = Server::start_with(home.path(), &["--onnx-plugin", onnx.to_str().unwrap(), "--load-timeout", "10s"]);
    let file = sums(10);
    let answer =
        server.request("POST", "/api/v1/models/small/import", Payload::Bytes("application/octet-stream", &file));
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.wait_for_version("small", 1);
    server.get("/healthz");
}
