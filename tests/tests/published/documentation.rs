//! Runs the samples of README.md and of the documentation in host/docs against the real binary, exactly as written, because
//! users copy and paste them.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_tests::{ServerProcess, binary, plugin, root};

/// Returns the code blocks in the section of a document under this heading, with their language.
fn code_blocks(document: &str, heading: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let section = text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{document}: {heading}")).1;
    let section = section.split("\n## ").next().unwrap();
    let fences: Vec<&str> = section.split("```").collect();
    let block = |fence: &&str| {
        let (language, code) = fence.split_once('\n').unwrap();
        (language.to_owned(), code.to_owned())
    };
    let blocks: Vec<_> = fences.iter().skip(1).step_by(2).map(block).collect();
    assert!(!blocks.is_empty(), "{document}: {heading} has no samples");
    blocks
}

/// Returns the script of all blocks of a language.
fn script(document: &str, heading: &str, language: &str) -> String {
    let of_language = code_blocks(document, heading).into_iter().filter(|(other, _)| other == language);
    let script: String = of_language.map(|(_, code)| code).collect();
    assert!(!script.is_empty(), "{document}: {heading} has no block of `{language}`");
    script
}

/// Runs a script with `curl` and `saggar` in the path, and returns its output. A refused request ends it.
fn run(server: &ServerProcess, folder: &Path, script: &str) -> String {
    let address = server.url().strip_prefix("http://").unwrap();
    let script = script.replace("127.0.0.1:5000", address).replace("localhost:5000", address);
    let begin = "set -euo pipefail\n\
                 saggar() { \"$SAGGAR_BINARY\" \"$@\"; }\n\
                 curl() { command curl --silent --show-error --fail-with-body --max-time 60 \"$@\"; echo; }\n";
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{begin}{script}")]).current_dir(folder);
    command.env("SAGGAR_HOST", server.url()).env("SAGGAR_BINARY", binary());
    command.env("SAGGAR_HOME", server.home());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n== printed\n{printed}\n== said\n{errors}");
    printed
}

/// Returns a writable folder that looks like the project's root to commands.
fn linked_project_root() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["examples", "plugins", "host"] {
        std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    // Plugins of all pages are built in one directory, which has their dependencies.
    let target = root().join("target/documentation");
    std::fs::create_dir(folder.path().join(".cargo")).unwrap();
    let config = format!("[build]\ntarget-dir = {target:?}\n");
    std::fs::write(folder.path().join(".cargo/config.toml"), config).unwrap();
    folder
}

#[test]
fn the_samples_of_the_readme_run() {
    let (home, folder) = (tempfile::tempdir().unwrap(), linked_project_root());
    let server = ServerProcess::start(home.path());
    plugin("lenet");
    let by_hand = script("README.md", "By hand", "");
    // Steps that the test has already done: building, and a server in another terminal.
    let done = ["make build", "alias saggar=", "saggar serve "];
    let lines: Vec<&str> = by_hand.lines().filter(|line| !done.iter().any(|start| line.starts_with(start))).collect();
    assert_eq!(by_hand.lines().count() - lines.len(), done.len(), "{by_hand}");
    let printed = run(&server, folder.path(), &lines.join("\n"));
    assert!(printed.contains("lenet-1") && printed.contains("label  7"), "{printed}");
    assert!(printed.contains("saggar_predict_requests_total"), "the metrics are the last command: {printed}");
}

#[test]
fn the_triton_client_samples_run() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    server.wait_for_version("digits", 1);
    // Finds or creates an environment with Triton's client.
    let clients = Command::new("bash").arg(".ci/clients").current_dir(root()).output().unwrap();
    let python = String::from_utf8(clients.stdout).unwrap().trim().to_owned();
    let page = std::fs::read_to_string(root().join("host/docs/guides/predict.md")).unwrap();
    let programs: Vec<&str> = page.split("```python\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert_eq!(programs.len(), 2, "one over HTTP and one over gRPC");
    for program in programs {
        let program = program.replace("localhost:5000", server.url().strip_prefix("http://").unwrap());
        let output = Command::new(&python).args(["-B", "-c", &program]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let label = printed.trim().trim_matches(['[', ']']).parse::<u32>();
        assert!(label.is_ok_and(|label| label < 10), "{printed}");
    }
}

/// Returns the ```bash blocks of a page, in order, as one script.
fn page_script(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```bash\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().join("\n")
}

/// Runs the commands of every page of a directory of the documentation, each page on a new server, in a copy of the project's
/// root. Returns the number of pages with commands.
fn run_pages(directory: &str) -> usize {
    for name in ["lenet", "mlp", "tabular", "char-lm", "transformer", "input-opt", "onnx"] {
        plugin(name);
    }
    let mut pages: Vec<_> = std::fs::read_dir(root().join("host/docs").join(directory)).unwrap().collect();
    pages.sort_by_key(|entry| entry.as_ref().unwrap().path());
    let mut failures = Vec::new();
    let mut count = 0;
    for page in pages.into_iter().map(|entry| entry.unwrap().path()) {
        let script = page_script(&page);
        if script.is_empty() {
            continue;
        }
        count += 1;
        let (home, folder) = (tempfile::tempdir().unwrap(), linked_project_root());
        let server = ServerProcess::start(home.path());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&server, folder.path(), &script)));
        if let Err(panic) = result {
            let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            failures.push(format!("{}:\n{message}", page.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    count
}

#[test]
fn the_commands_of_the_start_pages_run() {
    assert!(run_pages("start") >= 3);
}

#[test]
fn the_commands_of_the_guides_run() {
    assert!(run_pages("guides") >= 8);
}

#[test]
fn troubleshooting_explains_every_error_code() {
    let page = std::fs::read_to_string(root().join("host/docs/troubleshooting.md")).unwrap();
    let codes = saggar_rest::errors::ErrorCode::ALL.iter().map(|code| code.as_str());
    let missing: Vec<_> = codes.filter(|code| !page.contains(&format!("`{code}`"))).collect();
    assert!(missing.is_empty(), "host/docs/troubleshooting.md does not explain {missing:?}");
}

/// Returns the names that the WIT files define: interfaces, worlds, types and functions.
fn wit_names() -> std::collections::BTreeSet<String> {
    let mut names = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(root().join("wit")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "wit") {
            continue;
        }
        for line in std::fs::read_to_string(path).unwrap().lines().map(str::trim) {
            let words: Vec<&str> = line.split([' ', '{', ':', '(', ';']).filter(|word| !word.is_empty()).collect();
            match words[..] {
                ["interface" | "world" | "record" | "enum" | "variant" | "flags" | "resource", name, ..] => {
                    names.insert(name.to_owned());
                }
                [name, "func" | "static", ..] if !line.starts_with("//") => {
                    names.insert(name.to_owned());
                }
                _ => {}
            }
        }
    }
    names
}

#[test]
fn the_wit_page_lists_every_type_and_function() {
    let page = std::fs::read_to_string(root().join("host/docs/reference/wit.md")).unwrap();
    let names = wit_names();
    assert!(names.len() > 100, "{} names were found", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "host/docs/reference/wit.md does not list {missing:?}");
}

#[test]
fn the_metrics_page_lists_every_metric() {
    let table = std::fs::read_to_string(root().join("host/metrics/src/families.rs")).unwrap();
    let page = std::fs::read_to_string(root().join("host/docs/reference/metrics.md")).unwrap();
    let names: Vec<&str> = table.split("(\"saggar_").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 50, "{} metrics were found", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`saggar_{name}`"))).collect();
    assert!(missing.is_empty(), "host/docs/reference/metrics.md does not list {missing:?}");
}
