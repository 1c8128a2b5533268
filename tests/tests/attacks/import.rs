//! Attacks by model files that are small but expensive to import or load. They run in separate processes, which are
//! ended in time, and the server remains responsive.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::time::{Duration, Instant};

use saggar_plugin::{CompileChildren, CompilerMode, ImportRequest, PluginEngine, PluginEngineConfig, PluginError};
use saggar_tests::{HttpPayload, ServerProcess, binary, child_processes, plugin};
use serde_json::json;

/// Encodes a length-delimited field of a protobuf message: bytes, text or a message.
fn encode_field(number: u8, bytes: &[u8]) -> Vec<u8> {
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

/// Encodes a field with a small number.
fn encode_number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// Encodes the description of a value of four numbers.
fn encode_value_info(name: &str) -> Vec<u8> {
    let shape = encode_field(1, &encode_number(1, 1))
        .into_iter()
        .chain(encode_field(1, &encode_number(1, 4)))
        .collect::<Vec<_>>();
    let tensor = [encode_number(1, 1), encode_field(2, &shape)].concat();
    [encode_field(1, name.as_bytes()), encode_field(2, &encode_field(1, &tensor))].concat()
}

/// Returns an ONNX file with `nodes` additions, each of two of the previous sums.
fn model_of_sums(nodes: usize) -> Vec<u8> {
    let name = |at: usize| if at == 0 { "x".to_owned() } else { format!("v{at}") };
    let mut graph = Vec::new();
    for at in 1..=nodes {
        let (a, b) = (name(at - 1), name(at / 2));
        let node = [
            encode_field(1, a.as_bytes()),
            encode_field(1, b.as_bytes()),
            encode_field(2, name(at).as_bytes()),
            encode_field(4, b"Add"),
        ];
        graph.extend(encode_field(1, &node.concat()));
    }
    graph.extend(
        [
            encode_field(2, b"sums"),
            encode_field(11, &encode_value_info("x")),
            encode_field(12, &encode_value_info(&name(nodes))),
        ]
        .concat(),
    );
    [encode_number(1, 8), encode_field(7, &graph), encode_field(8, &encode_number(2, 13))].concat()
}

fn compile_children(pid: u32) -> usize {
    let compiles = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"compile-child")
    };
    child_processes(pid).iter().filter(|pid| compiles(pid)).count()
}

/// More nodes than are imported in the server's own process.
const LARGE: usize = 3_000;

#[test]
fn model_files_are_imported_and_compiled_in_child_processes() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--onnx-plugin", plugin("onnx").to_str().unwrap()]);
    let began = Instant::now();
    let answer = server.request(
        "POST",
        "/api/v1/models/sums/import",
        HttpPayload::Bytes("application/octet-stream", &model_of_sums(LARGE)),
    );
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.wait_for_version("sums", 1);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let answer =
        server.request("POST", "/models/sums/predict", HttpPayload::Json(&json!({ "x": [[0.0, 0.0, 0.0, 0.0]] })));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.contains("0.0"), "{}", answer.text);
}

#[test]
fn an_import_past_its_deadline_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let compiler = CompilerMode::Children(CompileChildren::new(binary()));
    let cache_dir = Some(dir.path().to_owned());
    let host = PluginEngine::new(PluginEngineConfig { compiler, cache_dir, instances_max: 8 }).unwrap();
    let component = std::fs::read(plugin("onnx")).unwrap();
    // Compile first, so that the time limit applies to the file's import alone.
    host.compile(&component).unwrap();
    let device = saggar_cpu::open(Some(1)).unwrap();
    let import = |file: &[u8], time: Duration| {
        ImportRequest { component: &component, file, options: "{}", time }.run(&host, device.clone())
    };
    let file = model_of_sums(48_000);
    let began = Instant::now();
    let error = import(&file, Duration::from_millis(30)).unwrap_err();
    // At the deadline, the child interrupts the plugin, and the parent kills the child at the same time.
    let is_late = matches!(error, PluginError::CompileLimit { .. } | PluginError::Deadline { .. });
    assert!(is_late, "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(compile_children(std::process::id()), 0);
    let error = import(b"no model at all", Duration::from_secs(120)).unwrap_err();
    assert!(matches!(error, PluginError::Guest { .. }), "{error}");
    let imported = import(&model_of_sums(10), Duration::from_secs(120)).unwrap();
    assert!(imported.config.contains("model"), "{}", imported.config);
}

#[test]
fn a_slow_model_file_does_not_delay_other_models() {
    let home = tempfile::tempdir().unwrap();
    let models = home.path().join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::write(models.join("large.onnx"), model_of_sums(48_000)).unwrap();
    let onnx = plugin("onnx");
    let server =
        ServerProcess::start_with(home.path(), &["--onnx-plugin", onnx.to_str().unwrap(), "--load-timeout", "10s"]);
    let file = model_of_sums(10);
    let answer =
        server.request("POST", "/api/v1/models/small/import", HttpPayload::Bytes("application/octet-stream", &file));
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.wait_for_version("small", 1);
    server.get("/healthz");
}
