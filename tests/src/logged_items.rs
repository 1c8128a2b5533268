//! What the guests `mlp` in Python and JavaScript log, by the parameter `log`.

use std::path::Path;

use serde_json::json;

use crate::server::ServerProcess;

/// Runs one epoch of a guest `mlp` that logs an item of each kind, and checks what is stored.
pub fn check_logged_items_of_mlp(server: &ServerProcess, component: &Path) {
    let component = component.to_str().expect("a path of the tests");
    let run = ["run", component, "--data", "digits", "--device", "cpu", "--"];
    let job = server.saggar_ok(&[&run[..], &["epochs=1", "unit=8", "model=logging", "log=true"]].concat());
    let ended = server.wait_for_job(job.trim());
    assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    let path = format!("/api/v1/jobs/{}/logged", job.trim());
    let listed = server.get(&format!("{path}?values"));
    let items = listed["items"].as_array().expect("items");
    let names: Vec<_> = items
        .iter()
        .map(|item| {
            format!("{}/{}", item["kind"].as_str().unwrap_or_default(), item["name"].as_str().unwrap_or_default())
        })
        .collect();
    let weights = ["l1/bias", "l1/weight", "l2/bias", "l2/weight", "l3/bias", "l3/weight"];
    let weights = weights.map(|name| format!("histogram/weights/{name}"));
    assert_eq!(names[1..7], weights, "{listed}");
    assert_eq!(
        (names[0].as_str(), names[7..].join(" ").as_str()),
        ("histogram/numbers", "image/pictures/grey image/pictures/red table/table")
    );
    assert_eq!(items[0]["histogram"], json!({ "edges": [0.0, 1.0, 2.0], "counts": [1, 2] }));
    let elements: u64 =
        items[2]["histogram"]["counts"].as_array().expect("counts").iter().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(elements, 64 * 8, "every element of a weight is counted once");
    let table = server.get(&format!("{path}/{}/table/table", items[0]["step"]));
    let types: Vec<_> =
        table["columns"].as_array().expect("columns").iter().map(|column| column["type"].clone()).collect();
    assert_eq!(types, ["text", "number", "integer", "boolean"]);
    assert_eq!(table["columns"][1]["values"], json!([0.5, null]));
}
