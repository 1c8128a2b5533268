//! The engine that starts workers as batch jobs of Slurm, with its commands `sbatch`, `squeue` and `scancel`
//! (<https://slurm.schedmd.com/sbatch.html>).
//!
//! Slurm queues a batch job again when its node fails or a partition of a higher tier preempts it. Its worker then claims the
//! next attempt, if the lease of the one before is over; a cut node's process can still be alive then.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::engine::{EngineError, EngineJobState, EngineRequest, WorkerEngine};

/// The name of the engine for people.
const SLURM: &str = "Slurm";
/// Seconds between SIGTERM and the end of a batch job that reaches its time: a worker ends within 25 s.
const SIGNAL_SECONDS: u32 = 25;

/// Seconds after which the other tasks of a batch job are ended when the first one has ended. They end sooner by themselves.
const WAIT_SECONDS: u32 = 120;

/// How batch jobs are submitted.
#[derive(Clone, Debug)]
pub struct SlurmJobSettings {
    /// Options of `sbatch` with their values: `--partition`, `spot`.
    pub options: Vec<(String, String)>,
    /// The program on the nodes.
    pub program: String,
    /// The labels that the pool requires, which the workers have.
    pub labels: BTreeMap<String, String>,
    /// The folder of the state directories of workers on the nodes.
    pub home: String,
    /// The environment of workers, with the URL of the database and the bucket's credentials. No argument contains it.
    pub variables: BTreeMap<String, String>,
}

/// The jobs of a pool as batch jobs of Slurm.
#[derive(Debug)]
pub struct SlurmEngine {
    settings: SlurmJobSettings,
}

impl SlurmEngine {
    /// Returns the engine. Nothing is asked yet.
    pub fn new(settings: SlurmJobSettings) -> SlurmEngine {
        SlurmEngine { settings }
    }

    /// Returns the arguments of `sbatch` for an attempt.
    fn submission(&self, request: &EngineRequest) -> Vec<String> {
        let name = request.engine_job();
        let names: Vec<&str> = self.settings.variables.keys().map(String::as_str).collect();
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={name}"),
            format!("--ntasks={}", request.hosts),
            "--requeue".to_owned(),
            // Of two submissions with one name, the second waits for the first, and then finds no job.
            "--dependency=singleton".to_owned(),
            format!("--export=PATH,HOME,{}", names.join(",")),
            format!("--comment=saggar {} {}", request.project, request.job),
            format!("--output={}/{name}.log", self.settings.home),
            "--open-mode=append".to_owned(),
        ];
        if request.hosts > 1 {
            // `srun` kills its tasks if it gets the signal itself.
            arguments.extend(["--ntasks-per-node=1".to_owned(), format!("--signal=TERM@{SIGNAL_SECONDS}")]);
        } else {
            arguments.push(format!("--signal=B:TERM@{SIGNAL_SECONDS}"));
        }
        arguments.extend(self.settings.options.iter().map(|(option, value)| format!("{option}={value}")));
        arguments
    }

    /// Returns the script of an attempt. The worker replaces the shell, so that it gets the signals.
    fn script(&self, request: &EngineRequest) -> String {
        let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let homes = quote(&self.settings.home);
        let (program, job) = (quote(&self.settings.program), quote(&request.job));
        let label = |(name, value): (&String, &String)| format!(" --label {}", quote(&format!("{name}={value}")));
        let labels: String = self.settings.labels.iter().map(label).collect();
        // Nodes can have one file system, on which a lock of one is not always seen by the others.
        let worker = format!("exec {program} worker run {job} --homes {homes}/\"$SLURMD_NODENAME\"{labels}");
        if request.hosts <= 1 {
            return format!("#!/bin/sh\n{worker}\n");
        }
        // One task on each node.
        format!("#!/bin/sh\nexec srun --wait={WAIT_SECONDS} sh -c {}\n", quote(&worker))
    }
}

impl WorkerEngine for SlurmEngine {
    fn engine_name(&self) -> &'static str {
        SLURM
    }

    fn submit(&self, request: &EngineRequest) -> Result<(), EngineError> {
        if matches!(self.state(&request.engine_job())?, EngineJobState::Waiting(_) | EngineJobState::Running) {
            return Ok(());
        }
        // `sbatch` opens the log on the node; on one machine the folder is this one.
        let _ = std::fs::create_dir_all(&self.settings.home);
        let mut command = Command::new("sbatch");
        command.args(self.submission(request)).envs(&self.settings.variables);
        run(command, &self.script(request)).map(drop)
    }

    fn state(&self, engine_job: &str) -> Result<EngineJobState, EngineError> {
        let mut command = Command::new("squeue");
        command.args(["--noheader", "--states=all", "--format=%T|%r"]).arg(format!("--name={engine_job}"));
        run(command, "").map(|listed| state_of(&listed))
    }

    fn cancel(&self, engine_job: &str) -> Result<(), EngineError> {
        let mut command = Command::new("scancel");
        command.arg("--quiet").arg(format!("--name={engine_job}"));
        run(command, "").map(drop)
    }
}

