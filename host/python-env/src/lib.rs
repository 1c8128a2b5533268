//! Python environments with pinned packages, which are installed once into the user's cache: componentize-py for plugins
//! in Python, JupyterLab for notebooks. Tools of other languages use the same place ([`tool_cache`]).
//!
//! An environment is made under a temporary name and renamed when it is complete, so one that exists is usable. Its
//! scripts name the temporary directory: run modules with its interpreter instead.
//! One process at a time installs an environment, and removes what one that was killed has left.

mod error;
mod installer_process;
mod pip_messages;
pub mod tool_cache;

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub use error::PythonEnvError;
pub use pip_messages::InstallFailure;

use crate::installer_process::{InstallerEnd, module_command};

/// The environment variable that names the Python interpreter to make environments with.
pub const PYTHON_VARIABLE: &str = "SAGGAR_PYTHON";
const PYTHON_DEFAULT: &str = "python3";
/// If a failed installation leaves less space than this, the missing space is the cause: not every message of venv and pip
/// says so.
const SPACE_BYTES_MIN: u64 = 16 << 20;
/// The time between two attempts to become the one that installs.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// An environment that can be installed.
#[derive(Clone, Copy, Debug)]
pub struct PythonEnvironment<'a> {
    /// Its directory in the tool cache, with the version: `componentize-py-0.25.1`.
    pub name: &'a str,
    /// The requirements, each with an exact version: `componentize-py==0.25.1`.
    pub requirements: &'a [&'a str],
    /// The oldest minor version of Python 3 that the requirements support.
    pub python_minor_min: u32,
}

impl PythonEnvironment<'_> {
    /// Returns the directory of the environment, which may not be installed yet.
    ///
    /// # Errors
    /// `NoCache`.
    pub fn directory(&self) -> Result<PathBuf, PythonEnvError> {
        Ok(tool_cache::directory().ok_or(PythonEnvError::NoCache)?.join(self.name))
    }

    /// Returns whether the environment is installed.
    pub fn is_installed(&self) -> bool {
        self.directory().is_ok_and(|directory| interpreter(&directory).exists())
    }

    /// Returns the directory of the environment, installed if it is missing. Can be called by several processes at once:
    /// one installs it, and the others wait. `is_stopped` is asked often, and ends the installation and the wait.
    ///
    /// # Errors
    /// `NoCache`; `Python` if there is no suitable interpreter; `Install` if pip fails; `NoSpace`; `Stopped`; `Io`.
    pub fn find_or_install(&self, is_stopped: &dyn Fn() -> bool) -> Result<PathBuf, PythonEnvError> {
        let directory = self.directory()?;
        if interpreter(&directory).exists() {
            return Ok(directory);
        }
        let _lock = lock_installation(&directory, is_stopped)?;
        if !interpreter(&directory).exists() {
            tool_cache::remove_drafts(&directory);
            tool_cache::install_into(&directory, |draft| self.create(draft, is_stopped), PythonEnvError::io)?;
        }
        Ok(directory)
    }

    fn create(&self, draft: &Path, is_stopped: &dyn Fn() -> bool) -> Result<(), PythonEnvError> {
        find_python(self.python_minor_min)?;
        let python = python_program();
        let run = |command: &mut Command| {
            let ended = installer_process::run(command, is_stopped);
            match ended.map_err(|error| python_error(&python, error.to_string()))? {
                InstallerEnd::Stopped => Err(PythonEnvError::Stopped),
                InstallerEnd::Exited { status, .. } if status.success() => Ok(None),
                InstallerEnd::Exited { messages, .. } if has_no_space(draft, &messages) => {
                    Err(self.no_space(draft, &messages))
                }
                InstallerEnd::Exited { messages, .. } => Ok(Some(messages)),
            }
        };
        if let Some(messages) = run(module_command(&python, "venv").arg(draft))? {
            return Err(python_error(&python, pip_messages::summarize(&messages)));
        }
        let mut install = module_command(&interpreter(draft), "pip");
        install.args(PIP_INSTALL).args(["--only-binary", ":all:"]).args(self.requirements);
        match run(&mut install)? {
            None => Ok(()),
            Some(messages) => Err(PythonEnvError::Install {
                name: self.name.to_owned(),
                failure: pip_messages::classify(&messages),
                messages: pip_messages::summarize(&messages),
            }),
        }
    }

    fn no_space(&self, draft: &Path, messages: &str) -> PythonEnvError {
        let directory = draft.parent().unwrap_or(draft).to_owned();
        PythonEnvError::NoSpace { directory, name: self.name.to_owned(), messages: pip_messages::summarize(messages) }
    }
}

/// Waits until no other process installs the environment in `directory`. Others wait until the returned file is dropped.
fn lock_installation(directory: &Path, is_stopped: &dyn Fn() -> bool) -> Result<File, PythonEnvError> {
    let mut path = directory.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let io = |source| PythonEnvError::io(path.clone(), source);
    fs::create_dir_all(directory.parent().unwrap_or(directory)).map_err(io)?;
    let file = File::create(&path).map_err(io)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(io(source)),
            Err(TryLockError::WouldBlock) if is_stopped() => return Err(PythonEnvError::Stopped),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
        }
    }
}

/// Returns whether an installation into `draft` failed because its file system is full.
fn has_no_space(draft: &Path, messages: &str) -> bool {
    let left = rustix::fs::statvfs(draft).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    pip_messages::say_no_space(messages) || left.is_ok_and(|bytes| bytes < SPACE_BYTES_MIN)
}

/// Returns the path of the interpreter of an environment.
pub fn interpreter(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

/// Returns the Python interpreter that environments are made with.
pub fn python_program() -> PathBuf {
    env::var_os(PYTHON_VARIABLE).map_or_else(|| PYTHON_DEFAULT.into(), PathBuf::from)
}

/// Checks that the interpreter is recent enough and can make environments, and returns its version. Installs nothing.
///
/// # Errors
/// `Python`.
pub fn find_python(minor_min: u32) -> Result<String, PythonEnvError> {
    let check = format!(
        "import ensurepip, venv, platform, sys; print(platform.python_version()); sys.exit(sys.version_info < (3, {minor_min}))"
    );
    let python = python_program();
    let output = run(Command::new(&python).args(["-c", &check]));
    let output = output.map_err(|error| python_error(&python, error.to_string()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(version),
        false if !version.is_empty() => Err(python_error(&python, format!("this is Python {version}"))),
        false => Err(python_error(&python, error_text(&output))),
    }
}

/// The first arguments of every installation by pip.
const PIP_INSTALL: [&str; 4] = ["install", "--quiet", "--disable-pip-version-check", "--no-input"];

/// Returns `pip install` of an interpreter, without its arguments.
pub fn pip_install(python: impl AsRef<OsStr>) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip"]).args(PIP_INSTALL);
    pip.env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME");
    pip.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    pip
}

fn run(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn()?.wait_with_output()
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn python_error(python: &Path, reason: String) -> PythonEnvError {
    PythonEnvError::Python { python: python.to_owned(), reason }
}
