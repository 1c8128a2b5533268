//! Common command-line conventions, against a real server.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use saggar_tests::{ServerProcess, SteadyJob, binary, guest, lenet};
use serde_json::{Value, json};

/// Returns a command's two output streams and its exit code.
fn run(server: &ServerProcess, arguments: &[&str]) -> (String, String, i32) {
    let output = server.saggar(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn a_bare_port_listens_on_localhost() {
    for by_variable in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--device", "cpu", "--home"]).arg(home.path());
        match by_variable {
            true => command.env("SAGGAR_ADDR", "0"),
            false => command.args(["--addr", "0"]),
        };
        let server = ServerProcess::from_command(command, home.path());
        assert!(server.url().starts_with("http://127.0.0.1:"), "{}", server.url());
        assert_eq!(server.get("/version")["name"], "saggar");
    }
    let wrong = Command::new(binary()).args(["serve", "--addr", "65536"]).output().unwrap();
    let errors = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && errors.contains("expected a port such as 5000"), "{errors}");
}

#[test]
fn stopping_several_jobs_continues_past_a_missing_one() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let jobs: Vec<String> = (0..3).map(|_| SteadyJob::with_steps(1_000_000).submit(&server)).collect();
    let (stopped, errors, code) = run(&server, &["stop", &jobs[0], "absent-1", &jobs[1]]);
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("absent-1"), "{errors}");
    let named: Vec<&str> = stopped.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(named, [&jobs[0], &jobs[1]]);
    let one: Value = serde_json::from_str(&server.saggar_ok(&["--json", "stop", &jobs[2]])).unwrap();
    assert_eq!(one["name"], jobs[2].as_str());
    jobs.iter().for_each(|job| assert_eq!(server.wait_for_job(job)["state"], "CANCELLED"));
}

#[test]
fn the_health_command_says_whether_the_server_is_ready() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    let (text, errors, code) = run(&server, &["health"]);
    assert_eq!((text.as_str(), code), ("ready\n", 0), "without a key: {errors}");
    // A version that cannot be loaded.
    std::fs::create_dir_all(home.path().join("models/broken/1")).unwrap();
    std::fs::write(home.path().join("models/broken/1/manifest.json"), "{").unwrap();
    let reasons = server.wait_for("a model that does not serve", |server| {
        let (text, reasons, code) = run(server, &["health"]);
        (text == "not ready\n" && code == 1).then_some(reasons)
    });
    assert!(reasons.contains("model broken does not serve"), "{reasons}");
    let (text, _, code) = run(&server, &["health", "--json"]);
    let readiness: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &readiness["ready"]), (1, &json!(false)), "{text}");
    let (text, errors, code) = run(&server, &["--host", "http://127.0.0.1:9", "health"]);
    assert!(code == 6 && text.is_empty() && errors.contains("no answer from"), "{text}{errors}");
}

#[test]
fn the_version_command_shows_client_and_server_versions() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let (own, notes, code) = run(&server, &["version"]);
    assert_eq!(code, 0, "{notes}");
    let own_version = own.trim().strip_prefix("saggar ").unwrap();
    assert!(notes.contains(server.url()) && notes.contains(own_version), "{notes}");
    let both: Value = serde_json::from_str(&server.saggar_ok(&["--json", "version"])).unwrap();
    assert_eq!(both, json!({ "version": own_version, "server": { "url": server.url(), "version": own_version } }));
    let (own, notes, code) = run(&server, &["--host", "http://127.0.0.1:9", "version"]);
    assert!(code == 0 && own.starts_with("saggar ") && notes.contains("no answer ("), "{own}{notes}");
}

