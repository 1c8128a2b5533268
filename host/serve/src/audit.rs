//! The audit log, which records who changed what: an append-only file of JSON lines. Each line also goes to the
//! server's log.
//!
//! A handler takes an [`Actor`] as an argument and records its action after it has run, whether it succeeded or was
//! refused. A line is written with one call and survives the process. It is not synced, so a power cut can lose the
//! last lines. Past [`AUDIT_BYTES_MAX`] the log is renamed to `audit.log.1`, and older ones to the next number.
//!
//! Servers with the same records have each other's lines: after its file, a line is written to the records
//! (`shared_lines`), with the time by the database's clock.

mod file_lines;
mod shared_lines;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_clock::{Clock, UnixMillis};
use saggar_jobs::{JobEffect, JobError};
use saggar_store::StoreError;
use saggar_store::records::{AuditFilter, AuditRecords, NewAuditRow, RecordedAuditRow};
use serde::{Serialize, Serializer};

use crate::access::Actor;
use crate::error::ApiError;
use crate::limits::{AUDIT_BYTES_MAX, AUDIT_FIELD_CHARS_MAX, AUDIT_FILES_MAX};
use shared_lines::SharedAuditLines;

/// An audited action. The names are a closed set, so that the log can be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditAction {
    /// A version was loaded.
    ModelLoad,
    /// A version was unloaded.
    ModelUnload,
    /// A model was warmed.
    ModelWarm,
    /// A version became the default.
    ModelPromote,
    /// The default before became the default again.
    ModelRollback,
    /// An alias was pointed at a version.
    ModelAlias,
    /// An alias was removed.
    ModelUnalias,
    /// The traffic shares were changed.
    ModelTraffic,
    /// The shadow was changed.
    ModelShadow,
    /// A model's configuration was replaced.
    ModelConfigure,
    /// A version of a model, or the model, was removed.
    ModelRemove,
    /// A model version was imported from a file.
    ModelImport,
    /// A model version was pushed: a plugin with weights made elsewhere.
    ModelPush,
    /// A model version was imported from a bundle.
    ModelBundle,
    /// A plugin was marked as resumable.
    PluginMark,
    /// A job was requested to stop.
    JobStop,
    /// A job was preempted.
    JobPreempt,
    /// A job was asked to pause.
    JobPause,
    /// A paused job was allowed to continue.
    JobResume,
    /// A sweep was created.
    SweepCreate,
    /// A sweep was stopped.
    SweepStop,
    /// A stopped sweep was resumed.
    SweepResume,
    /// The result of a sweep's best trial was published.
    SweepPublish,
    /// A job and its files were removed.
    JobRemove,
    /// The tags or the note of a job were changed.
    JobAnnotate,
    /// The address of a notebook, with its token, was given.
    NotebookOpen,
    /// A schedule was set.
    ScheduleSet,
    /// A schedule was removed.
    ScheduleRemove,
    /// A secret was set.
    SecretSet,
    /// A secret was removed.
    SecretRemove,
    /// A model version was made from a plugin and existing weights.
    ModelPublish,
    /// A model's projects were assigned.
    ModelAssign,
    /// A request shortened the time for which a model stays loaded.
    ModelKeepAlive,
    /// A version of a dataset was created.
    DatasetPush,
    /// A version of a dataset was removed.
    DatasetRemove,
    /// A dataset's projects were assigned.
    DatasetAssign,
    /// A job was submitted.
    JobSubmit,
    /// A job was granted a secret.
    SecretUse,
    /// A pipeline run was started.
    PipelineRun,
    /// A pipeline run was requested to stop.
    PipelineStop,
    /// A step of a pipeline run was approved or rejected.
    PipelineApprove,
    /// A pipeline run was restarted.
    PipelineRestart,
    /// The record of a pipeline run was removed.
    PipelineRemove,
    /// A prediction was canceled.
    PredictionCancel,
    /// A key was created.
    KeyCreate,
    /// A key was revoked.
    KeyRevoke,
    /// A host was given the settings of a worker.
    WorkerJoin,
    /// A host was drained.
    WorkerDrain,
    /// A drained host was allowed to take jobs again.
    WorkerResume,
}

