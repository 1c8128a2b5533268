//! What the values of the chart are, and which parts of which objects they replace.

use serde_json::{Map, Value, json};

/// How a value is written into a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiftedForm {
    /// A number, a truth value, or a text that is there in every installation.
    Scalar,
    /// A number or a text. Its field is left out if it is null.
    OptionalScalar,
    /// A list. Its field is left out if it is empty.
    List,
    /// A mapping. Its field is left out if it is empty.
    Mapping,
    /// A text of several lines.
    Text,
}

impl LiftedForm {
    /// Returns the value of a field that is left out.
    pub(super) fn absent_value(self) -> Value {
        match self {
            LiftedForm::Scalar | LiftedForm::OptionalScalar => Value::Null,
            LiftedForm::List => json!([]),
            LiftedForm::Mapping => json!({}),
            LiftedForm::Text => json!(""),
        }
    }
}

/// A part of an object that is a value of the chart.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiftedValue {
    /// The object's file.
    pub(super) file: &'static str,
    /// The place in the object (RFC 6901).
    pub(super) pointer: &'static str,
    /// The path in the values: `server.replicas`.
    pub(super) path: &'static str,
    pub(super) form: LiftedForm,
}

const fn lift(file: &'static str, pointer: &'static str, path: &'static str, form: LiftedForm) -> LiftedValue {
    LiftedValue { file, pointer, path, form }
}

/// The switches of optional objects, each with one file that is there if it is on.
pub(super) const SWITCHES: [(&str, &str); 6] = [
    ("worker.enabled", "worker-deployment"),
    ("jobPool.enabled", "role"),
    ("keda.enabled", "worker-scaled-object"),
    ("autoscaler.enabled", "worker-autoscaler"),
    ("ingress.enabled", "server-ingress"),
    ("serviceMonitor.enabled", "service-monitor"),
];

const SERVER: &str = "server-deployment";
const WORKER: &str = "worker-deployment";

/// The values.
pub(super) const LIFTED_VALUES: [LiftedValue; 33] = [
    lift(SERVER, "/spec/template/spec/containers/0/image", "server.image", LiftedForm::Scalar),
    lift(SERVER, "/spec/replicas", "server.replicas", LiftedForm::Scalar),
    lift(SERVER, "/spec/template/spec/containers/0/resources", "server.resources", LiftedForm::Mapping),
    lift(SERVER, "/spec/template/spec/containers/0/env", "server.env", LiftedForm::List),
    lift(SERVER, "/spec/template/spec/containers/0/envFrom", "server.envFrom", LiftedForm::List),
    lift(SERVER, "/spec/template/spec/containers/0/volumeMounts", "server.volumeMounts", LiftedForm::List),
    lift(SERVER, "/spec/template/spec/volumes", "server.volumes", LiftedForm::List),
    lift(SERVER, "/spec/template/spec/nodeSelector", "server.nodeSelector", LiftedForm::Mapping),
    lift(SERVER, "/spec/template/spec/automountServiceAccountToken", "jobPool.enabled", LiftedForm::Scalar),
    lift("server-network-policy", "/spec/egress", "server.egress", LiftedForm::List),
    lift("server-service", "/spec/type", "server.serviceType", LiftedForm::OptionalScalar),
    lift("settings", "/data/saggar.toml", "settings", LiftedForm::Text),
    lift("service-account", "/metadata/annotations", "serviceAccount.annotations", LiftedForm::Mapping),
    lift(WORKER, "/spec/template/spec/containers/0/image", "worker.image", LiftedForm::Scalar),
    lift(WORKER, "/spec/replicas", "worker.replicas", LiftedForm::OptionalScalar),
    lift(WORKER, "/spec/template/spec/containers/0/args", "worker.args", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/containers/0/resources", "worker.resources", LiftedForm::Mapping),
    lift(WORKER, "/spec/template/spec/containers/0/env", "worker.env", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/containers/0/envFrom", "worker.envFrom", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/containers/0/volumeMounts", "worker.volumeMounts", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/volumes", "worker.volumes", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/securityContext", "worker.podSecurityContext", LiftedForm::Mapping),
    lift(WORKER, "/spec/template/spec/tolerations", "worker.tolerations", LiftedForm::List),
    lift(WORKER, "/spec/template/spec/nodeSelector", "worker.nodeSelector", LiftedForm::Mapping),
    lift("worker-network-policy", "/spec/egress", "worker.egress", LiftedForm::List),
    lift("worker-autoscaler", "/spec/minReplicas", "autoscaler.workersMin", LiftedForm::Scalar),
    lift("worker-autoscaler", "/spec/maxReplicas", "autoscaler.workersMax", LiftedForm::Scalar),
    lift("worker-scaled-object", "/spec/minReplicaCount", "keda.workersMin", LiftedForm::Scalar),
    lift("worker-scaled-object", "/spec/maxReplicaCount", "keda.workersMax", LiftedForm::Scalar),
    lift("worker-scaled-object", "/spec/triggers", "keda.triggers", LiftedForm::List),
    lift("server-ingress", "/spec/ingressClassName", "ingress.className", LiftedForm::OptionalScalar),
    lift("server-ingress", "/spec/rules/0/host", "ingress.host", LiftedForm::Scalar),
    lift("server-ingress", "/spec/tls", "ingress.tls", LiftedForm::List),
];

/// Sets a value at a path of names separated by points, and creates the mappings on the way.
pub(super) fn set_value(values: &mut Value, path: &str, value: Value) {
    let mut at = values;
    for name in path.split('.') {
        let Value::Object(members) = at else { return };
        at = members.entry(name).or_insert_with(|| Value::Object(Map::new()));
    }
    *at = value;
}

/// Sets a field of an object at a pointer whose parent exists.
pub(super) fn set_field(object: &mut Value, pointer: &str, value: Value) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(members)) = object.pointer_mut(parent) {
        members.insert(name.to_owned(), value);
    }
}
