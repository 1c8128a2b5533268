//! Python environments with pinned packages, which are installed once into the user's cache: componentize-py for plugins
//! in Python, JupyterLab for notebooks. Tools of other languages use the same place ([`tool_cache`]).
//!
//! An environment is made under a temporary name and renamed when it is complete, so one that exists is usable. Its
//! scripts name the temporary directory: run modules with its interpreter instead.

mod error;
pub mod tool_cache;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use error::PythonEnvError;

/// The environment variable that names the Python interpreter to make environments with.
pub const PYTHON_VARIABLE: &str = "SAGGAR_PYTHON";
const PYTHON_DEFAULT: &str = "python3";

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

    /// Returns the directory of the environment, installed if it is missing. Can be called by several processes at once.
    ///
    /// # Errors
    /// `NoCache`; `Python` if there is no suitable interpreter; `Install` if pip fails; `Io`.
    pub fn find_or_install(&self) -> Result<PathBuf, PythonEnvError> {
        let directory = self.directory()?;
        if !interpreter(&directory).exists() {
            tool_cache::install_into(&directory, |draft| self.create(draft), PythonEnvError::io)?;
        }
        Ok(directory)
    }

    fn create(&self, draft: &Path) -> Result<(), PythonEnvError> {
        find_python(self.python_minor_min)?;
        let python = python_program();
        let mut venv = Command::new(&python);
        venv.args(["-m", "venv"]).arg(draft).env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME");
        let output = run(&mut venv).map_err(|error| python_error(&python, error.to_string()))?;
        if !output.status.success() {
            return Err(python_error(&python, error_text(&output)));
        }
        let mut install = pip_install(interpreter(draft));
        install.args(["--only-binary", ":all:"]).args(self.requirements);
        let output = run(&mut install).map_err(|error| python_error(&python, error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(PythonEnvError::Install { name: self.name.to_owned(), messages: error_text(&output) })
    }
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

/// Returns `pip install` of an interpreter, without its arguments.
pub fn pip_install(python: impl AsRef<OsStr>) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
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
