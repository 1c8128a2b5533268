//! The console in a real browser against the real binary. The browser's actions and checks are in `tests/console`.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::notebooks::RunningNotebook;
use saggar_tests::{ServerProcess, SteadyJob, create_key, guest, lenet, root};

/// Returns the folder where `.ci/setup test` installs the browser driver.
fn modules() -> PathBuf {
    root().join("target/console")
}

/// Returns what is missing for browser tests. With `REQUIRE_BROWSER=1`, panics if anything is.
fn missing() -> Option<&'static str> {
    let has =
        |command: &str| Command::new(command).arg("--version").output().is_ok_and(|output| output.status.success());
    let missing = if !has("node") {
        Some("node")
    } else if !has("chromium") {
        Some("chromium")
    } else if !modules().join("node_modules/playwright-core").is_dir() {
        Some("playwright-core")
    } else {
        None
    };
    assert!(missing.is_none() || std::env::var_os("REQUIRE_BROWSER").is_none(), "{missing:?} is missing");
    missing
}

/// Returns whether browser tests are skipped because there is no browser, and prints SKIP.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn is_skipped() -> bool {
    let missing = missing();
    if let Some(missing) = missing {
        println!("SKIP: {missing} is not here; `.ci/setup test` gets it");
    }
    missing.is_some()
}

/// Runs a file of `tests/console` against the server, with these additional environment variables.
fn check(name: &str, server: &ServerProcess, home: &Path, variables: &[(&str, &str)]) {
    let file = root().join("tests/console").join(format!("{name}.test.js"));
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"]).arg(&file).env("SAGGAR_URL", server.url());
    node.env("CONSOLE_MODULES", modules()).env("MODELS_DIR", home.join("models"));
    node.envs(variables.iter().copied());
    let output = node.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_empty_server_shows_the_commands_to_start_with() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    check("empty", &server, home.path(), &[]);
    check("modules", &server, home.path(), &[]);
}

/// A name that its module does not export keeps the browser from running any module.
#[test]
fn the_console_imports_only_names_that_are_exported() {
    let sources = root().join("host/serve/console");
    let files = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "js")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let imports = text.split("import { ").skip(1).filter_map(|statement| statement.split_once(" } from './"));
        for (names, rest) in imports {
            let module = std::fs::read_to_string(sources.join(rest.split('\'').next().unwrap())).unwrap();
            for name in names.split(", ") {
                let is_exported = ["function ", "async function ", "const ", "class "].iter().any(|form| {
                    let declared = module.split(&format!("export {form}{name}")).nth(1);
                    declared.is_some_and(|rest| rest.starts_with(['(', ' ']))
                });
                assert!(is_exported, "{} imports {name}, which its module does not export", file.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} names were found");
}

/// The console's third-party files are those of the lock file: `npm ci` verifies a package against the digest in it.
#[test]
fn vendored_console_files_match_the_published_packages() {
    if is_skipped() {
        return;
    }
    let published = modules().join("node_modules/uplot");
    let shipped = root().join("host/serve/console/vendor");
    for (ours, theirs) in
        [("uPlot.esm.js", "dist/uPlot.esm.js"), ("uPlot.min.css", "dist/uPlot.min.css"), ("uPlot.LICENSE", "LICENSE")]
    {
        let [ours, theirs] = [shipped.join(ours), published.join(theirs)].map(|path| std::fs::read(path).unwrap());
        assert!(ours == theirs, "another content than the package's");
    }
    let files = std::fs::read_dir(shipped).unwrap();
    assert_eq!(files.count(), 3, "a file of which it is not known where it comes from");
}

#[test]
fn the_console_lists_jobs_datasets_and_devices() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    for name in
        ["jobs", "job", "data", "experiments", "pipelines", "sweeps", "comparison", "overview", "graph", "workers"]
    {
        check(name, &server, home.path(), &[]);
    }
}