#[test]
fn a_watched_listing_is_refreshed() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(1).submit(&server);
    server.wait_for_job(&job);
    let mut watching = server.command(&["ps", "--all", "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The second listing contains the job that was submitted after the first one.
    let mut second = None;
    for line in lines {
        if second.is_none() && line.starts_with(&job) {
            second = Some(SteadyJob::with_steps(1).submit(&server));
        }
        if second.as_ref().is_some_and(|second| line.starts_with(second.as_str())) {
            break;
        }
    }
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!(run(&server, &["--host", "http://127.0.0.1:9", "ps", "--watch"]).2, 6, "nothing to watch");
}

#[test]
fn the_data_show_command_lists_the_fields_of_a_dataset() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let description = server.saggar_ok(&["data", "show", "digits"]);
    for words in ["digits/1", "FIELD", "image", "uint8", "label", "splits", "digest"] {
        assert!(description.contains(words), "{words}: {description}");
    }
    let document: Value = serde_json::from_str(&server.saggar_ok(&["--json", "data", "show", "digits/1"])).unwrap();
    assert_eq!((&document["name"], &document["version"]), (&json!("digits"), &json!(1)));
    let (_, errors, code) = run(&server, &["data", "show", "digits/2"]);
    assert!(code == 3 && errors.contains("`saggar data ls`"), "{errors}");
}

#[test]
fn aliases_and_shadows_are_set_and_models_are_removed() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let teller = guest("teller");
    for version in [1, 2, 3] {
        server.saggar_ok(&["run", teller.to_str().unwrap(), "--device", "cpu", "--wait"]);
        server.wait_for_version("teller", version);
    }
    let model = || server.get("/api/v1/models/teller");
    server.saggar_ok(&["models", "alias", "teller", "old", "1"]);
    assert_eq!(model()["versions"][0]["aliases"], json!(["old"]));
    let (_, errors, code) = run(&server, &["models", "rm", "teller@1", "-y"]);
    assert!(code == 5 && errors.contains("an alias"), "{code}: {errors}");
    server.saggar_ok(&["models", "alias", "teller", "old", "--remove"]);
    server.saggar_ok(&["models", "shadow", "teller", "2", "10%"]);
    assert_eq!(model()["shadow"], json!({ "to": "2", "percent": 10 }));
    server.saggar_ok(&["models", "shadow", "teller", "--remove"]);
    assert_eq!(model()["shadow"], Value::Null);
    let (_, errors, code) = run(&server, &["models", "rm", "teller@1"]);
    assert!(code == 2 && errors.contains("use --yes"), "{errors}");
    assert_eq!(server.saggar_ok(&["models", "rm", "teller@1", "--yes"]).trim(), "teller@1");
    let removed: Value = serde_json::from_str(&server.saggar_ok(&["--json", "models", "rm", "teller", "-y"])).unwrap();
    assert_eq!(removed["removed"], json!(["teller@2", "teller@3"]));
    assert_eq!(server.get("/api/v1/models")["models"], json!([]));
}

#[test]
fn plugins_are_named_and_list_their_parameters() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let component = lenet();
    let wasm = component.to_str().unwrap();
    let digest = server.upload(&component);
    let listed = server.saggar_ok(&["plugins", "ls"]);
    assert!(listed.lines().nth(1).unwrap().starts_with("lenet "), "{listed}");
    for named in [wasm, "plugins/lenet", "lenet", &digest[..12]] {
        let help = server.saggar_ok(&["run", named, "--help"]);
        let row = help.lines().find(|line| line.starts_with("epochs ")).unwrap_or_else(|| panic!("{named}: {help}"));
        assert!(row.contains("an integer of at least 0") && row.contains(" 20 ") && row.contains("Passes"), "{row}");
        assert!(help.contains("Reads at /data: image, label") && !help.contains("--checkpoint-every"), "{help}");
    }
    let (general, notes, code) = run(&server, &["run", "nowhere", "--help"]);
    assert!(code == 0 && general.contains("--checkpoint-every") && notes.contains("no plugin nowhere"), "{notes}");
    assert!(server.saggar_ok(&["run", "--help"]).contains("--checkpoint-every"));
    assert_eq!(server.get("/api/v1/jobs")["jobs"], json!([]), "nothing is run");
}
