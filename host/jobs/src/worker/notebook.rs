//! The attempt of a notebook: starts JupyterLab in its sandbox, and watches it until it has to end.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use saggar_notebook::{
    IdleAction, IdleMonitor, JUPYTERLAB_VERSION, MemoryGroup, NotebookError, NotebookFolders, NotebookServer,
    NotebookSettings, NotebookToken, find_or_install, is_installed, resident_bytes,
};
use saggar_plugin::TrainOutcome;
use saggar_store::StateDir;

use super::notebook_outputs::OutputCopier;
use super::output_writer::OutputWriter;
use super::rights::JobRights;
use super::{AttemptFailure, WorkerAttempt};
use crate::limits::{NOTEBOOK_MEMORY_BYTES_DEFAULT, NOTEBOOK_POLL, NOTEBOOK_RIGHTS_INTERVAL, NOTEBOOK_SILENCE_MAX};
use crate::protocol::WorkerEvent;
use crate::spec::NotebookSpec;

/// The reason code of a notebook that cannot run.
const NOTEBOOK_FAILED: &str = "NOTEBOOK_FAILED";
/// The reason code of a notebook that used more memory than its limit.
const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
/// The reason code of a notebook whose key was revoked or has lost the right to submit jobs.
const FORBIDDEN: &str = "FORBIDDEN";
/// The document that a new notebook has, as a start.
const START_DOCUMENT: &str = include_str!("start.ipynb");
const START_DOCUMENT_NAME: &str = "start.ipynb";

impl From<NotebookError> for AttemptFailure {
    fn from(error: NotebookError) -> AttemptFailure {
        AttemptFailure::permanent(NOTEBOOK_FAILED, error)
    }
}

impl WorkerAttempt<'_> {
    /// Runs the notebook. No device is opened.
    pub(super) fn run_notebook(&self, spec: &NotebookSpec, home: &StateDir) -> Result<TrainOutcome, AttemptFailure> {
        self.channel.send(&WorkerEvent::Started {
            device: "cpu".to_owned(),
            adapter: "no device is opened".to_owned(),
            driver: String::new(),
            exact_seconds: false,
            choice: "a notebook uses models by the server".to_owned(),
        });
        let folders = NotebookFolders::new(&home.job(&self.start.job));
        folders.create()?;
        let token = stored_token(&folders)?;
        let rights = JobRights::new(&self.start, home, &self.locations.models);
        let secrets = rights
            .secret_values(home, &self.start.spec.secrets)
            .map_err(|error| AttemptFailure::permanent("NO_SECRET", error))?;
        self.channel.redact(secrets.values().cloned().chain([token.as_str().to_owned()]).collect());
        let mounts = self.notebook_mounts(home, &folders.data())?;
        if !is_installed() {
            self.log_notebook("info", format!("installing JupyterLab {JUPYTERLAB_VERSION}, once for all notebooks"));
        }
        let Some(environment) = find_or_install(&|| self.is_notebook_stopped())? else {
            return Ok(TrainOutcome::Stopped);
        };
        write_start_document(&folders)?;
        let variables = self.notebook_variables(secrets);
        let group = self.notebook_memory_group();
        let settings = NotebookSettings {
            job: &self.start.name,
            folders: &folders,
            environment: &environment,
            token: &token,
            mounts: &mounts,
            variables,
            group: group.as_ref(),
        };
        let mut server = NotebookServer::start(&settings)?;
        let ready = self.runtime.block_on(server.wait_until_ready(|| self.is_notebook_stopped()));
        if ready.is_err() && group.as_ref().is_some_and(MemoryGroup::has_reached_limit) {
            return Err(out_of_memory("all of its memory", self.notebook_memory_bytes()));
        }
        ready?;
        self.channel.send(&WorkerEvent::NotebookReady { socket: folders.socket(), token });
        let writer = OutputWriter::new(&self.start, home, self.channel, &self.control);
        let store = Box::new(move |path: &str, data: &[u8]| writer.write_once(path, data));
        let outputs = OutputCopier::new(folders.output(), store, self.storage_guard(home));
        let idle = IdleMonitor::start(Duration::from_secs_f64(spec.idle_timeout_seconds.min(3.2e9)), Instant::now());
        let now = Instant::now();
        let watch = NotebookWatch {
            attempt: self,
            server,
            group,
            outputs,
            idle,
            rights,
            answered_at: now,
            rights_checked_at: now,
            is_idle_reported: false,
        };
        watch.run()
    }

    /// Returns the group that limits the notebook's memory, or `None` if this machine has none: then it is measured. The
    /// log says which.
    fn notebook_memory_group(&self) -> Option<MemoryGroup> {
        let limit = self.notebook_memory_bytes();
        let group = MemoryGroup::create(&self.start.job, limit);
        let means = match &group {
            Some(_) => "by a control group",
            None => "and measured twice a second, because no control group can be created",
        };
        self.log_notebook("info", format!("memory is limited to {limit} bytes, {means}"));
        group
    }

    fn notebook_memory_bytes(&self) -> u64 {
        self.start.spec.memory_bytes.unwrap_or(NOTEBOOK_MEMORY_BYTES_DEFAULT)
    }

    /// Returns the variables by which the notebook's programs find the server, and those of the job's secrets:
    /// `saggar-api-key` becomes `SAGGAR_API_KEY`.
    fn notebook_variables(&self, secrets: BTreeMap<String, String>) -> Vec<(String, String)> {
        let secrets = secrets.into_iter().map(|(name, value)| (variable_name(&name), value));
        let own = [
            ("SAGGAR_HOST", self.start.server_url.clone()),
            ("SAGGAR_PROJECT", Some(self.start.spec.project.clone())),
            ("SAGGAR_JOB", Some(self.start.name.clone())),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        secrets.chain(own).collect()
    }

    fn is_notebook_stopped(&self) -> bool {
        self.control.stop.load(Ordering::Acquire)
    }

    pub(super) fn log_notebook(&self, level: &str, line: String) {
        self.channel.send(&WorkerEvent::Log { level: level.to_owned(), line });
    }
}