impl AuditAction {
    /// Returns the action's name, such as `model.promote`.
    pub fn name(self) -> &'static str {
        match self {
            AuditAction::ModelLoad => "model.load",
            AuditAction::ModelUnload => "model.unload",
            AuditAction::ModelWarm => "model.warm",
            AuditAction::ModelPromote => "model.promote",
            AuditAction::ModelRollback => "model.rollback",
            AuditAction::ModelAlias => "model.alias",
            AuditAction::ModelUnalias => "model.unalias",
            AuditAction::ModelTraffic => "model.traffic",
            AuditAction::ModelShadow => "model.shadow",
            AuditAction::ModelConfigure => "model.configure",
            AuditAction::ModelRemove => "model.remove",
            AuditAction::ModelImport => "model.import",
            AuditAction::ModelPush => "model.push",
            AuditAction::ModelBundle => "model.bundle",
            AuditAction::PluginMark => "plugin.mark",
            AuditAction::JobStop => "job.stop",
            AuditAction::JobPreempt => "job.preempt",
            AuditAction::JobPause => "job.pause",
            AuditAction::JobResume => "job.resume",
            AuditAction::SweepCreate => "sweep.create",
            AuditAction::SweepStop => "sweep.stop",
            AuditAction::SweepResume => "sweep.resume",
            AuditAction::SweepPublish => "sweep.publish",
            AuditAction::JobRemove => "job.remove",
            AuditAction::JobAnnotate => "job.annotate",
            AuditAction::NotebookOpen => "notebook.open",
            AuditAction::ScheduleSet => "schedule.set",
            AuditAction::ScheduleRemove => "schedule.remove",
            AuditAction::SecretSet => "secret.set",
            AuditAction::SecretRemove => "secret.remove",
            AuditAction::ModelPublish => "model.publish",
            AuditAction::ModelAssign => "model.assign",
            AuditAction::ModelKeepAlive => "model.keep_alive",
            AuditAction::DatasetPush => "dataset.push",
            AuditAction::DatasetRemove => "dataset.remove",
            AuditAction::DatasetAssign => "dataset.assign",
            AuditAction::JobSubmit => "job.submit",
            AuditAction::SecretUse => "secret.use",
            AuditAction::PipelineRun => "pipeline.run",
            AuditAction::PipelineStop => "pipeline.stop",
            AuditAction::PipelineApprove => "pipeline.approve",
            AuditAction::PipelineRestart => "pipeline.restart",
            AuditAction::PipelineRemove => "pipeline.remove",
            AuditAction::PredictionCancel => "prediction.cancel",
            AuditAction::KeyCreate => "key.create",
            AuditAction::KeyRevoke => "key.revoke",
            AuditAction::WorkerJoin => "worker.join",
            AuditAction::WorkerDrain => "worker.drain",
            AuditAction::WorkerResume => "worker.resume",
        }
    }
}

/// A line of the log.
#[derive(Serialize)]
struct AuditLine<'a> {
    /// The time in RFC 3339.
    at: String,
    who: String,
    request_id: &'a str,
    action: &'a str,
    #[serde(flatten)]
    subject: AuditSubject<'a>,
    detail: String,
    /// `ok`, `refused` or the code of an error.
    result: &'a str,
    /// The project, in lines of jobs and schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
}

/// The subject of an action. In JSON it is the member `kind` with the value `name`, such as `"model": "digits"`.
struct AuditSubject<'a> {
    kind: &'a str,
    name: String,
}

impl Serialize for AuditSubject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.kind, &self.name)])
    }
}

/// The audit log. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct AuditLog {
    shared: Arc<AuditLogInner>,
}

#[derive(Debug)]
struct AuditLogInner {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    bytes_max: u64,
    file: Mutex<Option<File>>,
    /// The lines of all servers, with the name of this one; `None` if the records have one server.
    shared: Option<(String, SharedAuditLines)>,
}

impl AuditLog {
    /// Creates a log at `path`. The file is created by the first write.
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> AuditLog {
        AuditLog::with_bytes_max(path, clock, AUDIT_BYTES_MAX)
    }

    fn with_bytes_max(path: impl Into<PathBuf>, clock: Arc<dyn Clock>, bytes_max: u64) -> AuditLog {
        let (path, file) = (path.into(), Mutex::new(None));
        AuditLog { shared: Arc::new(AuditLogInner { path, clock, bytes_max, file, shared: None }) }
    }

    /// Returns the log at the same path whose lines are also written to records, under the name of this server.
    ///
    /// # Errors
    /// Returns an I/O error if the system cannot start a thread.
    pub fn share(&self, records: Arc<dyn AuditRecords>, server: &str) -> io::Result<AuditLog> {
        let AuditLogInner { path, clock, bytes_max, .. } = &*self.shared;
        let inner = AuditLogInner {
            path: path.clone(),
            clock: Arc::clone(clock),
            bytes_max: *bytes_max,
            file: Mutex::new(None),
            shared: Some((server.to_owned(), SharedAuditLines::start(records)?)),
        };
        Ok(AuditLog { shared: Arc::new(inner) })
    }

