//! Submits jobs of the guest `steady` through the REST API.

use serde_json::{Map, Value, json};

use crate::guests::guest;
use crate::http::{HttpPayload, HttpResponse};
use crate::server::ServerProcess;

/// A job of `steady` to submit: its specification and its parameters.
#[derive(Clone, Debug)]
pub struct SteadyJob {
    spec: Map<String, Value>,
}

impl SteadyJob {
    /// Returns a job of this number of steps, on the CPU, that saves a checkpoint every few steps.
    pub fn with_steps(steps: u64) -> SteadyJob {
        let spec = json!({
            "project": "steady",
            "device": "cpu",
            "checkpoint_every": { "steps": 5 },
            "parameters": { "steps": steps },
        });
        SteadyJob { spec: spec.as_object().cloned().expect("an object") }
    }

    /// Adds a field to the specification.
    #[must_use]
    pub fn with_field(mut self, field: &str, value: impl Into<Value>) -> SteadyJob {
        self.spec.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a parameter of the plugin.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: impl Into<Value>) -> SteadyJob {
        self.spec["parameters"][name] = value.into();
        self
    }

    /// Returns the specification, with the plugin's digest.
    pub fn spec(&self, server: &ServerProcess) -> Value {
        let mut spec = self.spec.clone();
        spec.insert("plugin".to_owned(), json!(server.upload(&guest("steady"))));
        Value::Object(spec)
    }

    /// Submits it and returns the response, whatever its status.
    pub fn post(&self, server: &ServerProcess) -> HttpResponse {
        server.request("POST", "/api/v1/jobs", HttpPayload::Json(&self.spec(server)))
    }

    /// Submits it and returns its name.
    pub fn submit(&self, server: &ServerProcess) -> String {
        let answer = self.post(server);
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()["name"].as_str().expect("a name").to_owned()
    }
}