/// Returns the environment variable of a secret.
fn variable_name(secret: &str) -> String {
    secret.to_uppercase().replace(['-', '.'], "_")
}

/// Returns the notebook's token, which all attempts share, so that its address stays valid.
fn stored_token(folders: &NotebookFolders) -> Result<NotebookToken, AttemptFailure> {
    let file = folders.token_file();
    if let Ok(text) = fs::read_to_string(&file)
        && text.len() == 64
    {
        return Ok(NotebookToken::new(text));
    }
    let text = saggar_store::random_hex::<32>();
    fs::write(&file, &text)
        .map_err(|error| AttemptFailure::permanent(NOTEBOOK_FAILED, format!("{}: {error}", file.display())))?;
    Ok(NotebookToken::new(text))
}

/// Writes the first document, if the notebook is new.
fn write_start_document(folders: &NotebookFolders) -> Result<(), AttemptFailure> {
    let path = folders.output().join(START_DOCUMENT_NAME);
    let is_empty = fs::read_dir(folders.output()).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty {
        return Ok(());
    }
    let written = fs::write(&path, START_DOCUMENT);
    written.map_err(|error| AttemptFailure::permanent(NOTEBOOK_FAILED, format!("{}: {error}", path.display())))
}

/// A notebook that runs.
struct NotebookWatch<'a> {
    attempt: &'a WorkerAttempt<'a>,
    server: NotebookServer,
    /// Dropped after the server, because a group is removed when its processes have ended.
    group: Option<MemoryGroup>,
    outputs: OutputCopier,
    idle: IdleMonitor,
    rights: JobRights,
    answered_at: Instant,
    rights_checked_at: Instant,
    is_idle_reported: bool,
}

