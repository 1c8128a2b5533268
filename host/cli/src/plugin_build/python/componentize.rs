//! componentize-py, in a virtual environment in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use saggar_python_env::{PythonEnvError, PythonEnvironment, find_python, interpreter, pip_install};

use crate::plugin_build::command;
use crate::plugin_build::error::BuildError;

/// The version that the guest library is tested with. Its interpreter becomes part of every component.
pub(super) const VERSION: &str = "0.25.1";
/// The version of that interpreter, for which dependencies are chosen.
const PYTHON_VERSION: &str = "3.14";
/// The directory of its environment in the tool cache.
const NAME: &str = "componentize-py-0.25.1";
/// What the environment contains.
const REQUIREMENTS: [&str; 1] = ["componentize-py==0.25.1"];
/// The oldest Python that componentize-py supports is 3.10.
const PYTHON_MINOR_MIN: u32 = 10;
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
        let environment =
            PythonEnvironment { name: NAME, requirements: &REQUIREMENTS, python_minor_min: PYTHON_MINOR_MIN };
        if !quiet && !environment.is_installed() {
            tracing::info!(version = VERSION, "installing componentize-py");
        }
        let directory = environment.find_or_install(&|| false).map_err(missing_tool)?;
        Ok(ComponentizeEnvironment { python: interpreter(&directory) })
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
            let mut pip = pip_install(&self.python);
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
    let version = find_python(PYTHON_MINOR_MIN).map_err(missing_tool)?;
    Ok(format!("Python {version} and componentize-py {VERSION}"))
}

/// Returns the error of an environment as that of a build.
fn missing_tool(error: PythonEnvError) -> BuildError {
    let hint = error.hint();
    let tool = match &error {
        PythonEnvError::Python { .. } => "Python 3.10 or newer, with venv and pip,",
        _ => "componentize-py",
    };
    BuildError::MissingTool { tool, reason: error.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_has_the_version_that_the_guest_library_is_tested_with() {
        assert_eq!(NAME, format!("componentize-py-{VERSION}"));
        assert_eq!(REQUIREMENTS, [format!("componentize-py=={VERSION}")]);
    }
}
