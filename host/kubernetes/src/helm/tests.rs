use serde_json::json;

use super::*;
use crate::deploy_options::GpuVendor;

fn options() -> DeployOptions {
    let (image, objects) = ("registry.example.com/saggar:0.1.0".to_owned(), "s3://models/saggar".to_owned());
    DeployOptions { image, objects, ..DeployOptions::default() }
}

fn find<'f>(files: &'f [ChartFile], path: &str) -> &'f str {
    &files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path}: {files:?}")).text
}

#[test]
fn a_chart_has_a_template_of_every_object_and_no_placeholder() {
    let files = helm_chart(&options(), "0.1.0");
    let objects = ["server-deployment", "worker-deployment", "server-ingress", "worker-autoscaler", "service-monitor"];
    for object in objects.into_iter().chain(["worker-scaled-object", "role", "server-network-policy"]) {
        assert!(find(&files, &format!("templates/{object}.yaml")).contains("{{ .Release.Name }}"), "{object}");
    }
    for file in &files {
        assert!(!file.text.contains("zz-") && !file.text.contains("%%"), "{}: {}", file.path, file.text);
    }
}

#[test]
fn every_lifted_value_is_used_in_its_template() {
    let files = helm_chart(&options(), "0.1.0");
    for lifted in &LIFTED_VALUES {
        let text = find(&files, &format!("templates/{}.yaml", lifted.file));
        assert!(text.contains(&format!(".Values.{}", lifted.path)), "{lifted:?}: {text}");
    }
}

#[test]
fn the_schema_of_the_values_refuses_unknown_and_wrong_ones() {
    let files = helm_chart(&options(), "0.1.0");
    let schema: Value = serde_json::from_str(find(&files, "values.schema.json")).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    let server = &schema["properties"]["server"];
    assert_eq!(server["additionalProperties"], false);
    assert_eq!(server["properties"]["replicas"], json!({ "type": "integer", "minimum": 1 }));
    assert_eq!(server["properties"]["image"], json!({ "type": "string", "minLength": 1 }));
    assert_eq!(schema["properties"]["worker"]["properties"]["replicas"]["type"], json!(["integer", "null"]));
}

#[test]
fn switches_are_on_for_what_was_asked_for() {
    let gpu = Some(crate::deploy_options::GpuDemand { vendor: GpuVendor::Nvidia, count: 1 });
    let asked = DeployOptions { service_monitor: true, gpu, ..options() };
    let files = helm_chart(&asked, "0.1.0");
    let values = find(&files, "values.yaml");
    assert!(values.contains("serviceMonitor:\n  enabled: true\n"), "{values}");
    assert!(values.contains("ingress:\n  enabled: false\n"), "{values}");
    assert!(values.contains("nvidia.com/gpu: \"1\""), "{values}");
}
