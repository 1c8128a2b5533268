//! Invalid and misbehaving components, written by hand: each gets its error, and the host survives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/trainer.rs"]
mod trainer;

use std::collections::BTreeMap;
use std::time::Duration;

use recorder::{RecordingJobContext, cpu};
use saggar_device::Meter;
use saggar_plugin::{
    LoadedModel, ModelLimits, ModelParts, PluginEngine, PluginEngineConfig, PluginError, TrainLimits, TrainOutcome,
    train,
};
use trainer::TrainerComponent;

/// Returns a component whose trainer runs `body`, with `imports` and interfaces of `version`.
fn trainer_component(imports: &str, version: &str, body: &str) -> Vec<u8> {
    let fields = "(func $deep (param i64) (result i64)
        (i64.add (call $deep (i64.add (local.get 0) (i64.const 1))) (local.get 0)))";
    TrainerComponent { prelude: imports, version, body, fields, ..TrainerComponent::default() }.wasm()
}

fn host() -> PluginEngine {
    PluginEngine::new(PluginEngineConfig::default()).unwrap()
}

fn run(host: &PluginEngine, wasm: &[u8], limits: TrainLimits) -> Result<TrainOutcome, PluginError> {
    let plugin = host.compile(wasm)?;
    let context = Box::new(RecordingJobContext::default());
    train(host, &plugin, cpu(), Meter::unlimited(), BTreeMap::new(), context, limits)
}

fn refusal(host: &PluginEngine, wasm: &[u8]) -> String {
    let error = host.compile(wasm).unwrap_err();
    assert_eq!(error.reason().as_str(), "BAD_PLUGIN", "{error}");
    error.to_string()
}

#[test]
fn files_that_are_not_components_are_refused_by_what_they_are() {
    let host = host();
    let check = |wasm: &[u8], expected: &str| {
        let message = refusal(&host, wasm);
        assert!(message.contains(expected), "{message}");
    };
    check(b"", "the file is empty");
    check(b"import numpy", "does not begin as WebAssembly does");
    check(b"\0asm", "of a form this host does not know");
    check(b"\0asm\x02\0\x01\0", "02 00 01 00");
    check(&wat::parse_str("(module)").unwrap(), "core module: make a component of it");
    check(&wat::parse_str("(component)").unwrap(), "exports none of saggar:plugin/trainer@0.1.0, ");
    let other = r#"(component (instance $i) (export "acme:thing/main@1.0.0" (instance $i)))"#;
    check(&wat::parse_str(other).unwrap(), "it exports acme:thing/main@1.0.0");
}

#[test]
fn a_truncated_component_is_malformed() {
    let host = host();
    let whole = trainer_component("", "0.1.0", "");
    host.compile(&whole).unwrap();
    for length in 8..whole.len() {
        match host.compile(&whole[..length]) {
            // A cut between two sections leaves a valid component without exports.
            Err(PluginError::Malformed { .. } | PluginError::NoExports { .. }) => {}
            Err(error) => panic!("{length}: {error}"),
            // Only the names in the last section, a custom one, can be missing.
            Ok(plugin) => assert!(plugin.has_trainer() && whole[length] == 0, "{length}"),
        }
    }
}

