//! The table of effects: the scope that each requires, and the kind of thing whose project is checked.

use crate::keys::KeyScope;

/// A kind of thing that actions apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// A model with all its versions.
    Model,
    /// A dataset with all its versions.
    Dataset,
    /// A secret.
    Secret,
    /// A job with its logs, outputs and checkpoints. It has one project.
    Job,
    /// A schedule. It has the project of its jobs.
    Schedule,
    /// A prediction. It belongs to the key that made it, whatever its projects.
    Prediction,
    /// A plugin. Plugins are shared by all projects.
    Plugin,
    /// The server itself.
    Server,
}

impl ResourceKind {
    /// Returns its name in messages, such as `dataset`.
    pub fn name(self) -> &'static str {
        match self {
            ResourceKind::Model => "model",
            ResourceKind::Dataset => "dataset",
            ResourceKind::Secret => "secret",
            ResourceKind::Job => "job",
            ResourceKind::Schedule => "schedule",
            ResourceKind::Prediction => "prediction",
            ResourceKind::Plugin => "plugin",
            ResourceKind::Server => "server",
        }
    }
}

/// An action on a thing, or a read of it, whether it is requested by a route, a header, a job or a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessAction {
    /// Ask a model for a prediction.
    Predict,
    /// Read a prediction: its input, its output, its events.
    ReadPrediction,
    /// Cancel a prediction.
    CancelPrediction,
    /// Create a version of a model. It is served from then on if the model follows its newest version.
    PublishModel,
    /// Load or warm a model.
    LoadModel,
    /// Unload a model, or make it be unloaded sooner than its settings say.
    UnloadModel,
    /// Choose which versions of a model serve: default, aliases, traffic shares, shadow.
    DeployModel,
    /// Replace a model's settings.
    ConfigureModel,
    /// Remove a version of a model, or all of them.
    DeleteModel,
    /// Read a model's weights in a job, or initialize a training with them.
    ReadWeights,
    /// Read a dataset, also by mounting it.
    ReadDataset,
    /// Create a version of a dataset.
    PushDataset,
    /// Delete a version of a dataset.
    DeleteDataset,
    /// See the names of secrets.
    ListSecrets,
    /// Let a job read a secret's value.
    UseSecret,
    /// Set or delete a secret.
    SetSecret,
    /// See a job: its record, log, series, events, outputs and checkpoints.
    ReadJob,
    /// Submit a job, or restart one as a new job.
    SubmitJob,
    /// Stop or preempt a job, or request a checkpoint.
    ControlJob,
    /// Delete a job and all its data.
    DeleteJob,
    /// Set or delete a schedule.
    SetSchedule,
    /// See plugins.
    ReadPlugin,
    /// Upload a plugin, or have it marked.
    UploadPlugin,
    /// Read the metrics of the whole server.
    ReadMetrics,
    /// See, make and revoke keys.
    ManageKeys,
    /// Read the audit log.
    ReadAudit,
    /// Let hosts join the workers, and drain hosts.
    ManageWorkers,
    /// Set which projects a model or a dataset belongs to.
    AssignProjects,
    /// Any route that the table of routes does not list.
    Administer,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActionRule {
    name: &'static str,
    scope: KeyScope,
    kind: ResourceKind,
    /// Whether a key limited to projects can do it to a thing that belongs to no project.
    shared: bool,
}

const fn action_rule(name: &'static str, scope: KeyScope, kind: ResourceKind, shared: bool) -> ActionRule {
    ActionRule { name, scope, kind, shared }
}

impl AccessAction {
    /// Every effect.
    pub const ALL: [AccessAction; 29] = [
        AccessAction::Predict,
        AccessAction::ReadPrediction,
        AccessAction::CancelPrediction,
        AccessAction::PublishModel,
        AccessAction::LoadModel,
        AccessAction::UnloadModel,
        AccessAction::DeployModel,
        AccessAction::ConfigureModel,
        AccessAction::DeleteModel,
        AccessAction::ReadWeights,
        AccessAction::ReadDataset,
        AccessAction::PushDataset,
        AccessAction::DeleteDataset,
        AccessAction::ListSecrets,
        AccessAction::UseSecret,
        AccessAction::SetSecret,
        AccessAction::ReadJob,
        AccessAction::SubmitJob,
        AccessAction::ControlJob,
        AccessAction::DeleteJob,
        AccessAction::SetSchedule,
        AccessAction::ReadPlugin,
        AccessAction::UploadPlugin,
        AccessAction::ReadMetrics,
        AccessAction::ManageKeys,
        AccessAction::ReadAudit,
        AccessAction::ManageWorkers,
        AccessAction::AssignProjects,
        AccessAction::Administer,
    ];