    /// Waits until the records have all lines, for a time at most. Otherwise logs that they are only in the file.
    pub fn flush(&self, max: Duration) {
        if let Some((_, lines)) = &self.shared.shared
            && !lines.flush(max)
        {
            let path = self.shared.path.display();
            tracing::error!(%path, "the last lines of the audit log are not in the database, only in the file");
        }
    }

    /// Returns lines, newest first: of all servers, or of this server's files if its records are its own. Blocks.
    ///
    /// # Errors
    /// Returns `Job` if the records cannot be reached; an I/O error if a file cannot be read.
    pub fn list(&self, filter: &AuditFilter) -> Result<Vec<RecordedAuditRow>, ApiError> {
        match &self.shared.shared {
            Some((_, lines)) => Ok(lines.records().audit_lines(filter).map_err(JobError::from)?),
            None => Ok(file_lines::read_lines(&self.shared.path, filter).map_err(StoreError::io(&self.shared.path))?),
        }
    }

    /// Records that `actor` performed `action` or was refused. `subject` is the model or the key. `detail` is text for
    /// people, such as `version 3` or `canary 10`. Neither can contain a secret. Blocks for the duration of one file
    /// append. A failed write is logged in the server's log, which receives the line in any case.
    pub fn record<T>(
        &self,
        actor: &Actor,
        action: AuditAction,
        subject: &str,
        detail: &str,
        result: &Result<T, ApiError>,
    ) {
        let result = result.as_ref().map_or_else(|error| error.code().as_str(), |_| "ok");
        self.write(actor, action.name(), (subject, detail), None, result);
    }

    /// Records an action of a job or a schedule, performed or refused.
    pub fn record_effect(&self, effect: &JobEffect) {
        let actor = Actor::from_rights(&effect.rights);
        let result = if effect.is_done { "ok" } else { "refused" };
        let (subject, project) = ((effect.thing.as_str(), effect.detail.as_str()), Some(effect.project.as_str()));
        self.write(&actor, effect.effect.name(), subject, project, result);
    }

