//! Faults that only components written by hand can have: traps outside of their exports, floods of resources that the
//! engine counts, and host calls within a host call. Each gets its error, and the host survives.

#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/trainer.rs"]
mod trainer;

use std::collections::BTreeMap;

use recorder::{RecordingJobContext, cpu};
use saggar_device::Meter;
use saggar_plugin::limits::{COMPONENT_HANDLES_MAX, TABLE_ELEMENTS_MAX};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginEngineConfig, PluginError, TrainLimits, TrainOutcome, train};
use trainer::TrainerComponent;

fn host() -> PluginEngine {
    PluginEngine::new(PluginEngineConfig::default()).unwrap()
}

fn run(host: &PluginEngine, plugin: &CompiledPlugin) -> Result<TrainOutcome, PluginError> {
    let context = Box::new(RecordingJobContext::default());
    train(host, plugin, cpu(), Meter::unlimited(), BTreeMap::new(), context, TrainLimits::default())
}

/// Runs the trainer and returns its outcome. Then the same host must run a well-behaved one.
fn run_then_check_host(host: &PluginEngine, trainer: TrainerComponent<'_>) -> Result<TrainOutcome, PluginError> {
    let ended = run(host, &host.compile(&trainer.wasm())?);
    let well = host.compile(&TrainerComponent::default().wasm()).unwrap();
    assert_eq!(run(host, &well).unwrap(), TrainOutcome::Finished);
    ended
}

/// Returns a resource of the component with this destructor, and its `new` and `drop` for the module.
fn resource(destructor: &str) -> String {
    format!(
        r#"(core module $d (func $destroy (export "destroy") (param i32) {destructor}))
           (core instance $destructors (instantiate $d))
           (type $thing (resource (rep i32) (dtor (core func $destructors "destroy"))))
           (core func $new (canon resource.new $thing))
           (core func $drop (canon resource.drop $thing))"#
    )
}

const RESOURCE_ARGUMENTS: &str = r#"(with "host" (instance (export "new" (func $new)) (export "drop" (func $drop))))"#;

const RESOURCE_FIELDS: &str = r#"
    (import "host" "new" (func $new (param i32) (result i32)))
    (import "host" "drop" (func $drop (param i32)))"#;

/// Returns a trainer component that defines a resource.
fn trainer_with_resource<'a>(prelude: &'a str, body: &'a str) -> TrainerComponent<'a> {
    TrainerComponent {
        prelude,
        arguments: RESOURCE_ARGUMENTS,
        fields: RESOURCE_FIELDS,
        body,
        ..TrainerComponent::default()
    }
}

#[test]
fn traps_in_start_functions_and_destructors_are_named() {
    let host = host();
    let trap = |trainer: TrainerComponent<'_>| match run_then_check_host(&host, trainer) {
        Err(PluginError::Trap { during, reason }) => (during, reason),
        ended => panic!("{ended:?}"),
    };
    let (during, reason) =
        trap(TrainerComponent { fields: "(func $begin unreachable) (start $begin)", ..TrainerComponent::default() });
    assert_eq!((during, reason.contains("unreachable") && reason.contains("begin")), ("start", true), "{reason}");

    let traps = resource("unreachable");
    let (during, reason) = trap(trainer_with_resource(&traps, "(call $drop (call $new (i32.const 7)))"));
    assert_eq!((during, reason.contains("unreachable") && reason.contains("destroy")), ("train", true), "{reason}");
    // A handle that is left when the call ends is dropped with the instance, without running the destructor.
    let left = trainer_with_resource(&traps, "(drop (call $new (i32.const 7)))");
    assert_eq!(run_then_check_host(&host, left).unwrap(), TrainOutcome::Finished);

    let (during, reason) = trap(trainer_with_resource(&resource(""), "(call $drop (i32.const 99))"));
    assert_eq!((during, reason.contains("unknown handle index 99")), ("train", true), "{reason}");
    let twice = "(local $it i32) (local.set $it (call $new (i32.const 7)))
        (call $drop (local.get $it)) (call $drop (local.get $it))";
    let (during, reason) = trap(trainer_with_resource(&resource(""), twice));
    assert_eq!((during, reason.contains("unknown handle index")), ("train", true), "{reason}");
}

