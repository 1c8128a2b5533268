//! componentize-py, in a virtual environment in the user's cache.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::plugin_build::command;
use crate::plugin_build::error::BuildError;
use crate::plugin_build::staging;

/// The version that the guest library is tested with. Its interpreter becomes part of every component.
pub(super) const VERSION: &str = "0.25.1";
/// The version of that interpreter, for which dependencies are chosen.
const PYTHON_VERSION: &str = "3.14";
/// The environment variable that names the Python interpreter that runs componentize-py.
const PYTHON_VARIABLE: &str = "SAGGAR_PYTHON";
const PYTHON_DEFAULT: &str = "python3";
/// Prints the version of an interpreter, and fails if it is too old or cannot make environments.
const PYTHON_CHECK: &str = "import ensurepip, venv, platform, sys; print(platform.python_version()); \
                            sys.exit(sys.version_info < (3, 10))";
/// Runs componentize-py, and prints of a failure what the plugin's author can use: not the tool's own stack.
const LAUNCHER: &str = "import sys\nfrom componentize_py import script\ntry:\n    sys.exit(script())\n\
                        except AssertionError as error:\n    \
                        sys.exit(str(error).partition('\\nCaused by:')[0].partition('\\nStack backtrace:')[0].strip())\n";

/// componentize-py, installed.
pub(super) struct ComponentizeEnvironment {
    /// The interpreter of its virtual environment.
    python: PathBuf,
}

impl ComponentizeEnvironment {
    /// Returns the tool from the user's cache, installed there if it is missing.
    ///
    /// # Errors
    /// `MissingTool` if there is no Python or pip cannot install it; `Io`.
    pub(super) fn find_or_install(quiet: bool) -> Result<ComponentizeEnvironment, BuildError> {
        let directory = staging::cache_directory("componentize-py")?.join(format!("componentize-py-{VERSION}"));
        let python = directory.join("bin/python");
        if !python.exists() {
            if !quiet {
                tracing::info!(version = VERSION, "installing componentize-py");
            }
            staging::install_into(&directory, create)?;
        }
        Ok(ComponentizeEnvironment { python })
    }

    /// Installs requirements into the `site-packages` of `environment`. Only packages without native code can be.
    ///
    /// # Errors
    /// `Tool` with pip's messages; `Io`.
    pub(super) fn install_dependencies(&self, requirements: &[String], environment: &Path) -> Result<(), BuildError> {
        let packages = environment.join("lib/site-packages");
        let record = environment.join("requirements");
        let text = requirements.join("\n");
        if packages.is_dir() && fs::read_to_string(&record).is_ok_and(|before| before == text) {
            return Ok(());
        }
        let at = |source| BuildError::Io { path: packages.clone(), source };
        let _ = fs::remove_dir_all(environment);
        fs::create_dir_all(&packages).map_err(at)?;
        if !requirements.is_empty() {
            let mut pip = pip(&self.python);
            pip.args(["--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none"]);
            pip.args(["--python-version", PYTHON_VERSION, "--target"]).arg(&packages).arg("--").args(requirements);
            let output = command::run_to_completion(&mut pip)?;
            command::check("pip install of the plugin's dependencies, which must be written in Python alone,", output)?;
        }
        fs::write(&record, text).map_err(at)
    }

    /// Writes the types of a world's interfaces, for editors and type checkers.
    ///
    /// # Errors
    /// `Tool`; `Io`.
    pub(super) fn write_bindings(&self, wit: &Path, world: &str, directory: &Path) -> Result<(), BuildError> {
        let _ = fs::remove_dir_all(directory);
        let mut command = self.command(wit, world);
        command.arg("bindings").arg(directory);
        command::check("componentize-py", command::run_to_completion(&mut command)?)
    }

    fn command(&self, wit: &Path, world: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.args(["-c", LAUNCHER, "--quiet", "--wit-path"]).arg(wit).args(["--world", world]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Makes a component of the module `entry` and everything that it imports.
    ///
    /// # Errors
    /// `Tool`, with the traceback of the module that could not be imported.
    pub(super) fn run(
        &self,
        environment: &Path,
        wit: &Path,
        world: &str,
        python_path: &[&Path],
        entry: &str,
        output: &Path,
    ) -> Result<(), BuildError> {
        let mut command = self.command(wit, world);
        command.arg("componentize");
        for directory in python_path {
            command.arg("--python-path").arg(directory);
        }
        command.arg("--output").arg(output).arg(entry);
        // It looks for packages there, and otherwise in the user's own Python.
        command.env("VIRTUAL_ENV", environment);
        let mut output = command::run_to_completion(&mut command)?;
        // It numbers the directories of its path; the first one is the plugin's.
        output.stderr = String::from_utf8_lossy(&output.stderr).replace("\"/0/", "\"src/").into_bytes();
        command::check("componentize-py", output)
    }
}

/// Returns what a build would use: the interpreter and the version of componentize-py. Installs nothing.
///
/// # Errors
/// `MissingTool`.
pub(super) fn find_tools() -> Result<String, BuildError> {
    let python = python_program();
    let mut asked = Command::new(&python);
    asked.args(["-c", PYTHON_CHECK]);
    asked.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command::run_to_completion(&mut asked).map_err(|error| missing_python(&python, error.to_string()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(format!("Python {version} and componentize-py {VERSION}")),
        false if !version.is_empty() => Err(missing_python(&python, format!("this is Python {version}"))),
        false => Err(missing_python(&python, command::error_text(&output))),
    }
}

/// Returns the Python interpreter to make environments with.
fn python_program() -> PathBuf {
    env::var_os(PYTHON_VARIABLE).map_or_else(|| PYTHON_DEFAULT.into(), PathBuf::from)
}

fn missing_python(python: &Path, reason: String) -> BuildError {
    BuildError::MissingTool {
        tool: "Python 3.10 or newer, with venv and pip,",
        reason: format!("{}: {reason}", python.display()),
        hint: format!("on Debian `apt install python3 python3-venv`; {PYTHON_VARIABLE} names another interpreter"),
    }
}

fn create(draft: &Path) -> Result<(), BuildError> {
    let python = python_program();
    let mut venv = Command::new(&python);
    venv.args(["-m", "venv"]).arg(draft).env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME");
    venv.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command::run_to_completion(&mut venv).map_err(|error| missing_python(&python, error.to_string()))?;
    if !output.status.success() {
        return Err(missing_python(&python, command::error_text(&output)));
    }
    let mut install = pip(draft.join("bin/python").as_os_str());
    install.args(["--only-binary", ":all:"]).arg(format!("componentize-py=={VERSION}"));
    let output = command::run_to_completion(&mut install)?;
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError::MissingTool {
        tool: "componentize-py",
        reason: format!("pip could not install version {VERSION}: {}", command::error_text(&output)),
        hint: "connect this machine to a package index for the first build, or configure one that it reaches with \
               `pip config`"
            .to_owned(),
    })
}

fn pip(python: impl AsRef<OsStr>) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    pip.env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME");
    pip.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    pip
}
