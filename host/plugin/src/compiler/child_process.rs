//! Parent side of a compilation: starts a child, sends its request, waits for the answer, and kills it at its deadline.

use std::ffi::OsString;
use std::io::{BufReader, BufWriter, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{AnswerPayload, AnswerStatus, ReadAnswerError, read_answer, write_request};
use super::protocol::{CPU_FLAG, MEMORY_FLAG, SUBCOMMAND};
use crate::limits::COMPILE_THREADS_MAX;

/// Interval at which the caller of a running child checks for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a child has to exit after it closed its pipe.
const EXIT_GRACE: Duration = Duration::from_secs(2);
/// Bytes that are read from a crashed child's standard error.
const CHILD_STDERR_BYTES_MAX: u64 = 4 << 10;

/// The request and limits of one child.
pub(super) struct ChildRequest<'a> {
    /// The kind of request, which is the hidden subcommand's argument.
    pub(super) kind: &'static str,
    /// Additional arguments.
    pub(super) arguments: Vec<OsString>,
    /// The parts of the request.
    pub(super) parts: &'a [&'a [u8]],
    /// Limit on the memory it allocates, in bytes.
    pub(super) memory_bytes: u64,
    /// Limit on its answer, in bytes.
    pub(super) answer_bytes_max: u64,
    /// The time at which it is killed.
    pub(super) deadline: Instant,
    /// Returns whether its answer is no longer needed.
    pub(super) is_cancelled: &'a dyn Fn() -> bool,
}

/// Reasons why a child gave no result.
#[derive(Debug)]
pub(super) enum ChildError {
    /// It cannot be started.
    Launch { reason: String },
    /// It refused the request; the payload is the reason, encoded as in [`super::child_main`].
    Refused(AnswerPayload),
    /// It was killed at its deadline.
    Deadline,
    /// It exceeded its memory limit.
    OutOfMemory,
    /// Its result exceeds the size limit.
    AnswerTooLarge { bytes: u64 },
    /// Its answer is no longer needed.
    Cancelled,
    /// It ended without an answer.
    Crashed { reason: String },
}

/// A child that is killed and reaped when dropped.
struct RunningChild(Child);

