//! Tables of the user, from a CSV file to predictions: the options of `saggar data push`, the plugin `tabular`, and a
//! comparison with scikit-learn's network on the same split.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_store::{ColumnarDataset, DatasetStore, StateDir};
use saggar_tests::{HttpPayload, ServerProcess, plugin, root};
use serde_json::{Value, json};

/// Runs the script with the tables, and returns what it printed.
fn tables(arguments: &[&str]) -> String {
    let requirements = root().join("tests/sklearn/requirements.txt");
    let installed = Command::new(root().join(".ci/clients")).arg(requirements).output().expect("bash is installed");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let python = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
    let script = root().join("tests/sklearn/tables.py");
    let ran = Command::new(python).arg("-B").arg(script).args(arguments).output().expect("the environment has Python");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

/// Trains on a dataset and waits until its model is served.
fn train_tabular(server: &ServerProcess, name: &str) {
    let component = plugin("tabular");
    let model = format!("model={name}");
    let run = ["run", component.to_str().unwrap(), "--data", name, "--device", "cpu", "--wait", "--", &model];
    server.saggar_ok(&run);
    server.wait_for_version(name, 1);
}

fn open_dataset(server: &ServerProcess, name: &str) -> ColumnarDataset {
    let datasets = DatasetStore::new(StateDir::open(server.home()).unwrap().datasets());
    datasets.open(&datasets.resolve(name).unwrap()).unwrap()
}

/// Returns an item's value of a field, as a request contains it.
fn item_value(data: &ColumnarDataset, field: &str, item: u64) -> Value {
    let bytes = data.read(field, &[item]).unwrap();
    let field = data.field(field).unwrap();
    if let Some(class) = field.classes.get(usize::from(bytes[0])) {
        return json!(class);
    }
    let floats = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    let floats: Vec<f32> = floats.collect();
    if field.item.shape.dims().is_empty() { json!(floats[0]) } else { json!(floats) }
}

/// Asks the model for the items of the part `test`. Returns the accuracy, or the R2 of a quantity.
fn score_model(server: &ServerProcess, name: &str) -> f64 {
    let data = open_dataset(server, name);
    let is_class = data.field("label").is_ok();
    let target = if is_class { "label" } else { "target" };
    let (mut right, mut errors, mut wanted) = (0_u32, 0.0, Vec::new());
    for item in data.items(Some("test")).unwrap() {
        let inputs = data.fields().iter().filter(|field| field.name != target);
        let inputs = inputs.map(|field| (field.name.clone(), item_value(&data, &field.name, item)));
        let request = Value::Object(inputs.collect());
        let route = format!("/models/{name}/predict");
        let answer = server.request("POST", &route, HttpPayload::Json(&request));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        let expected = item_value(&data, target, item);
        if is_class {
            right += u32::from(answer["label_name"] == expected);
        } else {
            let expected = expected.as_f64().unwrap();
            errors += (answer["target"].as_f64().unwrap() - expected).powi(2);
            wanted.push(expected);
        }
    }
    if is_class {
        let items = data.len(Some("test")).unwrap();
        return f64::from(right) / items as f64;
    }
    let mean = wanted.iter().sum::<f64>() / wanted.len() as f64;
    1.0 - errors / wanted.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
}

#[test]
fn tabular_predicts_like_the_network_of_scikit_learn() {
    let folder = tempfile::tempdir().unwrap();
    tables(&["write", folder.path().to_str().unwrap()]);
    let (_home, server) = ServerProcess::start_in_temp_dir();
    for (name, target) in [("wine", "answer"), ("cancer", "answer"), ("diabetes", "answer"), ("houses", "price")] {
        let file = folder.path().join(format!("{name}.csv"));
        server.saggar_ok(&["data", "push", file.to_str().unwrap(), "--target", target, "--split", "0.3"]);
        train_tabular(&server, name);
        let exported = folder.path().join(name);
        server.saggar_ok(&["data", "export", name, "--output", exported.to_str().unwrap()]);
        let expected: f64 = tables(&["score", exported.to_str().unwrap()]).parse().unwrap();
        let found = score_model(&server, name);
        println!("{name}: tabular {found:.4}, scikit-learn {expected:.4}");
        assert!(found >= expected - 0.02, "{name}: tabular {found}, scikit-learn {expected}");
    }
}

const PEOPLE: &str = "name,age,city,income\nAnn,31,Rome,10.5\nBen,,Oslo,12\nCid,25,Rome,9\nDee,50,Oslo,20\n\
    Eve,41,Rome,11\nFay,36,Oslo,13\nGus,29,Rome,8\nHal,44,Oslo,18\nIda,52,Rome,14\nJon,33,Oslo,12\n\
    Kim,27,Rome,9\nLea,39,Oslo,15\n";

fn write_people(folder: &Path) -> String {
    let file = folder.join("people.csv");
    std::fs::write(&file, PEOPLE).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn options_of_a_push_choose_the_target_the_split_and_the_missing_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_people(folder.path());
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let refused = server.saggar(&["data", "push", &file, "--target", "city"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(7), "{text}");
    assert!(text.contains("people.csv:3:2: column `age` has no value; push with `--missing drop`"), "{text}");
    let push = ["data", "push", &file, "--target", "city", "--split", "0.25", "--missing", "drop", "--ignore", "name"];
    let pushed = server.saggar(&push);
    let (text, notes) = (String::from_utf8_lossy(&pushed.stdout), String::from_utf8_lossy(&pushed.stderr));
    assert_eq!(text, "people/1\n");
    for expected in [
        "11 items (train 8, test 3)",
        "x float32[2]",
        "label uint8[]: Oslo, Rome",
        "note: 1 of 12 rows were dropped: values are missing (first in line 3)",
        "note: field x has the columns `age`, `income`",
    ] {
        assert!(notes.contains(expected), "{expected}: {notes}");
    }
    // The same keys in a file of the folder give the same version.
    let description = json!({
        "format": "csv", "target": "city", "ignore": ["name"], "missing": "drop", "splits": { "train": 0.75, "test": 0.25 },
    });
    std::fs::write(folder.path().join("dataset.json"), description.to_string()).unwrap();
    let directory = folder.path().to_str().unwrap();
    assert_eq!(server.saggar_ok(&["data", "push", directory, "--name", "people"]), "people/1\n");
    let clash = server.saggar(&["data", "push", directory, "--name", "people", "--target", "age"]);
    let text = String::from_utf8_lossy(&clash.stderr);
    assert!(text.contains("--target and the key `target` of dataset.json contradict"), "{text}");
}

#[test]
fn tabular_predicts_from_numbers_and_the_names_of_classes() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_people(folder.path());
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let push = ["data", "push", &file, "--target", "income", "--ignore", "name", "--missing", "mean"];
    server.saggar_ok(&push);
    train_tabular(&server, "people");
    let log = server.saggar_ok(&["logs", "tabular-1"]);
    assert!(log.contains("inputs: 1 numbers, 1 columns of classes; predicted: target, "), "{log}");
    let answer = server.saggar_ok(&["predict", "people", "-i", "x=[44]", "-i", "city=Oslo", "--json"]);
    let income = serde_json::from_str::<Value>(&answer).unwrap()["target"].as_f64().unwrap();
    assert!((12.0..24.0).contains(&income), "{answer}");
    let component = plugin("tabular");
    let run = ["run", component.to_str().unwrap(), "--data", "people", "--wait", "--", "target=wage"];
    let refused = server.saggar(&run);
    assert_eq!(refused.status.code(), Some(20), "{}", String::from_utf8_lossy(&refused.stderr));
    let log = server.saggar_ok(&["logs", "tabular-2"]);
    assert!(log.contains("no field `wage`; available: x, city, target"), "{log}");
}
