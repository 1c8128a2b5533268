//! Plugins in JavaScript: built from the template, trained, resumed and served.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::process::Command;

use saggar_tests::{ServerProcess, binary, build_plugin};

/// Exit code of a build that failed.
const BUILD_FAILED: i32 = 7;

#[test]
fn the_javascript_template_trains_serves_and_resumes() {
    let home = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let written =
        Command::new(binary()).args(["init", "mine", "--template", "javascript"]).current_dir(&place).output();
    assert!(written.unwrap().status.success());
    let plugin = place.path().join("mine");
    let Some(component) = build_plugin(&plugin) else { return };
    let wasm = component.to_str().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let job = server.saggar_ok(&["run", wasm, "--data", "digits", "--device", "cpu", "--seed", "1"]);
    let ended = server.wait_for_job(job.trim());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let accuracy = ended["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.97, "{accuracy}");
    server.wait_for_version("mine", 1);
    let predict = ["predict", "mine", "-i", "image=@examples/digits/held-out/7.png", "--json"];
    assert!(server.saggar_ok(&predict).contains("\"label\": 7"));
    assert!(server.saggar_ok(&["logs", job.trim()]).contains("published version 1 of mine"));
    let test =
        ["plugins", "test", wasm, "--data", "digits", "--preemptions", "1", "--device", "cpu", "--", "epochs=60"];
    let tested = server.saggar(&test);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}

#[test]
fn errors_of_javascript_name_the_line_of_the_plugin() {
    let home = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let written =
        Command::new(binary()).args(["init", "mine", "--template", "javascript"]).current_dir(&place).output();
    assert!(written.unwrap().status.success());
    let plugin = place.path().join("mine");
    let source = plugin.join("src/plugin.js");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, "const const;").unwrap();
    let refused = Command::new(binary()).arg("build").arg(&plugin).output().unwrap();
    let messages = String::from_utf8_lossy(&refused.stderr).into_owned();
    if messages.contains("is needed to build this plugin") {
        return println!("SKIP: {messages}");
    }
    assert_eq!(refused.status.code(), Some(BUILD_FAILED), "{messages}");
    assert!(messages.contains("ComponentizeJS failed"), "{messages}");
    let thrown = "    if (job.param('fail', false)) throw new RangeError('no such class: 12');\n    \
                  if (job.param('unbuilt', false)) return new Graph().input('x', 'float32', [2]).relu() + 1;\n";
    let begin = "function train(job) {\n";
    let imports_graph = text.replace("Feed, Fit, Linear,", "Feed, Fit, Graph, Linear,");
    std::fs::write(&source, imports_graph.replace(begin, &format!("{begin}{thrown}"))).unwrap();
    let line = text.lines().position(|line| line == begin.trim_end()).unwrap() + 2;
    let Some(component) = build_plugin(&plugin) else { return };
    let server = ServerProcess::start(home.path());
    server.push_digits();
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--", "fail=true"];
    let ended = server.wait_for_job(server.saggar_ok(&run).trim());
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("RangeError: no such class: 12 (invalid-argument"), "{message}");
    assert!(message.contains(&format!("src/plugin.js:{line}")), "{message}");
    // An operand that is used as a number names its operator.
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--", "unbuilt=true"];
    let ended = server.wait_for_job(server.saggar_ok(&run).trim());
    let message = ended["message"].as_str().unwrap();
    assert!(message.contains("`relu` float32[2] has no value while the graph is built"), "{message}");
    assert!(message.contains(&format!("src/plugin.js:{}", line + 1)), "{message}");
}
