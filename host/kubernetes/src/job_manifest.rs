//! The Kubernetes Job of one attempt: a pod that runs `saggar worker run JOB` once.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use saggar_jobs::BATCH_JOB_VARIABLE;
use saggar_jobs::engine::EngineRequest;
use saggar_project::KubernetesPoolSection;

use crate::manifests::pod::{
    STATE_DIR, container_security, device_toleration, empty_volume, objects_credentials, pod_name_variable,
    pod_security, secret_variable, secrets_key_variable, variable, volume_mount,
};
use crate::manifests::worker_labels;

/// The label by which Kueue knows the queue of a Job.
const KUEUE_QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The name of the container.
const CONTAINER: &str = "worker";
/// Longest name of a Job, in bytes: it is the value of a label of its pods.
const NAME_BYTES_MAX: usize = 63;
/// The exit codes after which the job is over, or would fail again: the plugin failed, the job was cancelled, timed out, was
/// interrupted too often or needs more memory, or the configuration is wrong.
const FINAL_EXIT_CODES: [i32; 6] = [20, 21, 22, 23, 24, 78];
/// The time in which a worker that is asked to end saves the state of its job, in seconds.
const GRACE_SECONDS: i64 = 30;
/// How long a finished Job remains, in seconds, so that its events can be read.
const FINISHED_SECONDS: i32 = 3600;
/// The size of the local state and cache of a Job.
const CACHE_SIZE: &str = "20Gi";

/// What all Jobs of a pool have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesJobSettings {
    /// The pool's settings.
    pub pool: KubernetesPoolSection,
    /// The labels of the pool, which its workers offer.
    pub labels: BTreeMap<String, String>,
    /// Further variables of the workers, such as `SAGGAR_OBJECTS`. They contain no secrets.
    pub variables: BTreeMap<String, String>,
}

