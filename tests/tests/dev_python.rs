//! `saggar dev` with a plugin in Python, through the real binary: saving the file builds the component again and swaps
//! the version that serves.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use saggar_tests::{binary, build_plugin};
use serde_json::{Value, json};

/// The time limit for any wait. A server without optimization compiles a component with an interpreter for half a
/// minute.
const WAIT_TIMEOUT: Duration = Duration::from_secs(400);

const PROJECT: &str = "manifest = 1\n[project]\nname = \"scale\"\n[plugin.scale]\n\
                       source = \"target/saggar/scale.wasm\"\n[plugin.scale.build]\ncommand = \"saggar build\"\n\
                       watch = [\"src/**/*.py\", \"pyproject.toml\"]\n[task.train]\nplugin = \"scale\"\n";
const PACKAGE: &str = "[project]\nname = \"scale\"\n[tool.saggar]\nworld = \"model-http-plugin\"\n";
const SOURCE: &str = r#"from saggar_plugin import Graph, HttpRequest, Inputs, Job, Model, Operand, Params, Port, Variables
from saggar_plugin import export, float32, route

FACTOR = 2.0


class Scale(Model):
    batch_sizes = (1,)

    def __init__(self, v: Variables, config: Params) -> None:
        pass

    def inputs(self) -> list[Port]:
        return [Port("x", float32)]

    def outputs(self) -> list[Port]:
        return [Port("y", float32)]

    def predict(self, graph: Graph, inputs: Inputs) -> dict[str, Operand]:
        return {"y": inputs["x"] * FACTOR}

    @route("GET", "/factor")
    def factor(self, request: HttpRequest) -> str:
        return str(FACTOR)


def train(job: Job) -> None:
    job.publish("scale", job.variables())


export(Scale, train)
"#;

/// A running `saggar dev` and the lines that it prints.
struct DevSession {
    child: Child,
    lines: Receiver<String>,
    printed: Vec<String>,
}

impl DevSession {
    fn start(place: &Path) -> DevSession {
        let mut command = Command::new(binary());
        command.args(["dev", "--addr", "127.0.0.1:0", "--device", "cpu"]).current_dir(place);
        for name in ["SAGGAR_HOST", "SAGGAR_HOME", "SAGGAR_PROJECT"] {
            command.env_remove(name);
        }
        // The command of the project file is the binary under test.
        let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("XDG_CONFIG_HOME", place.join("config")).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let errors = sender.clone();
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).all(|it| sender.send(it).is_ok()));
        std::thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).all(|it| errors.send(it).is_ok()));
        DevSession { child, lines, printed: Vec::new() }
    }

    /// Returns the next line that contains these words.
    fn wait_for(&mut self, words: &str) -> String {
        let until = Instant::now() + WAIT_TIMEOUT;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(line) = self.lines.recv_timeout(left) else { break };
            self.printed.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        panic!("timed out waiting for {words:?}:\n{}", self.printed.join("\n"));
    }
}

impl Drop for DevSession {
    fn drop(&mut self) {
        // A signal, not a kill, so that its server ends too.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

#[test]
fn a_saved_python_source_is_built_again_and_replaces_the_version_that_serves() {
    let place = tempfile::tempdir().unwrap();
    let project = place.path();
    for folder in ["src", "bin"] {
        std::fs::create_dir(project.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink(binary(), project.join("bin/saggar")).unwrap();
    std::fs::write(project.join("saggar.toml"), PROJECT).unwrap();
    std::fs::write(project.join("pyproject.toml"), PACKAGE).unwrap();
    let source = project.join("src/plugin.py");
    std::fs::write(&source, SOURCE).unwrap();
    if build_plugin(project).is_none() {
        return;
    }
    let mut dev = DevSession::start(project);
    let url = dev.wait_for("http://127.0.0.1:").trim().to_owned();
    dev.wait_for("scale@1 answers at");
    dev.wait_for("waiting for a source");
    let ask = || {
        let mut answer = ureq::post(format!("{url}/models/scale/predict")).send_json(json!({ "x": 5 })).unwrap();
        let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        let factor = ureq::get(format!("{url}/factor")).call().unwrap().body_mut().read_to_string().unwrap();
        (body["y"].as_f64().unwrap(), factor)
    };
    assert_eq!(ask(), (10.0, "2.0".to_owned()));

    std::fs::write(&source, SOURCE.replace("FACTOR = 2.0", "FACTOR = (")).unwrap();
    dev.wait_for("SyntaxError");
    dev.wait_for("scale keeps serving its previous version");
    assert_eq!(ask(), (10.0, "2.0".to_owned()));

    std::fs::write(&source, SOURCE.replace("FACTOR = 2.0", "FACTOR = 3.0")).unwrap();
    let line = dev.wait_for("edit to first new answer");
    assert!(line.starts_with("scale@2 answers: edit to first new answer "), "{line}");
    println!("{line}");
    assert_eq!(ask(), (15.0, "3.0".to_owned()));
}
