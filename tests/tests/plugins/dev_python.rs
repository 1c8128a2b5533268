//! `saggar dev` with a plugin in Python, through the real binary: saving the file builds the component again and swaps
//! the version that serves.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert, and it says SKIP")]

use saggar_tests::{DevProcess, build_plugin};
use serde_json::{Value, json};

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

#[test]
fn a_saved_python_source_is_built_again_and_replaces_the_version_that_serves() {
    let place = tempfile::tempdir().unwrap();
    let project = place.path();
    std::fs::create_dir(project.join("src")).unwrap();
    std::fs::write(project.join("saggar.toml"), PROJECT).unwrap();
    std::fs::write(project.join("pyproject.toml"), PACKAGE).unwrap();
    let source = project.join("src/plugin.py");
    std::fs::write(&source, SOURCE).unwrap();
    if build_plugin(project).is_none() {
        return;
    }
    let mut dev = DevProcess::start(project);
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