/// Returns the peak of this process's anonymous memory since the last call, in bytes.
fn anonymous_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Host memory that a flood can take until it is refused, in bytes.
const FLOOD_BYTES_MAX: u64 = 16 << 20;

/// Runs a flood. Returns its outcome and the growth of this process's memory in bytes.
fn measure_flood(host: &PluginEngine, trainer: TrainerComponent<'_>) -> (Result<TrainOutcome, PluginError>, u64) {
    let plugin = host.compile(&trainer.wasm()).unwrap();
    // A first run allocates memory that the process keeps.
    run(host, &host.compile(&TrainerComponent::default().wasm()).unwrap()).unwrap();
    anonymous_peak();
    let before = anonymous_peak();
    let ended = run(host, &plugin);
    (ended, anonymous_peak().saturating_sub(before))
}

#[test]
fn a_flood_of_table_elements_is_refused_by_name() {
    let host = host();
    let limit = format!("the plugin needs more table elements than the {TABLE_ELEMENTS_MAX} it is given (train): ");
    let refused = |trainer: TrainerComponent<'_>| {
        let (ended, bytes) = measure_flood(&host, trainer);
        let error = ended.unwrap_err();
        assert_eq!(error.reason().as_str(), "TABLE_LIMIT", "{error}");
        assert!(error.to_string().starts_with(&limit), "{error}");
        assert!(bytes <= FLOOD_BYTES_MAX, "{bytes} bytes");
    };
    let grow = |table: &str, by: u32| format!("(table.grow {table} (ref.null func) (i32.const {by}))");
    let until_refused = format!("(loop (br_if 0 (i32.ne {} (i32.const -1)))) unreachable", grow("$t", 1000));
    refused(TrainerComponent { fields: "(table $t 0 funcref)", body: &until_refused, ..TrainerComponent::default() });

    // The limit applies to all tables of an instance together.
    let tables: String = (0..8).map(|number| format!("(table $t{number} 0 funcref)")).collect();
    let all = |by: u32| -> String {
        let each =
            |number| format!("(if (i32.eq {} (i32.const -1)) (then unreachable))", grow(&format!("$t{number}"), by));
        (0..8).map(each).collect()
    };
    refused(TrainerComponent { fields: &tables, body: &all(20_000), ..TrainerComponent::default() });
    let within = TrainerComponent { fields: &tables, body: &all(12_000), ..TrainerComponent::default() };
    assert_eq!(run_then_check_host(&host, within).unwrap(), TrainOutcome::Finished);

    // A plugin that continues after the refusal has not failed.
    let goes_on = format!("(drop {})", grow("$t", 1 << 30));
    let body = TrainerComponent { fields: "(table $t 0 funcref)", body: &goes_on, ..TrainerComponent::default() };
    assert_eq!(run_then_check_host(&host, body).unwrap(), TrainOutcome::Finished);
}

#[test]
fn tables_past_the_limit_are_refused_before_anything_runs() {
    let host = host();
    let one = format!("(table {} funcref)", TABLE_ELEMENTS_MAX + 1);
    let error =
        run_then_check_host(&host, TrainerComponent { fields: &one, ..TrainerComponent::default() }).unwrap_err();
    assert_eq!(error.reason().as_str(), "BAD_PLUGIN", "{error}");
    let expected = "the component has 100001 elements in one table, and at most 100000 are accepted";
    assert!(error.to_string().starts_with(expected), "{error}");
    let half = TABLE_ELEMENTS_MAX / 2 + 1;
    let two = format!("(table {half} funcref) (table {half} funcref)");
    let error =
        run_then_check_host(&host, TrainerComponent { fields: &two, ..TrainerComponent::default() }).unwrap_err();
    assert!(matches!(error, PluginError::TableLimit { during: "start", .. }), "{error}");
}

