//! What the pods of servers and workers have in common: no rights, a read-only file system, and a volume for their state.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile,
    SecretEnvSource, SecretKeySelector, SecurityContext, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::server_settings::SETTINGS_FILE;
use super::{PodComponent, selector, selector_labels};
use crate::deploy_options::DeployOptions;

/// The user and group of the processes. Any number that is not root does.
const USER_ID: i64 = 10001;
/// Where the state directory is.
pub(crate) const STATE_DIR: &str = "/var/lib/saggar";
/// Where the project file is.
pub(super) const SETTINGS_DIR: &str = "/etc/saggar";

/// The parts in which the pods of servers and workers differ.
pub(super) struct PodParts {
    pub(super) component: PodComponent,
    pub(super) container: Container,
    pub(super) mounts_token: bool,
    pub(super) grace_seconds: i64,
}

/// Returns the template of the pods of a component.
pub(super) fn pod_template(options: &DeployOptions, parts: PodParts) -> PodTemplateSpec {
    let PodParts { component, container, mounts_token, grace_seconds } = parts;
    let spec = PodSpec {
        service_account_name: Some(options.name.clone()),
        automount_service_account_token: Some(mounts_token),
        // Variables for each service of the namespace could look like settings of the server.
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(grace_seconds),
        security_context: Some(pod_security(supplemental_groups(options, component))),
        topology_spread_constraints: Some(spread(options, component)),
        volumes: Some(volumes(options)),
        containers: vec![container],
        ..PodSpec::default()
    };
    let metadata = ObjectMeta { labels: Some(selector_labels(options, component)), ..ObjectMeta::default() };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

/// Returns the container of a component, with its arguments, variables and volumes.
pub(super) fn container(options: &DeployOptions, arguments: &[&str], env: Vec<EnvVar>) -> Container {
    Container {
        name: "saggar".to_owned(),
        image: Some(options.image.clone()),
        args: Some(arguments.iter().map(|&argument| argument.to_owned()).collect()),
        env: Some(env),
        security_context: Some(container_security()),
        volume_mounts: Some(volume_mounts()),
        ..Container::default()
    }
}

/// Returns the variables of the state directory, the database and the bucket.
pub(super) fn storage_env(options: &DeployOptions) -> Vec<EnvVar> {
    let mut env = vec![
        variable("SAGGAR_HOME", STATE_DIR),
        secret_variable("SAGGAR_DATABASE_URL", &options.database_secret, "url"),
        secrets_key_variable(&options.database_secret),
        variable("SAGGAR_OBJECTS", &options.objects),
    ];
    env.extend(options.objects_endpoint.as_deref().map(|url| variable("AWS_ENDPOINT_URL", url)));
    env.extend(options.objects_region.as_deref().map(|region| variable("AWS_REGION", region)));
    env
}

/// Returns the secret with the variables of the bucket's credentials. It is optional, because a cloud can give the pods an
/// identity instead.
pub(crate) fn objects_credentials(secret: &str) -> Vec<EnvFromSource> {
    let secret_ref = SecretEnvSource { name: secret.to_owned(), optional: Some(true) };
    vec![EnvFromSource { secret_ref: Some(secret_ref), ..EnvFromSource::default() }]
}

pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

pub(crate) fn secret_variable(name: &str, secret: &str, key: &str) -> EnvVar {
    let selector = SecretKeySelector { name: secret.to_owned(), key: key.to_owned(), optional: None };
    let source = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// Returns the variable with the key that seals secrets of jobs. Without it in the secret, each server has its own secrets.
pub(crate) fn secrets_key_variable(secret: &str) -> EnvVar {
    let (name, key) = (secret.to_owned(), "secrets-key".to_owned());
    let selector = SecretKeySelector { name, key, optional: Some(true) };
    let source = EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() };
    EnvVar { name: "SAGGAR_SECRETS_KEY".to_owned(), value: None, value_from: Some(source) }
}

/// Returns a variable with the pod's name.
pub(crate) fn pod_name_variable(name: &str) -> EnvVar {
    let field_ref = ObjectFieldSelector { field_path: "metadata.name".to_owned(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field_ref), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// Returns the toleration of nodes that keep other pods away from their devices.
pub(crate) fn device_toleration(resource: &str) -> Toleration {
    Toleration {
        key: Some(resource.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    }
}

/// Returns requests and limits. Memory has the same request and limit, so that a node never promises it twice. The
/// processor has only a request, because a limit would slow the process down while processors are free.
pub(super) fn resources(cpu: &str, memory: &str, limits: &[(&str, u32)]) -> ResourceRequirements {
    let quantity = |(name, value): (&str, &str)| (name.to_owned(), Quantity(value.to_owned()));
    let requests = BTreeMap::from([("cpu", cpu), ("memory", memory)].map(quantity));
    let mut limited = BTreeMap::from([("memory", memory)].map(quantity));
    limited.extend(limits.iter().map(|(name, count)| ((*name).to_owned(), Quantity(count.to_string()))));
    ResourceRequirements { requests: Some(requests), limits: Some(limited), ..ResourceRequirements::default() }
}

/// Returns the groups of a component besides its own.
fn supplemental_groups(options: &DeployOptions, component: PodComponent) -> Option<Vec<i64>> {
    let groups = &options.supplemental_groups;
    (component == PodComponent::Worker && !groups.is_empty()).then(|| groups.clone())
}

/// Returns the security of pods: no root, and only the usual calls of the system.
pub(crate) fn pod_security(supplemental_groups: Option<Vec<i64>>) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER_ID),
        run_as_group: Some(USER_ID),
        fs_group: Some(USER_ID),
        // Without it, a volume with many files delays every start.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        supplemental_groups,
        ..PodSecurityContext::default()
    }
}

/// Returns the security of containers: no capability, and a file system that cannot be written.
pub(crate) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

/// Returns the preference for pods of a component on different machines and in different zones.
fn spread(options: &DeployOptions, component: PodComponent) -> Vec<TopologySpreadConstraint> {
    let over = |topology: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(selector(options, component)),
        ..TopologySpreadConstraint::default()
    };
    vec![over("kubernetes.io/hostname"), over("topology.kubernetes.io/zone")]
}

/// Returns a volume that begins empty and ends with its pod.
pub(crate) fn empty_volume(name: &str, size: &str) -> Volume {
    let size_limit = Some(Quantity(size.to_owned()));
    let empty_dir = Some(EmptyDirVolumeSource { size_limit, ..EmptyDirVolumeSource::default() });
    Volume { name: name.to_owned(), empty_dir, ..Volume::default() }
}

/// Returns where a volume is in the pods.
pub(crate) fn volume_mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn volumes(options: &DeployOptions) -> Vec<Volume> {
    let settings = ConfigMapVolumeSource { name: options.name.clone(), ..ConfigMapVolumeSource::default() };
    vec![
        empty_volume("state", &options.cache_size),
        empty_volume("tmp", "2Gi"),
        Volume { name: "settings".to_owned(), config_map: Some(settings), ..Volume::default() },
    ]
}

fn volume_mounts() -> Vec<VolumeMount> {
    let settings = VolumeMount { read_only: Some(true), ..volume_mount("settings", SETTINGS_DIR) };
    vec![volume_mount("state", STATE_DIR), volume_mount("tmp", "/tmp"), settings]
}

/// Returns the path of the project file in the pods.
pub(super) fn settings_path() -> String {
    format!("{SETTINGS_DIR}/{SETTINGS_FILE}")
}
