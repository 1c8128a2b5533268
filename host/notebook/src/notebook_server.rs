//! The process of JupyterLab in its sandbox.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;

use crate::activity::NotebookActivity;
use crate::error::NotebookError;
use crate::folders::{NotebookFolders, SOCKET_NAME};
use crate::limits::{ACTIVITY_BYTES_MAX, ACTIVITY_TIME_MAX, SHUTDOWN_TIME_MAX, START_TIME_MAX};
use crate::memory_group::MemoryGroup;
use crate::sandbox::{
    self, CLIENT_PATH, ENVIRONMENT_PATH, HOME_PATH, OUTPUT_PATH, RUN_PATH, SETTINGS_PATH, SandboxMount, start_error,
};
use crate::socket;
use crate::token::NotebookToken;

/// The time between two requests to JupyterLab while it starts or ends.
const POLL: Duration = Duration::from_millis(100);
/// Prints the installation of Python that an environment was made with.
const BASE_PREFIX: &str = "import sys; print(sys.base_prefix)";

/// How JupyterLab is started.
#[derive(Debug)]
pub struct NotebookSettings<'a> {
    /// The job's name, which is in the paths of all requests.
    pub job: &'a str,
    /// The job's folders, which exist.
    pub folders: &'a NotebookFolders,
    /// The directory of the environment.
    pub environment: &'a Path,
    /// The token that requests need.
    pub token: &'a NotebookToken,
    /// What the notebook reads.
    pub mounts: &'a [SandboxMount],
    /// The variables of its environment, besides those of JupyterLab.
    pub variables: Vec<(String, String)>,
    /// The group that limits its memory, if this machine has one.
    pub group: Option<&'a MemoryGroup>,
}

/// A running JupyterLab. Dropping it kills it, with everything that it started.
#[derive(Debug)]
pub struct NotebookServer {
    process: Child,
    socket: PathBuf,
    output: PathBuf,
    base_path: String,
    token: NotebookToken,
}

/// Returns the path below which a job's notebook answers.
pub fn base_path(job: &str) -> String {
    format!("/notebooks/{job}/")
}

/// Returns the path of the page of a job's notebook, with its token.
pub fn lab_path(job: &str, token: &NotebookToken) -> String {
    format!("{}lab?token={}", base_path(job), token.as_str())
}

impl NotebookServer {
    /// Starts JupyterLab. Must be called on a thread that lives as long as the notebook, because the sandbox ends with
    /// the thread that started it.
    ///
    /// # Errors
    /// `Sandbox` if bubblewrap cannot be started; `Io` if the environment has no Python.
    pub fn start(settings: &NotebookSettings<'_>) -> Result<NotebookServer, NotebookError> {
        let NotebookSettings { job, folders, environment, token, mounts, variables, group } = settings;
        let base = base_prefix(environment)?;
        let mut command = sandbox::command(folders, environment, &base, mounts);
        command.arg(format!("{ENVIRONMENT_PATH}/bin/python")).args(["-m", "jupyterlab"]).args(jupyter_options(job));
        if let Some(group) = group {
            command = group.command_in_group(&command);
        }
        command.env_clear().envs(variables.iter().map(|(name, value)| (name, value))).envs(own_variables());
        // Other users can read the arguments of processes, but not their environment.
        command.env("JUPYTER_TOKEN", token.as_str());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().map_err(|error| NotebookError::Sandbox { reason: start_error(&error) })?;
        Ok(NotebookServer {
            process,
            socket: folders.socket(),
            output: folders.output(),
            base_path: base_path(job),
            token: (*token).clone(),
        })
    }