impl KubernetesJobSettings {
    /// Returns the Job of an attempt.
    pub(crate) fn job(&self, request: &EngineRequest) -> Job {
        let pool = &self.pool;
        let mut labels = worker_labels();
        if let Some(queue) = &pool.queue {
            labels.insert(KUEUE_QUEUE_LABEL.to_owned(), queue.clone());
        }
        let about = [("saggar/job", request.job.clone()), ("saggar/attempt", request.attempt.to_string())];
        let annotations = about.map(|(name, value)| (name.to_owned(), value)).into();
        let metadata = ObjectMeta {
            name: Some(job_name(&request.engine_job())),
            namespace: Some(pool.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let several = i32::try_from(request.hosts).ok().filter(|hosts| *hosts > 1);
        let spec = JobSpec {
            // Kueue starts it. Without Kueue, nobody would.
            suspend: Some(pool.queue.is_some()),
            // The next attempt of a job has its own Job. Only pods that a disruption took away are replaced.
            backoff_limit: Some(0),
            // Each pod of an indexed Job gets its number in JOB_COMPLETION_INDEX.
            completion_mode: several.map(|_| "Indexed".to_owned()),
            completions: several,
            parallelism: several,
            pod_failure_policy: Some(failure_policy()),
            ttl_seconds_after_finished: Some(FINISHED_SECONDS),
            template: self.pod_template(request),
            ..JobSpec::default()
        };
        Job { metadata, spec: Some(spec), status: None }
    }

    fn pod_template(&self, request: &EngineRequest) -> PodTemplateSpec {
        let resources: Vec<&String> = self.pool.limits.keys().collect();
        let spec = PodSpec {
            restart_policy: Some("Never".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            security_context: Some(pod_security(None)),
            tolerations: Some(resources.iter().map(|resource| device_toleration(resource)).collect()),
            volumes: Some(vec![empty_volume("state", CACHE_SIZE), empty_volume("tmp", "2Gi")]),
            containers: vec![self.container(request)],
            ..PodSpec::default()
        };
        let metadata = ObjectMeta { labels: Some(worker_labels()), ..ObjectMeta::default() };
        PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
    }

    fn container(&self, request: &EngineRequest) -> Container {
        let pool = &self.pool;
        let mut arguments = ["worker", "run", request.job.as_str()].map(str::to_owned).to_vec();
        arguments
            .extend(self.labels.iter().flat_map(|(name, value)| ["--label".to_owned(), format!("{name}={value}")]));
        Container {
            name: CONTAINER.to_owned(),
            image: Some(pool.image.clone()),
            args: Some(arguments),
            env: Some(self.env(request)),
            env_from: Some(objects_credentials(&pool.objects_secret)),
            resources: Some(self.resources()),
            security_context: Some(container_security()),
            volume_mounts: Some(vec![volume_mount("state", STATE_DIR), volume_mount("tmp", "/tmp")]),
            ..Container::default()
        }
    }

    fn env(&self, request: &EngineRequest) -> Vec<EnvVar> {
        let mut env = vec![
            variable("SAGGAR_HOME", STATE_DIR),
            secret_variable("SAGGAR_DATABASE_URL", &self.pool.database_secret, "url"),
            secrets_key_variable(&self.pool.database_secret),
            pod_name_variable("SAGGAR_SERVER_NAME"),
        ];
        if request.hosts > 1 {
            env.push(variable(BATCH_JOB_VARIABLE, &job_name(&request.engine_job())));
        }
        env.extend(self.variables.iter().map(|(name, value)| variable(name, value)));
        if self.pool.limits.keys().any(|resource| resource.starts_with("nvidia.com/")) {
            // The graphics capability gives the container the Vulkan driver.
            env.push(variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility,graphics"));
        }
        env
    }

    fn resources(&self) -> ResourceRequirements {
        let pool = &self.pool;
        let asked = [("cpu", &pool.cpu), ("memory", &pool.memory)];
        let asked = asked.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Quantity(value.clone()?))));
        let mut limits: BTreeMap<String, Quantity> =
            pool.limits.iter().map(|(name, count)| (name.clone(), Quantity(count.to_string()))).collect();
        limits.extend(pool.memory.iter().map(|memory| ("memory".to_owned(), Quantity(memory.clone()))));
        ResourceRequirements {
            requests: Some(asked.collect()),
            limits: Some(limits),
            ..ResourceRequirements::default()
        }
    }
}

/// Returns what the failure of a pod means: a disruption, such as a node that is emptied, does not count, and after a final
/// exit code no other pod is started.
fn failure_policy() -> PodFailurePolicy {
    let disruption = PodFailurePolicyOnPodConditionsPattern {
        type_: "DisruptionTarget".to_owned(),
        status: Some("True".to_owned()),
    };
    let codes = PodFailurePolicyOnExitCodesRequirement {
        container_name: Some(CONTAINER.to_owned()),
        operator: "In".to_owned(),
        values: FINAL_EXIT_CODES.to_vec(),
    };
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                action: "Ignore".to_owned(),
                on_pod_conditions: Some(vec![disruption]),
                ..PodFailurePolicyRule::default()
            },
            PodFailurePolicyRule {
                action: "FailJob".to_owned(),
                on_exit_codes: Some(codes),
                ..PodFailurePolicyRule::default()
            },
        ],
    }
}

/// Returns the name of a Job for the name of an engine job, whose jobs can have longer names and other characters.
pub(crate) fn job_name(engine_job: &str) -> String {
    let name: String =
        engine_job.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    if name == engine_job && name.len() <= NAME_BYTES_MAX {
        return name;
    }
    // Different engine jobs keep different names.
    let hash = format!("-{:016x}", fnv1a(engine_job.as_bytes()));
    let prefix: String = name.chars().take(NAME_BYTES_MAX - hash.len()).collect();
    format!("{}{hash}", prefix.trim_end_matches('-'))
}