#[test]
fn unknown_imports_are_refused_by_name() {
    let host = host();
    let check = |imports: &str, version: &str, expected: &str| {
        let message = refusal(&host, &trainer_component(imports, version, ""));
        assert!(message.contains(expected), "{message}");
    };
    let instance = |name: &str| format!(r#"(import "{name}" (instance))"#);
    check(&instance("wasi:http/types@0.2.0"), "0.1.0", "imports wasi:http/types@0.2.0");
    check(&instance("wasi:clocks/wall-clock@0.3.0"), "0.1.0", "plugins have cli, clocks, filesystem, io, random");
    check(&instance("saggar:plugin/network@0.1.0"), "0.1.0", "not part of this version of the plugin interface");
    check(r#"(import "now" (func (result u64)))"#, "0.1.0", "imports now");
    check(&instance("saggar:plugin/tensors@0.2.0"), "0.1.0", "saggar:plugin/tensors has version 0.2.0");
    check("", "0.7.0", "saggar:plugin/trainer has version 0.7.0");
    check("", "1.1.0", "this host speaks 0.1.0");
    // All patch versions of a minor version are compatible.
    host.compile(&trainer_component(&instance("saggar:plugin/logging@0.1.0"), "0.1.0", "")).unwrap();
    let wrong = r#"(import "saggar:plugin/logging@0.1.0" (instance (export "log" (func (param "line" string)))))"#;
    check(wrong, "0.1.0", "does not fit saggar:plugin@0.1.0");
}

/// Imports of WASI: a socket, a clock, random numbers and an exit. The memory is that of the lowered functions.
const WASI_IMPORTS: &str = r#"
    (import "wasi:sockets/tcp-create-socket@0.2.3" (instance $tcp
      (type $code' (enum "unknown" "access-denied"))
      (export "error-code" (type $code (eq $code')))
      (export "tcp-socket" (type $socket (sub resource)))
      (export "create-tcp-socket" (func (result (result (own $socket) (error $code)))))))
    (import "wasi:clocks/monotonic-clock@0.2.3" (instance $clock (export "now" (func (result u64)))))
    (import "wasi:random/random@0.2.3" (instance $random (export "get-random-u64" (func (result u64)))))
    (import "wasi:cli/exit@0.2.3" (instance $exit (export "exit" (func (param "status" (result))))))
    (core module $lowered (memory (export "memory") 1)
      (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0))))
    (core instance $lowered (instantiate $lowered))
    (core func $create (canon lower (func $tcp "create-tcp-socket") (memory (core memory $lowered "memory"))))
    (core func $now (canon lower (func $clock "now")))
    (core func $number (canon lower (func $random "get-random-u64")))
    (core func $end (canon lower (func $exit "exit")))"#;

#[test]
fn a_plugin_that_imports_files_network_or_environment_gets_nothing_of_them() {
    let host = host();
    let component = |body| TrainerComponent {
        prelude: WASI_IMPORTS,
        arguments: r#"(with "wasi" (instance (export "create" (func $create)) (export "now" (func $now))
            (export "number" (func $number)) (export "end" (func $end)) (export "load" (func $lowered "load"))))"#,
        fields: r#"(import "wasi" "create" (func $create (param i32))) (import "wasi" "now" (func $now (result i64)))
            (import "wasi" "number" (func $number (result i64))) (import "wasi" "end" (func $end (param i32)))
            (import "wasi" "load" (func $load (param i32) (result i32)))
            (func $assert (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))"#,
        body,
        ..TrainerComponent::default()
    };
    // The second case of the result, and of the error: access denied.
    let refused = "(call $create (i32.const 16))
        (call $assert (i32.eq (call $load (i32.const 16)) (i32.const 1)))
        (call $assert (i32.eq (call $load (i32.const 20)) (i32.const 1)))
        (call $assert (i64.eq (call $now) (call $now)))
        (call $assert (i64.ne (call $number) (call $number)))";
    run(&host, &component(refused).wasm(), TrainLimits::default()).unwrap();
    let ended = run(&host, &component("(call $end (i32.const 0))").wasm(), TrainLimits::default()).unwrap_err();
    assert!(ended.to_string().contains("the plugin called exit: it must return instead"), "{ended}");
}

#[test]
fn a_predictor_that_imports_the_job_interface_is_refused() {
    let text = r#"(component
        (import "saggar:plugin/job@0.1.0" (instance))
        (instance $i)
        (export "saggar:plugin/predictor@0.1.0" (instance $i)))"#;
    let message = refusal(&host(), &wat::parse_str(text).unwrap());
    assert!(
        message.contains("saggar:plugin/job@0.1.0, which only a plugin that exports a trainer or a step is given"),
        "{message}"
    );
}

#[test]
fn missing_exports_are_named() {
    let host = host();
    let plugin = host.compile(&trainer_component("", "0.1.0", "")).unwrap();
    assert!(plugin.has_trainer() && !plugin.has_predictor());
    let parts = ModelParts {
        plugin,
        variables: Vec::new(),
        config: String::new(),
        inputs: Default::default(),
        weights_meter: Meter::unlimited(),
        meter: Meter::unlimited(),
        limits: ModelLimits::default(),
        on_instance_start: None,
    };
    let loaded = LoadedModel::load(&host, parts, cpu());
    assert_eq!(loaded.unwrap_err().to_string(), "the plugin has no saggar:plugin/predictor: it cannot predict");
    let empty = r#"(component (instance $i) (export "saggar:plugin/trainer@0.1.0" (instance $i)))"#;
    let message = refusal(&host, &wat::parse_str(empty).unwrap());
    assert!(message.contains("does not have export `train`"), "{message}");
}

#[test]
fn each_kind_of_guest_failure_has_its_own_reason() {
    let host = host();
    let limits = TrainLimits { time: Some(Duration::from_millis(100)), ..TrainLimits::default() };
    let check = |body: &str, limits: TrainLimits, reason: &str| {
        let error = run(&host, &trainer_component("", "0.1.0", body), limits).unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{error}");
        error.to_string()
    };
    check("unreachable", TrainLimits::default(), "TRAP");
    check("(loop (br 0))", limits, "DEADLINE");
    let hung = TrainLimits { watchdog_timeout: Duration::from_millis(100), ..TrainLimits::default() };
    check("(loop (br 0))", hung, "HUNG");
    check("(drop (call $deep (i64.const 0)))", TrainLimits::default(), "STACK_OVERFLOW");
    let grow = "(if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable))";
    let little = TrainLimits { memory_bytes: Some(32 << 20), ..TrainLimits::default() };
    let message = check(grow, little, "MEMORY_LIMIT");
    assert!(message.contains("33554432 bytes"), "{message}");
    // After all of this the host still works, and a sufficient memory limit suffices.
    assert_eq!(
        run(&host, &trainer_component("", "0.1.0", grow), TrainLimits::default()).unwrap(),
        TrainOutcome::Finished
    );
}

#[test]
fn memory_past_the_limit_is_refused_before_anything_runs() {
    let wasm = TrainerComponent { pages: 1024, ..TrainerComponent::default() }.wasm();
    let limits = TrainLimits { memory_bytes: Some(32 << 20), ..TrainLimits::default() };
    let error = run(&host(), &wasm, limits).unwrap_err();
    assert!(matches!(error, PluginError::MemoryLimit { during: "start", .. }), "{error}");
}

#[test]
fn compiled_plugins_are_cached() {
    let dir = tempfile::tempdir().unwrap();
    let config = || PluginEngineConfig { cache_dir: Some(dir.path().to_owned()), ..PluginEngineConfig::default() };
    let wasm = trainer_component("", "0.1.0", "");
    for _ in 0..2 {
        let host = PluginEngine::new(config()).unwrap();
        assert_eq!(run(&host, &wasm, TrainLimits::default()).unwrap(), TrainOutcome::Finished);
    }
    assert_eq!(std::fs::read_dir(dir.path().join("plugins")).unwrap().count(), 1);
}
