//! Components that the server fetches by URL and SHA-256.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::Ordering;

use saggar_store::Digest;
use saggar_tests::{HttpPayload, ServerProcess, file_server, guest};
use serde_json::json;

#[test]
fn a_component_at_a_url_is_fetched_once_and_run() {
    let wasm = std::fs::read(guest("stepper")).unwrap();
    let digest = Digest::of(&wasm).hex();
    let (address, requests) = file_server(wasm);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--fetch-from", &address]);
    let url = format!("{address}/files/stepper.wasm?token=s3cret");
    for number in 1..=2 {
        let ran = server.saggar_ok(&["run", &url, "--sha256", &digest, "--wait", "--", "count=1"]);
        assert!(ran.contains(&format!("stepper-{number} SUCCEEDED")), "{ran}");
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1, "the second run uses the stored component");
    assert_eq!(server.job("stepper-2")["spec"]["plugin"], digest);

    // A project file names it too.
    let project = tempfile::tempdir().unwrap();
    let text = format!(
        "manifest = 1\n[project]\nname = \"p\"\n[plugin.far]\nsource = \"{address}/stepper.wasm\"\nsha256 = \"{digest}\"\n\
         [task.go]\nplugin = \"far\"\nargs = {{ count = 2 }}\n"
    );
    std::fs::write(project.path().join("saggar.toml"), text).unwrap();
    let mut run = server.command(&["run", "--task", "go", "--wait"]);
    let ran = run.current_dir(project.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(server.job("p-1")["step_outputs"]["count"]["value"], 3);
    assert!(!std::fs::read_to_string(home.path().join("server.log")).unwrap().contains("s3cret"));
}

#[test]
fn what_is_not_the_expected_file_from_an_allowed_address_is_refused() {
    let wasm = std::fs::read(guest("stepper")).unwrap();
    let digest = Digest::of(&wasm).hex();
    let (address, _) = file_server(wasm);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--fetch-from", &address]);
    let refusal = |url: &str, sha256: &str, status: u16, code: &str, says: &[&str]| {
        let body = json!({ "url": url, "sha256": sha256 });
        let answer = server.request("POST", "/api/v1/plugins/fetch", HttpPayload::Json(&body));
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{}", answer.text);
        assert!(says.iter().all(|says| answer.text.contains(says)), "{}", answer.text);
    };
    let other = "0".repeat(64);
    let at = |path: &str| format!("{address}{path}");
    refusal(&at("/x.wasm"), &other, 400, "wrong_content", &[&digest, &other]);
    refusal(&at("/elsewhere"), &other, 403, "fetch_refused", &["http://169.254.169.254/latest", &address]);
    refusal(&at("/endless"), &other, 413, "too_large", &["more than 268435456 bytes"]);
    refusal("http://127.0.0.1:9/x.wasm", &other, 403, "fetch_refused", &["--fetch-from"]);
    refusal("file:///etc/passwd", &other, 400, "bad_parameter", &["it is not a valid URL"]);
    refusal("ftp://a.b/x.wasm", &other, 400, "bad_parameter", &["begins with https://"]);
    refusal(&at("/x.wasm"), "12", 400, "bad_parameter", &["64 lower-case hexadecimal digits"]);
    let (text, _) = file_server(b"not a component".to_vec());
    let lenient = tempfile::tempdir().unwrap();
    let lenient_server = ServerProcess::start_with(lenient.path(), &["--fetch-from", &text]);
    let body = json!({ "url": format!("{text}/x.wasm"), "sha256": Digest::of(b"not a component").hex() });
    let answer = lenient_server.request("POST", "/api/v1/plugins/fetch", HttpPayload::Json(&body));
    assert_eq!((answer.status, &answer.json()["code"]), (422, &json!("bad_plugin")), "{}", answer.text);
    assert!(std::fs::read_dir(home.path().join("cache/fetch")).unwrap().next().is_none(), "no file stays");

    // Without the option nothing is fetched, and a URL without a digest is not submitted.
    let (_home, closed) = ServerProcess::start_in_temp_dir();
    let url = at("/x.wasm");
    let run = |arguments: &[&str]| {
        let output = closed.saggar(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["run", &url, "--sha256", &digest]);
    assert!(code == Some(4) && said.contains("--fetch-from"), "{code:?}: {said}");
    let (code, said) = run(&["run", &url]);
    assert!(code == Some(7) && said.contains("--sha256"), "{code:?}: {said}");
    let plugin = guest("stepper");
    let (code, said) = run(&["run", plugin.to_str().unwrap(), "--sha256", &other]);
    assert!(code == Some(7) && said.contains(&other) && said.contains(&digest), "{code:?}: {said}");
}

#[test]
fn a_reference_plugin_has_the_version_of_the_program() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let version = server.get("/version")["version"].as_str().unwrap().to_owned();
    server.push_digits();
    let named = format!("mlp@{version}");
    let run = ["run", &named, "--data", "digits", "--project", "named", "--wait", "--", "epochs=1"];
    assert!(server.saggar_ok(&run).contains("named-1 SUCCEEDED"));
    let other = server.saggar(&["run", "mlp@99.0.0", "--data", "digits"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(other.status.code() == Some(3) && said.contains("mlp@99.0.0") && said.contains(&version), "{said}");
}