    /// The number of the sandbox's first process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns how JupyterLab ended, or `None` while it runs.
    ///
    /// # Errors
    /// `Io`.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, NotebookError> {
        self.process.try_wait().map_err(NotebookError::io("the notebook's process"))
    }

    /// Waits until JupyterLab answers. `is_stopped` is asked often, and ends the wait early.
    ///
    /// # Errors
    /// `Ended`; `Silent`; `Io`.
    pub async fn wait_until_ready(&mut self, is_stopped: impl Fn() -> bool) -> Result<(), NotebookError> {
        let began = Instant::now();
        loop {
            let error = match self.request("GET", "api/status").await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Some(status) = self.ended()? {
                return Err(NotebookError::Ended { status });
            }
            if is_stopped() {
                return Ok(());
            }
            if began.elapsed() >= START_TIME_MAX {
                return Err(NotebookError::Silent { waited: START_TIME_MAX, reason: error.to_string() });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the notebook's activity.
    ///
    /// # Errors
    /// `Silent`; `Response`; `Io`.
    pub async fn activity(&self) -> Result<NotebookActivity, NotebookError> {
        let read = async {
            let kernels = self.request("GET", "api/kernels").await?;
            let terminals = self.request("GET", "api/terminals").await?;
            NotebookActivity::read(&kernels, &terminals, &self.output)
                .map_err(|error| self.response_error("api/kernels", &error))
        };
        let reason = || "the request took too long".to_owned();
        let silent = |_| NotebookError::Silent { waited: ACTIVITY_TIME_MAX, reason: reason() };
        tokio::time::timeout(ACTIVITY_TIME_MAX, read).await.map_err(silent)?
    }

    /// Asks JupyterLab to end its kernels and itself, and kills what has not ended in time.
    ///
    /// # Errors
    /// `Io`.
    pub async fn shut_down(&mut self) -> Result<(), NotebookError> {
        // Whether it was asked or cannot be, it is ended.
        let _ = tokio::time::timeout(SHUTDOWN_TIME_MAX, self.request("POST", "api/shutdown")).await;
        let began = Instant::now();
        while began.elapsed() < SHUTDOWN_TIME_MAX {
            if self.ended()?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        self.kill()
    }

    /// Kills JupyterLab and everything that it started.
    ///
    /// # Errors
    /// `Io`.
    pub fn kill(&mut self) -> Result<(), NotebookError> {
        // The sandbox ends with this process.
        let killed = self.process.kill().and_then(|()| self.process.wait());
        killed.map(drop).map_err(NotebookError::io("the notebook's process"))
    }

    /// Sends a request without a body to JupyterLab and returns the body of a successful response.
    async fn request(&self, method: &str, path: &str) -> Result<Bytes, NotebookError> {
        let stream = socket::connect(&self.socket).await.map_err(NotebookError::io(&self.socket))?;
        let failed = |error: &dyn std::fmt::Display| self.response_error(path, error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base_path))
            .header(HOST, "notebook")
            .header(AUTHORIZATION, format!("token {}", self.token.as_str()))
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ACTIVITY_BYTES_MAX).collect().await;
            let body = body.map_err(|error| failed(&error))?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(failed(&status)) }
        };
        tokio::pin!(connection);
        tokio::select! {
            // The exchange is polled first: it has the response when the connection ends.
            biased;
            exchanged = exchange => exchanged,
            ended = &mut connection => Err(match ended {
                Err(error) => failed(&error),
                Ok(()) => failed(&"the end of the connection"),
            }),
        }
    }

    fn response_error(&self, path: &str, reason: &dyn std::fmt::Display) -> NotebookError {
        NotebookError::Response { path: format!("{}{path}", self.base_path), reason: reason.to_string() }
    }
}

impl Drop for NotebookServer {
    fn drop(&mut self) {
        // It has ended already, or this was the last thing to do about it.
        let _ = self.kill();
    }
}

/// Returns the installation of Python that an environment was made with.
fn base_prefix(environment: &Path) -> Result<PathBuf, NotebookError> {
    let python = saggar_python_env::interpreter(environment);
    let mut command = Command::new(&python);
    let output = command.args(["-I", "-c", BASE_PREFIX]).stdin(Stdio::null()).output();
    let output = output.map_err(NotebookError::io(&python))?;
    let prefix = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if prefix.is_empty() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(NotebookError::io(&python)(std::io::Error::other(reason)));
    }
    Ok(prefix.into())
}

/// Returns the options of JupyterLab. It listens on a Unix socket alone, looks for no updates and installs no extensions.
fn jupyter_options(job: &str) -> Vec<String> {
    let options = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.sock_mode=0600",
        "--ServerApp.root_dir=/",
        // The HTTP server checks the name of the host.
        "--ServerApp.allow_remote_access=True",
        // Others of this machine cannot read the messages of kernels.
        "--KernelManager.transport=ipc",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        "--LabApp.extension_manager=readonly",
    ];
    let mut options: Vec<String> = options.map(str::to_owned).into();
    options.push(format!("--ServerApp.sock={RUN_PATH}/{SOCKET_NAME}"));
    options.push(format!("--LabApp.app_settings_dir={SETTINGS_PATH}"));
    options.push(format!("--ServerApp.base_url={}", base_path(job)));
    options.push(format!("--FileContentsManager.preferred_dir={OUTPUT_PATH}"));
    options
}

/// Returns the variables that every notebook has: where its programs, its home and the Python client are. Packages that a
/// user installs go into the home directory, because the environment is read-only.
fn own_variables() -> [(&'static str, String); 8] {
    let packages = format!("{HOME_PATH}/packages");
    [
        ("PATH", format!("{ENVIRONMENT_PATH}/bin:/usr/local/bin:/usr/bin:/bin")),
        ("HOME", HOME_PATH.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("PYTHONPATH", format!("{CLIENT_PATH}:{packages}")),
        ("PIP_TARGET", packages),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned()),
        ("JUPYTER_PLATFORM_DIRS", "1".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_in_no_argument() {
        assert!(jupyter_options("faces-1").iter().all(|option| !option.contains("token")));
        assert!(jupyter_options("faces-1").contains(&"--ServerApp.base_url=/notebooks/faces-1/".to_owned()));
        let token = NotebookToken::new("ab12".to_owned());
        assert_eq!(lab_path("faces-1", &token), "/notebooks/faces-1/lab?token=ab12");
    }
}
