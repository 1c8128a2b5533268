//! `/openapi.json` against the real server: thousands of requests that schemathesis generates from the document find no
//! server error, and no status or body that it does not describe.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, guest, root};

/// Number of random requests for each operation, in addition to those at the limits of its schemas.
const EXAMPLES: &str = "8";

/// Runs schemathesis on some of the operations, and returns the number of requests.
fn schemathesis(python: &str, server: &ServerProcess, home: &Path, operations: [&str; 2]) -> u64 {
    let document = format!("{}/openapi.json", server.url());
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    let mut schemathesis = Command::new(python);
    schemathesis.args(["-m", "schemathesis.cli", "run", &document, "--checks", checks]).args(operations);
    schemathesis.args(["--phases", "coverage,fuzzing", "--max-examples", EXAMPLES, "--generation-deterministic"]);
    schemathesis.args(["--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "60", "--no-color"]);
    // A deadline of a millisecond would correctly give 504.
    schemathesis.args(["-H", "X-Saggar-Deadline-Ms: 30000"]);
    let ran = schemathesis.current_dir(home).output().unwrap();
    let (report, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{report}\n{errors}");
    let summary = report.lines().find(|line| line.contains(" generated, ")).unwrap_or_default();
    summary.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn schemathesis_finds_no_server_error_and_no_undocumented_status() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let python = Command::new(root().join(".ci/schemathesis")).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let python = String::from_utf8(python.stdout).unwrap();
    // Schemathesis discovers names of models. A model that it unloads gives 503 from then on, so unloading comes last.
    let most = schemathesis(python.trim(), &server, home.path(), ["--exclude-path-regex", "/unload$"]);
    assert_eq!(server.request("GET", "/readyz", HttpPayload::Nothing).status, 200, "it goes on serving");
    let last = schemathesis(python.trim(), &server, home.path(), ["--include-path-regex", "/unload$"]);
    println!("{most} and {last} requests");
    assert!(most > 1000 && last > 5, "{most} and {last} requests");
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
}

/// The document contains the inputs of a model as soon as it serves.
#[test]
fn the_openapi_document_describes_the_inputs_of_served_models() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let described =
        |server: &ServerProcess| server.get("/openapi.json")["paths"].get("/models/teller/predict").is_some();
    assert!(!described(&server));
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    server.wait_for_version("teller", 1);
    assert!(described(&server));
    let input = &server.get("/openapi.json")["components"]["schemas"]["model.teller.input"]["anyOf"][0];
    assert_eq!(input["properties"]["prompt"]["maxLength"], 64);
    assert_eq!(input["required"], serde_json::json!(["prompt"]));
}