impl NotebookWatch<'_> {
    /// Watches the notebook until it ends or is stopped. Its files are outputs then.
    fn run(mut self) -> Result<TrainOutcome, AttemptFailure> {
        let result = loop {
            if self.attempt.is_notebook_stopped() {
                let ended = self.attempt.runtime.block_on(self.server.shut_down());
                break ended.map(|()| TrainOutcome::Stopped).map_err(AttemptFailure::from);
            }
            match self.server.ended() {
                Ok(Some(status)) if status.success() => break Ok(TrainOutcome::Finished),
                Ok(Some(status)) => {
                    break Err(self.check_memory().err().unwrap_or(NotebookError::Ended { status }.into()));
                }
                Ok(None) => {}
                Err(error) => break Err(error.into()),
            }
            if let Err(failure) = self.check() {
                // It is killed first, so that its files do not change any more.
                let _ = self.server.kill();
                break Err(failure);
            }
            std::thread::sleep(NOTEBOOK_POLL);
        };
        self.copy_outputs(true);
        result
    }

    /// Copies changed files, and checks the memory and the activity of the notebook.
    fn check(&mut self) -> Result<(), AttemptFailure> {
        self.copy_outputs(false);
        self.check_memory()?;
        self.check_rights()?;
        match self.attempt.runtime.block_on(self.server.activity()) {
            Ok(activity) => {
                self.answered_at = Instant::now();
                let action = self.idle.observe(activity, self.answered_at);
                self.apply_idle_action(action);
                Ok(())
            }
            // It may be ending, or wait for the disk.
            Err(_) if self.answered_at.elapsed() < NOTEBOOK_SILENCE_MAX => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn apply_idle_action(&mut self, action: IdleAction) {
        match action {
            IdleAction::Nothing => {}
            IdleAction::Warn { idle, left } => {
                let (idle, left) = (describe_time(idle), describe_time(left));
                let line = format!(
                    "the notebook has been idle for {idle}; it stops in {left} unless a cell runs, a terminal is used or \
                     a document is saved"
                );
                self.attempt.log_notebook("warn", line);
            }
            IdleAction::Resumed => self.attempt.log_notebook("info", "the notebook is used again".to_owned()),
            IdleAction::Stop { idle } if !self.is_idle_reported => {
                self.is_idle_reported = true;
                let sentence = format!("the notebook was idle for {}", describe_time(idle));
                self.attempt.channel.send(&WorkerEvent::NotebookIdle { sentence });
            }
            IdleAction::Stop { .. } => {}
        }
    }

    /// Checks that the key of the job still allows it, because the notebook's token is valid without the key.
    fn check_rights(&mut self) -> Result<(), AttemptFailure> {
        if self.rights_checked_at.elapsed() < NOTEBOOK_RIGHTS_INTERVAL {
            return Ok(());
        }
        self.rights_checked_at = Instant::now();
        self.rights.check_submission().map_err(|error| AttemptFailure::permanent(FORBIDDEN, error))
    }

    fn check_memory(&self) -> Result<(), AttemptFailure> {
        let limit = self.attempt.notebook_memory_bytes();
        // A system without these figures limits nothing.
        let (is_exceeded, used) = match &self.group {
            Some(group) => (group.has_reached_limit(), "all of its memory".to_owned()),
            None => {
                let used = resident_bytes(self.server.process_id()).unwrap_or(0);
                (used > limit, format!("{used} bytes of memory"))
            }
        };
        if is_exceeded { Err(out_of_memory(&used, limit)) } else { Ok(()) }
    }

    fn copy_outputs(&mut self, is_last: bool) {
        for line in self.outputs.copy_changes(is_last) {
            self.attempt.log_notebook("info", line);
        }
    }
}

fn out_of_memory(used: &str, limit: u64) -> AttemptFailure {
    let message = format!("the notebook used {used}; its limit is {limit} bytes, which --memory sets");
    AttemptFailure::permanent(OUT_OF_MEMORY, message)
}

/// Returns a time in the largest unit that keeps it exact enough for people: `90 s`, `48 min`.
fn describe_time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_become_variables_and_the_token_stays() {
        assert_eq!(variable_name("saggar-api-key"), "SAGGAR_API_KEY");
        let dir = tempfile::tempdir().unwrap();
        let folders = NotebookFolders::new(dir.path());
        folders.create().unwrap();
        let token = stored_token(&folders).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(token.as_str().len(), 64);
        assert!(stored_token(&folders).is_ok_and(|again| again == token));
        write_start_document(&folders).unwrap_or_else(|error| panic!("{error}"));
        let document: serde_json::Value =
            serde_json::from_slice(&fs::read(folders.output().join(START_DOCUMENT_NAME)).unwrap()).unwrap();
        assert_eq!(document["nbformat"], 4);
        assert_eq!(
            (describe_time(Duration::from_secs(90)), describe_time(Duration::from_secs(600))),
            ("90 s".into(), "10 min".into())
        );
    }
}
