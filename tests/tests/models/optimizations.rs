//! The switches of optimizations in servers, models, jobs, measurements and the project file.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_compile::{Optimization, OptimizationScope};
use saggar_tests::{HttpPayload, ServerProcess, SteadyJob, binary, copy_version, kill_9, root, worker_processes};
use serde_json::{Value, json};

/// Runs the program in a directory and returns its output, errors and exit code.
fn saggar(directory: &Path, arguments: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(directory).env("XDG_CONFIG_HOME", directory);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

/// Returns the number of compiled components in the artifact cache of a state directory.
fn cached_components(home: &Path) -> usize {
    let files = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().map(|it| it.unwrap().path());
    let mut waiting = vec![home.join("cache")];
    let mut found = 0;
    while let Some(directory) = waiting.pop() {
        for path in files(&directory) {
            match path.is_dir() {
                true => waiting.push(path),
                false => found += usize::from(path.extension().is_some_and(|it| it == "cwasm")),
            }
        }
    }
    found
}

/// Serves the digits model and then a second version with the same component. Returns the state directory, the server,
/// and whether the second version got the instances of the first.
fn serve_two_versions(arguments: &[&str]) -> (tempfile::TempDir, ServerProcess, bool) {
    let home = tempfile::tempdir().unwrap();
    drop(ServerProcess::start_with_digits(home.path(), &[]));
    // The training stored its component too.
    std::fs::remove_dir_all(home.path().join("cache")).unwrap();
    let server = ServerProcess::start_with(home.path(), arguments);
    server.wait_for_version("digits", 1);
    copy_version(&home.path().join("models/digits"), 1, 2);
    server.wait_for_version("digits", 2);
    let page = server.metrics();
    let mut loads = page.lines().filter(|line| line.starts_with("saggar_model_reloads_total"));
    let shares = loads.any(|line| line.contains("kind=\"weights\""));
    (home, server, shares)
}

#[test]
fn a_server_leaves_out_its_caches_and_shares_nothing() {
    let config = json!({ "cache": { "max_bytes": 1 << 20 } });
    let image = json!({ "image": vec![vec![0; 8]; 8] });
    let hits = |server: &ServerProcess| {
        let path = "/api/v1/models/digits/config";
        assert_eq!(server.request("PUT", path, HttpPayload::Json(&config)).status, 200);
        for _ in 0..3 {
            let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&image));
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        server.metric("saggar_cache_requests_total{model=\"digits\",result=\"hit\",version=\"2\"}").unwrap_or(0.0)
    };
    let (home, server, shares_instances) = serve_two_versions(&[]);
    assert!(shares_instances && cached_components(home.path()) > 0);
    assert!(hits(&server) >= 2.0);
    let all = "component-cache,response-cache,shared-instances,program-cache,batching";
    let (home, server, shares_instances) = serve_two_versions(&["--without", all]);
    assert!(!shares_instances && cached_components(home.path()) == 0);
    assert_eq!(hits(&server), 0.0);
}

#[test]
fn a_job_leaves_out_its_optimizations_in_every_attempt() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--without", "component-cache"]);
    let without = json!(["fusion", "component-cache"]);
    let job = SteadyJob::with_steps(1_000_000).with_field("without", without.clone()).submit(&server);
    server.wait_for_step(&job, 5);
    assert!(worker_processes(server.pid()).into_iter().all(kill_9));
    let over = server.wait_for("the second attempt", |server| {
        let job = server.job(&job);
        (job["attempts"].as_array().unwrap().len() == 2 && job["state"] == "RUNNING").then_some(job)
    });
    assert_eq!(over["spec"]["without"], without, "{over}");
    assert_eq!(cached_components(home.path()), 0, "no attempt stores its component");
    server.post(&format!("/api/v1/jobs/{job}/stop"), &json!({}));
    server.wait_for_job(&job);
    let again = server.post(&format!("/api/v1/jobs/{job}/restart"), &json!({}));
    assert_eq!(again["spec"]["without"], without, "{again}");
    let refused = SteadyJob::with_steps(1).with_field("without", json!(["warp"])).post(&server);
    assert!(refused.status == 400 || refused.status == 422, "{}", refused.text);
    assert!(refused.text.contains("warp") && refused.text.contains("winograd"), "{}", refused.text);
    let refused = SteadyJob::with_steps(1).with_field("without", json!(["batching"])).post(&server);
    assert!(refused.text.contains("expected optimizations of a job (fusion, "), "{}", refused.text);
}