    fn write(&self, actor: &Actor, name: &str, of: (&str, &str), project: Option<&str>, result: &str) {
        let short = |text: &str| text.chars().take(AUDIT_FIELD_CHARS_MAX).collect::<String>();
        let (subject, detail) = (short(of.0), short(of.1));
        let who = actor.principal.to_string();
        tracing::info!(who, request_id = actor.request_id, action = name, subject, detail, result, "audit");
        let line = AuditLine {
            at: rfc3339(self.shared.clock.now_ms()),
            who: who.clone(),
            request_id: &actor.request_id,
            action: name,
            subject: AuditSubject { kind: name.split('.').next().unwrap_or_default(), name: subject.clone() },
            detail: detail.clone(),
            result,
            project,
        };
        let line = serde_json::to_string(&line).expect("a line has text as keys");
        if let Err(error) = self.append(&format!("{line}\n")) {
            tracing::error!(%error, path = %self.shared.path.display(), "the audit log cannot be written");
        }
        if let Some((server, lines)) = &self.shared.shared {
            lines.send(NewAuditRow {
                age_ms: 0,
                server: server.clone(),
                actor: who,
                request_id: actor.request_id.clone(),
                action: name.to_owned(),
                subject,
                detail,
                result: result.to_owned(),
                project: project.unwrap_or_default().to_owned(),
            });
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut held = self.shared.file.lock();
        let file = match &mut *held {
            Some(file) => file,
            None => held.insert(open_for_append(&self.shared.path)?),
        };
        file.write_all(line.as_bytes())?;
        if file.metadata()?.len() > self.shared.bytes_max {
            *held = None;
            rotate_log(&self.shared.path)?;
        }
        Ok(())
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Renames `audit.log` to `audit.log.1`, that to `.2` and so on, and deletes the last one.
fn rotate_log(path: &Path) -> io::Result<()> {
    let numbered = |number: u32| numbered_path(path, number);
    for number in (1..AUDIT_FILES_MAX).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, numbered(1))
}

/// Returns the path of a log that was renamed.
fn numbered_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Formats a time as RFC 3339 in UTC. Times outside the calendar are formatted as 1970.
pub(crate) fn rfc3339(ms: UnixMillis) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use saggar_clock::ManualClock;
    use saggar_store::{AccessAction, AccessRights};
    use serde_json::{Value, json};

    use super::*;
    use crate::access::Principal;
    use saggar_serving::ServingError;

    fn read_lines(path: &Path) -> Vec<Value> {
        std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_audit_line_has_the_actor_and_the_action() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let audit = AuditLog::new(&path, Arc::new(ManualClock::new(1_771_000_000_250)));
        let rights = AccessRights::default();
        let actor = Actor { principal: Principal::Key("ops".into()), request_id: "r-1".to_owned(), rights };
        audit.record(&actor, AuditAction::ModelPromote, "digits", "version 3", &Ok::<_, ApiError>(()));
        let refused = Err::<(), _>(ApiError::from(ServingError::NothingReady));
        audit.record(&Actor::cli(), AuditAction::KeyRevoke, "\"x\"\n", "", &refused);
        let expected = [
            json!({"at": "2026-02-13T16:26:40.250Z", "who": "key:ops", "request_id": "r-1", "action": "model.promote",
                   "model": "digits", "detail": "version 3", "result": "ok"}),
            json!({"at": "2026-02-13T16:26:40.250Z", "who": "cli", "request_id": "", "action": "key.revoke",
                   "key": "\"x\"\n", "detail": "", "result": "not_ready"}),
        ];
        assert_eq!(read_lines(&path), expected);
    }

    #[test]
    fn effects_of_jobs_are_logged_with_key_and_project() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let audit = AuditLog::new(&path, Arc::new(ManualClock::new(0)));
        for (rights, is_done) in [(AccessRights::from_key_name("ci"), false), (AccessRights::default(), true)] {
            let (thing, project, detail) = ("net".to_owned(), "digits".to_owned(), "by job digits-7".to_owned());
            audit.record_effect(&JobEffect {
                effect: AccessAction::PublishModel,
                thing,
                rights,
                project,
                detail,
                is_done,
            });
        }
        let fields = |line: &Value| ["who", "action", "model", "project", "result"].map(|key| line[key].clone());
        let lines: Vec<_> = read_lines(&path).iter().map(fields).collect();
        assert_eq!(lines[0], ["key:ci", "model.publish", "net", "digits", "refused"]);
        assert_eq!(lines[1], ["no_key", "model.publish", "net", "digits", "ok"]);
    }

    #[test]
    fn lines_of_files_are_listed_by_filter_and_page_over_rotations() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_771_000_000_000));
        let audit = AuditLog::with_bytes_max(directory.path().join("audit.log"), clock.clone(), 500);
        let nothing = AuditFilter { limit: 10, ..AuditFilter::default() };
        assert_eq!(audit.list(&nothing).unwrap(), []);
        for at in 0..10 {
            let action = if at % 2 == 0 { AuditAction::ModelLoad } else { AuditAction::KeyCreate };
            audit.record(&Actor::cli(), action, &format!("s{at}"), "", &Ok::<_, ApiError>(()));
            // Some lines have the same time.
            clock.advance(u64::from(at % 3 == 0));
        }
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let page = audit.list(&AuditFilter { before, limit: 3, ..AuditFilter::default() }).unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.sequence);
            listed.extend(page.into_iter().map(|line| line.row.subject));
        }
        assert_eq!(listed, (0..10).rev().map(|at| format!("s{at}")).collect::<Vec<_>>());
        let models = AuditFilter { action: "model".to_owned(), ..nothing };
        let subjects: Vec<_> = audit.list(&models).unwrap().into_iter().map(|line| line.row.subject).collect();
        assert_eq!(subjects, ["s8", "s6", "s4", "s2", "s0"]);
    }

    #[test]
    fn the_audit_log_is_rotated_and_the_oldest_file_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let audit = AuditLog::with_bytes_max(&path, Arc::new(ManualClock::new(0)), 1);
        for at in 0..10 {
            audit.record(&Actor::cli(), AuditAction::ModelLoad, "digits", &at.to_string(), &Ok::<_, ApiError>(()));
        }
        let detail = |name: &str| read_lines(&directory.path().join(name))[0]["detail"].as_str().unwrap().to_owned();
        let details: Vec<String> = (1..=AUDIT_FILES_MAX).map(|at| detail(&format!("audit.log.{at}"))).collect();
        assert_eq!(details, ["9", "8", "7", "6"]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), AUDIT_FILES_MAX as usize);
    }
}