#[test]
fn a_flood_of_component_handles_is_refused_by_name() {
    let host = host();
    let prelude = resource("");
    let (ended, bytes) =
        measure_flood(&host, trainer_with_resource(&prelude, "(loop (drop (call $new (i32.const 7))) (br 0))"));
    let error = ended.unwrap_err();
    assert_eq!(error.reason().as_str(), "HANDLE_LIMIT", "{error}");
    let expected = format!("the plugin holds {COMPONENT_HANDLES_MAX} handles, which is the limit (train): ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(bytes <= FLOOD_BYTES_MAX, "{bytes} bytes");

    // Dropped handles do not count.
    let many = 3 * COMPONENT_HANDLES_MAX;
    let body = format!(
        "(local $n i32) (loop (call $drop (call $new (i32.const 7)))
            (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {many}))))"
    );
    assert_eq!(run_then_check_host(&host, trainer_with_resource(&prelude, &body)).unwrap(), TrainOutcome::Finished);
}

/// Returns a trainer that requests the job's parameters, which the host writes to memory that the component's `realloc`
/// returns. `realloc` runs this code first.
fn trainer_requesting_parameters(realloc: &str) -> Vec<u8> {
    let prelude = format!(
        r#"(import "saggar:plugin/job@0.1.0" (instance $job
             (export "parameters" (func (result string))) (export "seed" (func (result u64)))))
           (core func $seed (canon lower (func $job "seed")))
           (core module $l
             (import "host" "seed" (func $seed (result i64)))
             (memory (export "memory") 1)
             (func $realloc (export "realloc") (param i32 i32 i32 i32) (result i32) {realloc} i32.const 1024))
           (core instance $library (instantiate $l (with "host" (instance (export "seed" (func $seed))))))
           (core func $parameters (canon lower (func $job "parameters")
             (memory (core memory $library "memory")) (realloc (core func $library "realloc"))))"#
    );
    let trainer = TrainerComponent {
        prelude: &prelude,
        arguments: r#"(with "host" (instance (export "parameters" (func $parameters))))"#,
        fields: r#"(import "host" "parameters" (func $parameters (param i32)))"#,
        body: "(call $parameters (i32.const 8))",
        ..TrainerComponent::default()
    };
    trainer.wasm()
}

/// During a host call, the host calls the plugin only for memory. That call must not call the host.
#[test]
fn a_host_call_within_a_host_call_is_refused() {
    let host = host();
    let well = host.compile(&trainer_requesting_parameters("")).unwrap();
    let enters = host.compile(&trainer_requesting_parameters("(drop (call $seed))")).unwrap();
    assert_eq!(run(&host, &well).unwrap(), TrainOutcome::Finished);
    for _ in 0..3 {
        match run(&host, &enters).unwrap_err() {
            PluginError::Trap { during: "train", reason } => {
                assert!(reason.contains("cannot leave component instance"), "{reason}");
                assert!(reason.contains("realloc"), "the function at fault is named: {reason}");
            }
            error => panic!("{error}"),
        }
        assert_eq!(run(&host, &well).unwrap(), TrainOutcome::Finished);
    }
    // Other failures of `realloc` are reported too.
    let traps = host.compile(&trainer_requesting_parameters("unreachable")).unwrap();
    assert!(matches!(run(&host, &traps), Err(PluginError::Trap { during: "train", .. })));
    let nowhere = host.compile(&trainer_requesting_parameters("(return (i32.const -8))")).unwrap();
    match run(&host, &nowhere).unwrap_err() {
        PluginError::Trap { during: "train", reason } => assert!(reason.contains("beyond end of memory"), "{reason}"),
        error => panic!("{error}"),
    }
}