/// The hash FNV-1a with 64 bits, which is the same in every version of this program. Source: RFC 9923.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kubernetes_engine::tests::{pool, request};

    fn job(pool: KubernetesPoolSection) -> Value {
        let variables = BTreeMap::from([("SAGGAR_OBJECTS".to_owned(), "s3://models/saggar".to_owned())]);
        let labels = BTreeMap::from([("gpu".to_owned(), "a100".to_owned())]);
        serde_json::to_value(KubernetesJobSettings { pool, labels, variables }.job(&request())).unwrap()
    }

    #[test]
    fn a_job_with_several_hosts_is_an_indexed_job() {
        let settings = KubernetesJobSettings { pool: pool(), labels: BTreeMap::new(), variables: BTreeMap::new() };
        let job = serde_json::to_value(settings.job(&EngineRequest { hosts: 3, ..request() })).unwrap();
        let spec = &job["spec"];
        assert_eq!(
            (&spec["completionMode"], &spec["completions"], &spec["parallelism"]),
            (&json!("Indexed"), &json!(3), &json!(3))
        );
        let env = spec["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        assert!(env.contains(&json!({ "name": "SAGGAR_BATCH_JOB", "value": "saggar-digits-7-2" })), "{env:?}");
        let one = serde_json::to_value(settings.job(&request())).unwrap();
        assert!(one["spec"]["completionMode"].is_null() && !one.to_string().contains("SAGGAR_BATCH_JOB"));
    }

    #[test]
    fn a_job_runs_one_attempt_without_a_secret_in_it() {
        let limits = BTreeMap::from([("nvidia.com/gpu".to_owned(), 1)]);
        let job = job(KubernetesPoolSection { limits, memory: Some("8Gi".to_owned()), ..pool() });
        assert_eq!(job["metadata"]["name"], "saggar-digits-7-2");
        assert_eq!(job["spec"]["backoffLimit"], 0);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!((&pod["restartPolicy"], &pod["terminationGracePeriodSeconds"]), (&json!("Never"), &json!(30)));
        let container = &pod["containers"][0];
        assert_eq!(container["args"], json!(["worker", "run", "digits-7", "--label", "gpu=a100"]));
        let secret = json!({ "secretKeyRef": { "key": "url", "name": "saggar-database" } });
        let env = container["env"].as_array().unwrap();
        assert!(env.contains(&json!({ "name": "SAGGAR_DATABASE_URL", "valueFrom": secret })), "{env:?}");
        assert!(env.contains(&json!({ "name": "SAGGAR_OBJECTS", "value": "s3://models/saggar" })), "{env:?}");
        assert_eq!(container["resources"]["limits"], json!({ "memory": "8Gi", "nvidia.com/gpu": "1" }));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(pod["tolerations"][0]["key"], "nvidia.com/gpu");
    }

    #[test]
    fn final_exit_codes_fail_a_job_and_disruptions_are_ignored() {
        let rules = job(pool())["spec"]["podFailurePolicy"]["rules"].clone();
        assert_eq!(rules[0]["action"], "Ignore");
        assert_eq!(rules[0]["onPodConditions"], json!([{ "type": "DisruptionTarget", "status": "True" }]));
        assert_eq!((&rules[1]["action"], &rules[1]["onExitCodes"]["operator"]), (&json!("FailJob"), &json!("In")));
        assert_eq!(rules[1]["onExitCodes"]["values"], json!([20, 21, 22, 23, 24, 78]));
    }

    #[test]
    fn a_job_of_a_queue_waits_for_kueue() {
        let label = |job: &Value| job["metadata"]["labels"][KUEUE_QUEUE_LABEL].clone();
        let free = job(pool());
        assert_eq!((&free["spec"]["suspend"], label(&free)), (&json!(false), Value::Null));
        let queued = job(KubernetesPoolSection { queue: Some("team-a".to_owned()), ..pool() });
        assert_eq!((&queued["spec"]["suspend"], label(&queued)), (&json!(true), json!("team-a")));
    }

    #[test]
    fn names_of_jobs_are_valid_and_differ() {
        assert_eq!(job_name("saggar-digits-7-1"), "saggar-digits-7-1");
        let names = ["saggar-my_job-1", "saggar-my.job-1", &format!("saggar-{}-1", "x".repeat(80))].map(job_name);
        for name in &names {
            assert!(crate::deploy_options::is_dns_label(name, NAME_BYTES_MAX), "{name}");
        }
        assert_ne!(names[0], names[1]);
    }
}