#[test]
fn the_project_file_sets_the_switches_and_config_ls_shows_each() {
    let home = tempfile::tempdir().unwrap();
    let project = "manifest = 1\n[project]\nname = \"p\"\n[project.defaults]\nwithout = [\"winograd\"]\n\
                   [plugin.lenet]\nsource = \"lenet\"\n[task.t]\nplugin = \"lenet\"\nwithout = [\"fusion\", \"autotune\"]\n\
                   [model.m]\nwithout = [\"batching\"]\n";
    std::fs::write(home.path().join("saggar.toml"), project).unwrap();
    let rows = |arguments: &[&str]| {
        let (text, errors, code) = saggar(home.path(), &[&["config", "ls", "--json"], arguments].concat());
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Vec<Value>>(&text).unwrap()
    };
    let value = |rows: &[Value], key: &str| {
        let row = rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}"));
        (row["value"].as_str().unwrap().to_owned(), row["source"].as_str().unwrap().to_owned())
    };
    let (defaults, task, flags) = (rows(&[]), rows(&["--task", "t"]), rows(&["--task", "t", "--without", "tiles"]));
    let of_jobs = Optimization::ALL.iter().filter(|it| it.scope() != OptimizationScope::Serving);
    for name in of_jobs.map(|it| it.name()) {
        let expected =
            |off: &[&str], source: &str| (if off.contains(&name) { "off" } else { "on" }.to_owned(), source.to_owned());
        let key = format!("optimization.{name}");
        assert_eq!(value(&defaults, &key), expected(&["winograd"], "[project.defaults]"));
        assert_eq!(value(&task, &key), expected(&["fusion", "autotune"], "[task.t]"));
        assert_eq!(value(&flags, &key), expected(&["tiles"], "flag"));
    }
    // Names that do not exist, or not there, are refused with those that do.
    for (wrong, expected) in [
        (project.replace("\"fusion\"", "\"fusoin\""), "such as \"fusion\""),
        (project.replace("\"fusion\"", "\"batching\""), "task.t.without[0]"),
        (project.replace("\"batching\"", "\"shader-cache\""), "model.m.without[0]"),
    ] {
        std::fs::write(home.path().join("saggar.toml"), wrong).unwrap();
        let (text, errors, code) = saggar(home.path(), &["check"]);
        assert!(code == 7 && format!("{text}{errors}").contains(expected), "{code} {text}{errors}");
    }
}

#[test]
fn unknown_and_unsuitable_names_are_refused_with_the_valid_ones() {
    let home = tempfile::tempdir().unwrap();
    for command in [&["serve", "--without", "warp"][..], &["inspect", "lenet", "--without", "warp"]] {
        let (_, errors, code) = saggar(home.path(), command);
        assert!(code == 2 && errors.contains("there is no optimization `warp`; there are fusion, "), "{errors}");
    }
    let (_, errors, code) = saggar(home.path(), &["run", "lenet", "--without", "warp"]);
    assert!(code == 2 && errors.contains("warp"), "{errors}");
    let (_, errors, code) = saggar(home.path(), &["serve", "--without", "dataset-residency"]);
    assert!(code == 2 && errors.contains("saggar run PLUGIN --without dataset-residency"), "{errors}");
}

#[test]
fn an_inspection_shows_the_programs_without_an_optimization() {
    let home = tempfile::tempdir().unwrap();
    let kernels = |arguments: &[&str]| {
        let (text, errors, code) = saggar(home.path(), &[&["inspect", "lenet", "--json"], arguments].concat());
        assert_eq!(code, 0, "{errors}");
        let document: Value = serde_json::from_str(&text).unwrap();
        document["graphs"][0]["kernels"].as_u64().unwrap_or_else(|| panic!("{document}"))
    };
    assert!(kernels(&["--without", "fusion"]) > 2 * kernels(&[]));
}

#[test]
fn a_benchmark_shows_each_optimization_on_and_off() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    drop(server);
    let state = home.path().to_str().unwrap();
    let arguments = ["bench", "infer", "digits@1", "--devices", "cpu", "--requests", "6", "--on-off", "--home", state];
    let (text, errors, code) = saggar(&root(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(code, 0, "{errors}");
    let effects: Vec<Value> = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = effects.iter().map(|it| it["optimization"].as_str().unwrap()).collect();
    let of_programs = Optimization::ALL.iter().filter(|it| it.scope() == OptimizationScope::Program);
    assert_eq!(names, of_programs.map(|it| it.name()).collect::<Vec<_>>());
    for effect in &effects {
        let [on, off, ratio] = ["on_seconds", "off_seconds", "ratio"].map(|key| effect[key].as_f64().unwrap());
        assert!(on > 0.0 && off > 0.0 && (ratio - off / on).abs() < 1e-6, "{effect}");
        assert_eq!(effect["interval"].as_array().map(Vec::len), Some(2), "{effect}");
    }
    let without = [&arguments[..], &["--without", "fusion"]].concat();
    let (table, errors, code) = saggar(&root(), &without);
    assert!(code == 0 && table.contains("OFF/ON") && table.contains("95% INTERVAL"), "{table}{errors}");
    assert!(!table.contains("\nfusion "), "what is always off is not measured: {table}");
}

/// The page of the documentation lists each optimization as the program describes it.
#[test]
fn the_documentation_lists_every_optimization() {
    let page = std::fs::read_to_string(root().join("host/docs/reference/optimizations.md")).unwrap();
    for optimization in Optimization::ALL {
        let row = format!("| `{optimization}` | {} | ", optimization.description());
        assert!(page.contains(&row), "{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 2);
    assert_eq!(rows.count(), Optimization::ALL.len());
}
