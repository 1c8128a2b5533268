//! What the pods may do at the API server: nothing, unless servers start Kubernetes Jobs.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::{PodComponent, metadata};
use crate::deploy_options::DeployOptions;

pub(super) fn service_account(options: &DeployOptions) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(options, PodComponent::Server),
        // Only servers that start Jobs mount a token, by their pod's own setting.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// Returns the role of servers that start Jobs: what the engine does, and nothing else.
pub(super) fn job_role(options: &DeployOptions) -> Role {
    let rule = PolicyRule {
        api_groups: Some(vec!["batch".to_owned()]),
        resources: Some(vec!["jobs".to_owned()]),
        verbs: ["create", "get", "delete"].map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    };
    Role { metadata: metadata(options, PodComponent::Server), rules: Some(vec![rule]) }
}

pub(super) fn job_role_binding(options: &DeployOptions) -> RoleBinding {
    let role_ref = RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "Role".to_owned(),
        name: options.name.clone(),
    };
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: options.name.clone(),
        namespace: Some(options.namespace.clone()),
        ..Subject::default()
    };
    RoleBinding { metadata: metadata(options, PodComponent::Server), role_ref, subjects: Some(vec![subject]) }
}