/// Returns the state of the batch jobs with one name, from lines `STATE|REASON`: one that runs, or else waits, or else ended.
fn state_of(listed: &str) -> EngineJobState {
    let rank = |state: &EngineJobState| match state {
        EngineJobState::Absent => 0,
        EngineJobState::Ended(_) => 1,
        EngineJobState::Waiting(_) => 2,
        EngineJobState::Running => 3,
    };
    let states = listed.lines().filter_map(|line| {
        let (state, reason) = line.trim().split_once('|')?;
        let reason = if reason == "None" { String::new() } else { reason.to_owned() };
        Some(match state {
            "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" => EngineJobState::Running,
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESIZING" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" => EngineJobState::Waiting(reason),
            ended => EngineJobState::Ended(ended.to_lowercase()),
        })
    });
    states.max_by_key(rank).unwrap_or(EngineJobState::Absent)
}

/// Runs a command of Slurm and returns its output.
fn run(mut command: Command, input: &str) -> Result<String, EngineError> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let refused = |reason: String| EngineError::Refused { engine: SLURM, reason };
    let mut child = command.spawn().map_err(|error| {
        refused(format!(
            "`{name}` cannot be started on the server's machine: {error}; install the client of Slurm there"
        ))
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that has ended says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| refused(format!("`{name}`: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failure(&name, &output))
}

fn failure(name: &str, output: &Output) -> EngineError {
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = format!("`{name}`: {}", said.trim());
    // The words of slurm_strerror for a controller that does not answer.
    let is_outage = ["Unable to contact slurm controller", "Socket timed out", "Connection refused", "Zero Bytes were"];
    if is_outage.iter().any(|words| said.contains(words)) {
        return EngineError::Unavailable { engine: SLURM, reason };
    }
    EngineError::Refused { engine: SLURM, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> SlurmEngine {
        SlurmEngine::new(SlurmJobSettings {
            options: vec![("--partition".to_owned(), "spot".to_owned())],
            program: "/opt/it's/saggar".to_owned(),
            labels: BTreeMap::from([("gpu".to_owned(), "a100".to_owned())]),
            home: "/tmp/workers".to_owned(),
            variables: BTreeMap::from([("SAGGAR_DATABASE_URL".to_owned(), "postgres://ci:hunter2@db/x".to_owned())]),
        })
    }

    #[test]
    fn a_submission_has_no_secret_in_its_arguments_and_its_script_replaces_the_shell() {
        let request = EngineRequest { job: "digits-7".into(), attempt: 2, project: "digits".into(), hosts: 1 };
        let arguments = engine().submission(&request);
        for wanted in ["--job-name=saggar-digits-7-2", "--requeue", "--dependency=singleton", "--partition=spot"] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted}: {arguments:?}");
        }
        assert!(arguments.contains(&"--export=PATH,HOME,SAGGAR_DATABASE_URL".to_owned()), "{arguments:?}");
        assert!(!arguments.concat().contains("hunter2"));
        let script = engine().script(&request);
        let expected = "#!/bin/sh\nexec '/opt/it'\\''s/saggar' worker run 'digits-7' \
                        --homes '/tmp/workers'/\"$SLURMD_NODENAME\" --label 'gpu=a100'\n";
        assert_eq!(script, expected);
    }

    #[test]
    fn a_job_of_several_hosts_has_a_task_on_each_node() {
        let request = EngineRequest { job: "digits-7".into(), attempt: 2, project: "digits".into(), hosts: 3 };
        let arguments = engine().submission(&request);
        for wanted in ["--ntasks=3", "--ntasks-per-node=1", "--signal=TERM@25"] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted}: {arguments:?}");
        }
        let script = engine().script(&request);
        assert!(script.starts_with("#!/bin/sh\nexec srun --wait=120 sh -c 'exec "), "{script}");
        assert!(script.contains("--homes '\\''/tmp/workers'\\''/\"$SLURMD_NODENAME\" --label"), "{script}");
    }

    #[test]
    fn of_batch_jobs_with_one_name_the_one_that_runs_counts() {
        for (listed, state) in [
            ("", EngineJobState::Absent),
            ("PENDING|Resources\n", EngineJobState::Waiting("Resources".to_owned())),
            ("COMPLETED|None\nPENDING|None\n", EngineJobState::Waiting(String::new())),
            ("PENDING|Dependency\nRUNNING|None\n", EngineJobState::Running),
            ("NODE_FAIL|None\n", EngineJobState::Ended("node_fail".to_owned())),
        ] {
            assert_eq!(state_of(listed), state, "{listed}");
        }
    }
}