/// Against a double with many steps, and against the real server.
#[test]
fn the_console_shows_what_a_training_logged() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let job = SteadyJob::with_steps(8).with_parameter("items", true).submit(&server);
    server.wait_for_job(&job);
    let image = root().join("examples/digits/held-out/7.png");
    check("logged", &server, home.path(), &[("LOGGED_IMAGE", image.to_str().unwrap()), ("LOGGED_JOB", &job)]);
}

#[test]
fn the_console_follows_a_running_training() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    check("training", &ServerProcess::start_with_digits(home.path(), &[]), home.path(), &[]);
}

#[test]
fn the_console_lists_and_manages_models() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    check("models", &ServerProcess::start_with_digits(home.path(), &[]), home.path(), &[]);
}

#[test]
fn the_playground_sends_predictions_and_shows_the_outputs() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    server.saggar_ok(&["run", guest("teller").to_str().unwrap(), "--wait"]);
    server.wait_for_version("teller", 1);
    check("playground", &server, home.path(), &[]);
}

#[test]
fn forms_of_the_console_start_jobs_and_sweeps_and_store_datasets() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    server.push_digits();
    check("forms", &server, home.path(), &[]);
}

#[test]
fn the_console_asks_for_a_key_where_the_server_does() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let open = ServerProcess::start_with_digits(home.path(), &[]);
    let state = home.path().to_str().unwrap();
    let reader = open.saggar_ok(&["key", "create", "reader", "--scope", "predict", "--home", state]);
    drop(open);
    let server = ServerProcess::start_with(home.path(), &["--require-keys"]);
    check("keys", &server, home.path(), &[("READER", reader.trim())]);
}

/// MLflow's pages, in the version that `.ci/setup test` gets.
#[test]
fn mlflow_pages_show_jobs_as_runs() {
    if is_skipped() {
        return;
    }
    let pages = root().join("target/mlflow-3.17.2/mlflow/server/js/build");
    assert!(pages.join("index.html").is_file(), "`.ci/setup test` gets MLflow's pages");
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &["--mlflow-ui", pages.to_str().unwrap()]);
    let plugin = lenet();
    let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--project", "digits", "--wait", "--", "epochs=3"];
    server.saggar_ok(&run);
    server.saggar_ok(&[&run[..], &["lr=0.01"]].concat());
    let logged = SteadyJob::with_steps(8).with_parameter("items", true).submit(&server);
    server.wait_for_job(&logged);
    check("mlflow", &server, home.path(), &[("LOGGED_JOB", &logged)]);
}

/// JupyterLab runs in a sandbox below the server's own address.
#[test]
fn a_notebook_runs_cells_in_the_browser() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &["--notebooks", "1"]);
    let notebook = RunningNotebook::start(&server, &[]);
    let variables = [("NOTEBOOK_URL", notebook.url.as_str()), ("NOTEBOOK_JOB", notebook.job.as_str())];
    check("notebook", &server, home.path(), &variables);
}

/// The address of a notebook is shown to those who may have it, and nowhere else.
#[test]
fn the_console_starts_and_opens_notebooks() {
    if is_skipped() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let reader = create_key(home.path(), &["reader", "--scope", "jobs:read"]);
    let writer = create_key(home.path(), &["writer", "--scope", "jobs:read", "--scope", "jobs:write"]);
    let server = ServerProcess::start_with(home.path(), &["--notebooks", "1", "--require-keys"]);
    check("notebooks", &server, home.path(), &[("READER", &reader), ("WRITER", &writer)]);
    let token = std::fs::read_dir(home.path().join("jobs")).unwrap().flatten().next().unwrap();
    let token = std::fs::read_to_string(token.path().join("notebook/token")).unwrap();
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    let audit = std::fs::read_to_string(home.path().join("audit.log")).unwrap();
    assert!(!log.contains(&token) && !audit.contains(&token) && audit.contains("notebook.open"), "{audit}");
}