    /// Returns the row of this action: its name, the scope that it requires, the kind of thing whose project is
    /// checked, and whether a key limited to projects can do it to a thing that belongs to no project.
    const fn rule(self) -> ActionRule {
        match self {
            AccessAction::Predict => action_rule("model.predict", KeyScope::Predict, ResourceKind::Model, true),
            AccessAction::ReadPrediction => {
                action_rule("prediction.read", KeyScope::Predict, ResourceKind::Prediction, false)
            }
            AccessAction::CancelPrediction => {
                action_rule("prediction.cancel", KeyScope::Predict, ResourceKind::Prediction, false)
            }
            AccessAction::PublishModel => {
                action_rule("model.publish", KeyScope::ModelsWrite, ResourceKind::Model, false)
            }
            AccessAction::LoadModel => action_rule("model.load", KeyScope::ModelsWrite, ResourceKind::Model, false),
            AccessAction::UnloadModel => action_rule("model.unload", KeyScope::ModelsWrite, ResourceKind::Model, false),
            AccessAction::DeployModel => action_rule("model.deploy", KeyScope::ModelsWrite, ResourceKind::Model, false),
            AccessAction::ConfigureModel => {
                action_rule("model.configure", KeyScope::ModelsWrite, ResourceKind::Model, false)
            }
            AccessAction::DeleteModel => action_rule("model.remove", KeyScope::ModelsWrite, ResourceKind::Model, false),
            AccessAction::ReadWeights => {
                action_rule("model.read_weights", KeyScope::JobsWrite, ResourceKind::Model, true)
            }
            AccessAction::ReadDataset => action_rule("dataset.read", KeyScope::JobsRead, ResourceKind::Dataset, true),
            AccessAction::PushDataset => action_rule("dataset.push", KeyScope::JobsWrite, ResourceKind::Dataset, false),
            AccessAction::DeleteDataset => {
                action_rule("dataset.remove", KeyScope::JobsWrite, ResourceKind::Dataset, false)
            }
            AccessAction::ListSecrets => action_rule("secret.list", KeyScope::JobsWrite, ResourceKind::Secret, false),
            AccessAction::UseSecret => action_rule("secret.use", KeyScope::JobsWrite, ResourceKind::Secret, false),
            AccessAction::SetSecret => action_rule("secret.set", KeyScope::Admin, ResourceKind::Secret, false),
            AccessAction::ReadJob => action_rule("job.read", KeyScope::JobsRead, ResourceKind::Job, false),
            AccessAction::SubmitJob => action_rule("job.submit", KeyScope::JobsWrite, ResourceKind::Job, false),
            AccessAction::ControlJob => action_rule("job.control", KeyScope::JobsWrite, ResourceKind::Job, false),
            AccessAction::DeleteJob => action_rule("job.remove", KeyScope::JobsWrite, ResourceKind::Job, false),
            AccessAction::SetSchedule => {
                action_rule("schedule.set", KeyScope::JobsWrite, ResourceKind::Schedule, false)
            }
            AccessAction::ReadPlugin => action_rule("plugin.read", KeyScope::JobsRead, ResourceKind::Plugin, true),
            AccessAction::UploadPlugin => action_rule("plugin.upload", KeyScope::JobsWrite, ResourceKind::Plugin, true),
            AccessAction::ReadMetrics => {
                action_rule("metrics.read", KeyScope::MetricsRead, ResourceKind::Server, false)
            }
            AccessAction::ManageKeys => action_rule("key.manage", KeyScope::Admin, ResourceKind::Server, false),
            AccessAction::ReadAudit => action_rule("audit.read", KeyScope::Admin, ResourceKind::Server, false),
            AccessAction::ManageWorkers => action_rule("worker.manage", KeyScope::Admin, ResourceKind::Server, false),
            AccessAction::AssignProjects => {
                action_rule("projects.assign", KeyScope::Admin, ResourceKind::Server, false)
            }
            AccessAction::Administer => action_rule("administer", KeyScope::Admin, ResourceKind::Server, false),
        }
    }

    /// Returns its name, also used in the audit log, such as `model.publish`.
    pub fn name(self) -> &'static str {
        self.rule().name
    }

    /// Returns the scope that it requires.
    pub fn scope(self) -> KeyScope {
        self.rule().scope
    }

    /// Returns the kind of thing whose project is checked.
    pub fn kind(self) -> ResourceKind {
        self.rule().kind
    }

    /// Returns whether a key limited to projects can do it to a thing that belongs to no project.
    pub fn is_allowed_without_project(self) -> bool {
        self.rule().shared
    }
}
