//! The table of effects: the scope that each needs, and whose project is checked.

use crate::keys::Scope;

/// A kind of thing that effects are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// A prediction. It belongs to the key that made it, whatever the projects.
    Prediction,
    /// A plugin. Plugins are shared by all projects.
    Plugin,
    /// The server itself.
    Server,
}

impl Kind {
    /// Its name in messages: `dataset`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Dataset => "dataset",
            Kind::Secret => "secret",
            Kind::Job => "job",
            Kind::Schedule => "schedule",
            Kind::Prediction => "prediction",
            Kind::Plugin => "plugin",
            Kind::Server => "server",
        }
    }
}

/// Something that is done to a thing, or read of it, whichever way the wish came: a route, a header, a job, a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask a model for a prediction.
    Predict,
    /// Read a prediction: its input, its output, its events.
    ReadPrediction,
    /// Cancel a prediction.
    CancelPrediction,
    /// Make a version of a model, which serves from then on where the model follows its newest version.
    PublishModel,
    /// Load or warm a model.
    LoadModel,
    /// Unload a model, or have it unloaded sooner than its settings say.
    UnloadModel,
    /// Choose which versions of a model answer: default, aliases, shares of the traffic, shadow.
    DeployModel,
    /// Replace a model's settings.
    ConfigureModel,
    /// Remove a version of a model, or all of them.
    DeleteModel,
    /// Read a model's weights in a job, or begin a training with them.
    ReadWeights,
    /// Read a dataset, also by mounting it.
    ReadDataset,
    /// Make a version of a dataset.
    PushDataset,
    /// Delete a version of a dataset.
    DeleteDataset,
    /// See the names of secrets.
    ListSecrets,
    /// Have a job read a secret's value.
    UseSecret,
    /// Set or delete a secret.
    SetSecret,
    /// See a job: its record, log, series, events, outputs and checkpoints.
    ReadJob,
    /// Submit a job, or restart one as a new job.
    SubmitJob,
    /// Stop or preempt a job, or have it save a checkpoint.
    ControlJob,
    /// Delete a job with all it left.
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
    /// Say which projects a model or a dataset belongs to.
    AssignProjects,
    /// Do what no line of the table of routes names.
    Administer,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    name: &'static str,
    scope: Scope,
    kind: Kind,
    /// Whether a key of some projects may do it to a thing that belongs to no project.
    shared: bool,
}

const fn row(name: &'static str, scope: Scope, kind: Kind, shared: bool) -> Row {
    Row { name, scope, kind, shared }
}

impl Effect {
    /// Every effect.
    pub const ALL: [Effect; 27] = [
        Effect::Predict,
        Effect::ReadPrediction,
        Effect::CancelPrediction,
        Effect::PublishModel,
        Effect::LoadModel,
        Effect::UnloadModel,
        Effect::DeployModel,
        Effect::ConfigureModel,
        Effect::DeleteModel,
        Effect::ReadWeights,
        Effect::ReadDataset,
        Effect::PushDataset,
        Effect::DeleteDataset,
        Effect::ListSecrets,
        Effect::UseSecret,
        Effect::SetSecret,
        Effect::ReadJob,
        Effect::SubmitJob,
        Effect::ControlJob,
        Effect::DeleteJob,
        Effect::SetSchedule,
        Effect::ReadPlugin,
        Effect::UploadPlugin,
        Effect::ReadMetrics,
        Effect::ManageKeys,
        Effect::AssignProjects,
        Effect::Administer,
    ];

    /// The table: every effect with its name, the scope that it needs, the kind of thing whose project is checked, and
    /// whether a key of some projects may do it to a thing that belongs to no project.
    const fn row(self) -> Row {
        match self {
            Effect::Predict => row("model.predict", Scope::Predict, Kind::Model, true),
            Effect::ReadPrediction => row("prediction.read", Scope::Predict, Kind::Prediction, false),
            Effect::CancelPrediction => row("prediction.cancel", Scope::Predict, Kind::Prediction, false),
            Effect::PublishModel => row("model.publish", Scope::ModelsWrite, Kind::Model, false),
            Effect::LoadModel => row("model.load", Scope::ModelsWrite, Kind::Model, false),
            Effect::UnloadModel => row("model.unload", Scope::ModelsWrite, Kind::Model, false),
            Effect::DeployModel => row("model.deploy", Scope::ModelsWrite, Kind::Model, false),
            Effect::ConfigureModel => row("model.configure", Scope::ModelsWrite, Kind::Model, false),
            Effect::DeleteModel => row("model.remove", Scope::ModelsWrite, Kind::Model, false),
            Effect::ReadWeights => row("model.read_weights", Scope::JobsWrite, Kind::Model, true),
            Effect::ReadDataset => row("dataset.read", Scope::JobsRead, Kind::Dataset, true),
            Effect::PushDataset => row("dataset.push", Scope::JobsWrite, Kind::Dataset, false),
            Effect::DeleteDataset => row("dataset.remove", Scope::JobsWrite, Kind::Dataset, false),
            Effect::ListSecrets => row("secret.list", Scope::JobsWrite, Kind::Secret, false),
            Effect::UseSecret => row("secret.use", Scope::JobsWrite, Kind::Secret, false),
            Effect::SetSecret => row("secret.set", Scope::Admin, Kind::Secret, false),
            Effect::ReadJob => row("job.read", Scope::JobsRead, Kind::Job, false),
            Effect::SubmitJob => row("job.submit", Scope::JobsWrite, Kind::Job, false),
            Effect::ControlJob => row("job.control", Scope::JobsWrite, Kind::Job, false),
            Effect::DeleteJob => row("job.remove", Scope::JobsWrite, Kind::Job, false),
            Effect::SetSchedule => row("schedule.set", Scope::JobsWrite, Kind::Schedule, false),
            Effect::ReadPlugin => row("plugin.read", Scope::JobsRead, Kind::Plugin, true),
            Effect::UploadPlugin => row("plugin.upload", Scope::JobsWrite, Kind::Plugin, true),
            Effect::ReadMetrics => row("metrics.read", Scope::MetricsRead, Kind::Server, false),
            Effect::ManageKeys => row("key.manage", Scope::Admin, Kind::Server, false),
            Effect::AssignProjects => row("projects.assign", Scope::Admin, Kind::Server, false),
            Effect::Administer => row("administer", Scope::Admin, Kind::Server, false),
        }
    }

    /// Its name, also in the audit log: `model.publish`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The scope that a key needs for it.
    pub fn scope(self) -> Scope {
        self.row().scope
    }

    /// The kind of thing whose project is checked.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Whether a key of some projects may do it to a thing that belongs to no project.
    pub fn is_open_to_all(self) -> bool {
        self.row().shared
    }
}
