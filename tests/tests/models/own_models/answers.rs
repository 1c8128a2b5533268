//! Which version answers: stored answers, outputs of jobs, and the condition under which a version serves.

use std::fs;

use saggar_tests::{HttpPayload, ServerProcess, lenet};
use serde_json::json;

use super::{TestFiles, push_mlp};

#[test]
fn a_stored_answer_is_verified_against_the_registry() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let files = TestFiles::new();
    push_mlp(&server, &files, [0.0, 1.0]);
    let (stored, input) = (files.path("answer.http"), "image=[[1, 2], [3, 4]]");
    server.saggar_ok(&["predict", "cats", "-i", input, "--save", &stored]);
    let verify = |file: &str, more: &[&str]| {
        let output = server.saggar(&[&["verify", file][..], more].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, printed, _) = verify(&stored, &[]);
    let version = server.get("/api/v1/models/cats/versions/1");
    assert!(code == 0 && printed.contains("made by     cats@1 on cpu"), "{printed}");
    for digest in ["plugin", "weights"] {
        assert!(printed.contains(version["version"][digest].as_str().unwrap()), "{digest}: {printed}");
    }
    // The version still answers the same, although another one serves.
    push_mlp(&server, &files, [1.0, 0.0]);
    let (code, printed, error) = verify(&stored, &["--recompute", "-i", input]);
    assert!(code == 0 && printed.contains("the same when computed again"), "{printed}{error}");
    let (code, _, error) = verify(&stored, &["--recompute", "-i", "image=[[0]]"]);
    assert_ne!(code, 0, "{error}");

    let text = fs::read_to_string(&stored).unwrap();
    let forged = files.write("forged.http", text.replace("\"label\":1", "\"label\":0"));
    assert_ne!(fs::read_to_string(&forged).unwrap(), text);
    let (code, _, error) = verify(&forged, &["--recompute", "-i", input]);
    assert!(code == 5 && error.contains("label is 0 in the file and 1 now"), "{error}");
    let weights = version["version"]["weights"].as_str().unwrap();
    let other = files.write("other.http", text.replace(weights, &"0".repeat(64)));
    let (code, _, error) = verify(&other, &[]);
    assert!(code == 5 && error.contains("cats@1 has other weights now"), "{error}");
    let bare = files.write("bare.http", "{\"label\": 1}\n");
    let (code, _, error) = verify(&bare, &[]);
    assert!(code == 7 && error.contains("does not begin with a status"), "{error}");

    server.saggar_ok(&["models", "rm", "cats@1", "--yes"]);
    let (code, _, error) = verify(&stored, &[]);
    assert!(code == 3 && error.contains("cats@1, which made it, does not exist here"), "{error}");
}

#[test]
fn outputs_of_jobs_say_what_computed_them() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--project", "p", "--wait"];
    server.saggar_ok(&[&run[..], &["--", "epochs=1", "model=digits"]].concat());
    server.wait_for_version("digits", 1);
    let version = server.get("/api/v1/models/digits/versions/1")["version"].clone();
    let of = |name: &str| format!("sha256:{}", version[name].as_str().unwrap());
    server.saggar_ok(&["predict", "digits", "--in", "digits", "--device", "cpu", "--wait"]);
    let path = "/api/v1/jobs/predictions-1/output/predictions.safetensors";
    let answer = server.request("GET", path, HttpPayload::Nothing);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!((answer.header("x-saggar-model"), answer.header("x-saggar-device")), ("digits@1", "cpu"));
    assert_eq!((answer.header("x-saggar-plugin"), answer.header("x-saggar-digest")), (&*of("plugin"), &*of("weights")));
    // The file itself says the same.
    let dir = TestFiles::new();
    server.saggar_ok(&["output", "get", "predictions-1", "--output", &dir.path("out")]);
    let file = fs::read(dir.0.path().join("out/predictions.safetensors")).unwrap();
    let (_, header) = ::safetensors::SafeTensors::read_metadata(&file).unwrap();
    let metadata = header.metadata().clone().unwrap();
    assert_eq!((metadata["model"].as_str(), metadata["device"].as_str()), ("digits@1", "cpu"));
    assert_eq!((&metadata["plugin"], &metadata["weights"]), (&of("plugin"), &of("weights")));
}

#[test]
fn a_version_that_does_not_meet_the_condition_is_kept_and_not_served() {
    let home = tempfile::tempdir().unwrap();
    let files = TestFiles::new();
    let project =
        "manifest = 1\n[project]\nname = \"p\"\n[model.digits]\npromote = \"validation/accuracy >= serving - 0.005\"\n";
    let config = files.write("saggar.toml", project);
    let start = || ServerProcess::start_with(home.path(), &["--config", &config]);
    let server = start();
    server.push_digits();
    let train = |server: &ServerProcess, epochs: &str, seed: &str| {
        let plugin = lenet();
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--project", "p", "--wait"];
        server.saggar_ok(&[&run[..], &["--seed", seed, "--", epochs, "model=digits"]].concat());
    };
    train(&server, "epochs=5", "7");
    server.wait_for_version("digits", 1);
    train(&server, "epochs=1", "8");
    let refused = server.wait_for("the second version", |server| {
        let model = server.get("/api/v1/models/digits");
        let second = model["versions"].as_array()?.get(1)?.clone();
        (second["state"] == "UNLOADED").then_some((second, model["serving"].clone()))
    });
    let (second, serving) = refused;
    assert_eq!((&second["reason_code"], &serving), (&json!("CONDITION_NOT_MET"), &json!(1)), "{second}");
    let reason = second["reason"].as_str().unwrap();
    for words in [
        "`validation/accuracy >= serving - 0.005` does not hold",
        "the serving version has 0.9",
        "saggar models promote digits 2",
    ] {
        assert!(reason.contains(words), "{words}: {reason}");
    }
    let listed = server.saggar(&["models", "ls"]);
    let (table, notes) = (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(table.contains("does not hold"), "{table}");
    assert!(notes.contains("digits: a published version serves if validation/accuracy >= serving - 0.005"), "{notes}");
    let log = server.saggar_ok(&["logs", "p-2"]);
    assert!(log.contains("digits@2 is stored and not served") && log.contains("does not hold"), "{log}");
    let events = server.get("/api/v1/jobs/p-2/events").to_string();
    assert!(events.contains("does not hold"), "{events}");

    // After a restart the condition still compares with the version that served, and a better version serves.
    drop(server);
    let server = start();
    server.wait_for_version("digits", 1);
    train(&server, "epochs=6", "7");
    server.wait_for_version("digits", 3);
    // What a user promotes serves whatever its metrics are.
    server.saggar_ok(&["models", "promote", "digits", "2"]);
    server.wait_for_version("digits", 2);

    // Without a condition the newest serves, and the list says so.
    push_mlp(&server, &files, [0.0, 1.0]);
    let listed = server.saggar(&["models", "ls"]);
    let notes = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(notes.contains("cats: the newest version serves as soon as it is published"), "{notes}");
    let bad = files.write("bad.toml", project.replace("serving - 0.005", "best"));
    let checked = server.saggar(&["check", &bad]);
    let said = [checked.stdout, checked.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("bad.toml:5:11") && said.contains("character 24: expected a number"), "{said}");
}