impl Drop for RunningChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl RunningChild {
    /// Returns its exit status, or `None` if it does not end within `grace`.
    fn wait_for_exit(&mut self, grace: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if began.elapsed() < grace => thread::sleep(Duration::from_millis(1)),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Runs `program` as a child until it answers. Blocks, at most until the deadline.
///
/// # Errors
/// [`ChildError`].
pub(super) fn run(program: &Path, request: &ChildRequest<'_>) -> Result<AnswerPayload, ChildError> {
    let launch = |error: std::io::Error| ChildError::Launch { reason: error.to_string() };
    let mut child = RunningChild(child_command(program, request).spawn().map_err(launch)?);
    let (stdin, stdout) = (child.0.stdin.take(), child.0.stdout.take());
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(ChildError::Launch { reason: "it has no pipes".to_owned() });
    };
    let (parts, answer_bytes_max) = (request.parts, request.answer_bytes_max);
    let (answered, answer) = mpsc::channel();
    thread::scope(|scope| {
        let write = move || {
            let mut stdin = BufWriter::new(stdin);
            // A child that refuses before it has read the whole request closes the pipe.
            let _ = write_request(&mut stdin, parts);
            // Keep standard input open until the child has ended. If this process dies, it closes and the child exits.
            stdin.into_inner().ok()
        };
        let writer = thread::Builder::new().name("compile-in".to_owned()).spawn_scoped(scope, write).map_err(launch)?;
        let read = move || {
            let _ = answered.send(read_answer(&mut BufReader::new(stdout), answer_bytes_max));
        };
        thread::Builder::new().name("compile-out".to_owned()).spawn_scoped(scope, read).map_err(launch)?;
        let ended = wait_for_answer(&answer, request);
        let result = match ended {
            Ok(Ok((status, payload))) => match status {
                AnswerStatus::Done => Ok(payload),
                AnswerStatus::Refused => Err(ChildError::Refused(payload)),
                AnswerStatus::OutOfMemory => Err(ChildError::OutOfMemory),
            },
            Ok(Err(ReadAnswerError::TooLarge { bytes })) => Err(ChildError::AnswerTooLarge { bytes }),
            Ok(Err(ReadAnswerError::Broken)) => Err(crash_error(&mut child)),
            Err(error) => Err(error),
        };
        // Killing the child ends both threads, which are joined after this.
        drop(child);
        drop(writer);
        result
    })
}

/// Waits for the answer, until the deadline or cancellation.
fn wait_for_answer<T>(answer: &mpsc::Receiver<T>, request: &ChildRequest<'_>) -> Result<T, ChildError> {
    loop {
        let left = request.deadline.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left.min(CANCEL_POLL_INTERVAL)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ChildError::Crashed { reason: "the thread that reads its answer ended".to_owned() });
            }
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(ChildError::Deadline),
            Err(RecvTimeoutError::Timeout) if (request.is_cancelled)() => return Err(ChildError::Cancelled),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Returns the command. It passes on none of this process's environment, which can contain keys and passwords.
fn child_command(program: &Path, request: &ChildRequest<'_>) -> Command {
    let mut command = Command::new(program);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(COMPILE_THREADS_MAX);
    let left = request.deadline.saturating_duration_since(Instant::now());
    // Every thread can compute all the time, so this limit is only a backup for the parent's deadline.
    let cpu_seconds = left.as_secs().saturating_add(1).saturating_mul(threads as u64);
    command.arg(SUBCOMMAND).arg(request.kind);
    command.arg(MEMORY_FLAG).arg(request.memory_bytes.to_string());
    command.arg(CPU_FLAG).arg(cpu_seconds.to_string());
    command.args(&request.arguments);
    command.env_clear().env("RAYON_NUM_THREADS", threads.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    {
        // A Ctrl-C in the server's terminal must only reach the server.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    command
}

/// Returns the error for a child that ended without an answer.
fn crash_error(child: &mut RunningChild) -> ChildError {
    let Some(status) = child.wait_for_exit(EXIT_GRACE) else {
        return ChildError::Crashed { reason: "it closed its pipe but did not exit".to_owned() };
    };
    let said = child.0.stderr.take().map(read_stderr).unwrap_or_default();
    if said.contains("memory allocation of") || said.contains("Cannot allocate memory") || was_killed(status) {
        return ChildError::OutOfMemory;
    }
    if exceeded_cpu_limit(status) {
        return ChildError::Deadline;
    }
    // A panic message ends with a note about backtraces; skip it.
    let last = said.lines().rfind(|line| !line.starts_with("note: ")).unwrap_or_default();
    ChildError::Crashed { reason: format!("{status} {last}").trim().to_owned() }
}

/// Returns what an ended child wrote to standard error, as far as the pipe held it.
fn read_stderr(stderr: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = stderr.take(CHILD_STDERR_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether the system killed it, which happens if memory is short.
#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(rustix::process::Signal::KILL.as_raw())
}

/// Returns whether it exceeded its processor time limit.
#[cfg(unix)]
fn exceeded_cpu_limit(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(not(unix))]
fn was_killed(_: ExitStatus) -> bool {
    false
}

#[cfg(not(unix))]
fn exceeded_cpu_limit(_: ExitStatus) -> bool {
    false
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// Writes a shell script that replaces the compiler program.
    fn write_fake_compiler(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn run_fake_compiler(
        script: &str,
        time: Duration,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<AnswerPayload, ChildError> {
        let dir = tempfile::tempdir().unwrap();
        let program = write_fake_compiler(dir.path(), script);
        let request = ChildRequest {
            kind: "component",
            arguments: Vec::new(),
            parts: &[b"request"],
            memory_bytes: 1 << 30,
            answer_bytes_max: 100,
            deadline: Instant::now() + time,
            is_cancelled,
        };
        loop {
            match run(&program, &request) {
                // Another test forked while the script was open for writing; it stays open until that process calls
                // exec.
                Err(ChildError::Launch { reason }) if reason.contains("busy") => thread::yield_now(),
                ended => return ended,
            }
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_child_past_its_deadline_is_killed() {
        // `exec`, so that the process the parent kills is `sleep` and not a shell that waits for it.
        let began = Instant::now();
        let ended = run_fake_compiler("exec sleep 600", Duration::from_millis(200), &|| false);
        assert!(matches!(ended, Err(ChildError::Deadline)), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_cancelled_child_is_killed() {
        let ended = run_fake_compiler("exec sleep 600", LONG, &|| true);
        assert!(matches!(ended, Err(ChildError::Cancelled)), "{ended:?}");
    }

    #[test]
    fn a_child_that_exits_without_an_answer_is_reported_as_crashed() {
        let ended = run_fake_compiler("echo the reason >&2; exit 3", LONG, &|| false);
        let Err(ChildError::Crashed { reason }) = ended else { panic!("{ended:?}") };
        assert!(reason.contains('3') && reason.contains("the reason"), "{reason}");
    }

    #[test]
    fn a_child_with_an_invalid_answer_is_rejected() {
        let ended =
            run_fake_compiler("echo SAGGARCC and then something else that is long enough for a header", LONG, &|| {
                false
            });
        assert!(matches!(ended, Err(ChildError::Crashed { .. })), "{ended:?}");
    }

    #[test]
    fn an_out_of_memory_child_is_distinguished_from_a_crashed_one() {
        let ended = run_fake_compiler("echo memory allocation of 8 bytes failed >&2; exit 134", LONG, &|| false);
        assert!(matches!(ended, Err(ChildError::OutOfMemory)), "{ended:?}");
        let ended = run_fake_compiler("kill -9 $$", LONG, &|| false);
        assert!(matches!(ended, Err(ChildError::OutOfMemory)), "{ended:?}");
    }

    #[test]
    fn a_missing_compiler_program_is_reported() {
        let request = ChildRequest {
            kind: "component",
            arguments: Vec::new(),
            parts: &[],
            memory_bytes: 0,
            answer_bytes_max: 0,
            deadline: Instant::now() + LONG,
            is_cancelled: &|| false,
        };
        let ended = run(Path::new("/nonexistent/saggar"), &request);
        assert!(matches!(ended, Err(ChildError::Launch { .. })), "{ended:?}");
    }

    #[test]
    fn compile_children_inherit_no_environment_variables() {
        // A shell sets a few variables.
        let ended = run_fake_compiler("env | grep -v '^\\(PWD\\|SHLVL\\|_\\|OLDPWD\\)=' >&2; exit 1", LONG, &|| false);
        let Err(ChildError::Crashed { reason }) = ended else { panic!("{ended:?}") };
        assert!(reason.contains("RAYON_NUM_THREADS="), "{reason}");
        assert!(!reason.contains("CARGO") && !reason.contains("HOME"), "{reason}");
    }
}
