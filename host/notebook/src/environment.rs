//! The environment of JupyterLab, with NumPy and Matplotlib for the notebooks themselves.

use std::path::PathBuf;

use saggar_python_env::{PythonEnvError, PythonEnvironment};

use crate::error::NotebookError;

/// The version of JupyterLab, which is also in the requirements.
pub const JUPYTERLAB_VERSION: &str = "4.6.6";
/// The directory of the environment in the tool cache.
const NAME: &str = "jupyterlab-4.6.6";
/// Every package with its version.
const REQUIREMENTS: &str = include_str!("../requirements.txt");
/// Python 3.11, which NumPy and IPython require.
const PYTHON_MINOR_MIN: u32 = 11;

/// Returns the directory of the environment, installed if it is missing. `is_stopped` is asked often, and ends the
/// installation: `None` is returned then.
///
/// # Errors
/// `Environment`.
pub fn find_or_install(is_stopped: &dyn Fn() -> bool) -> Result<Option<PathBuf>, NotebookError> {
    let found = with_environment(|environment| environment.find_or_install(is_stopped));
    match found {
        Ok(directory) => Ok(Some(directory)),
        Err(PythonEnvError::Stopped) => Ok(None),
        Err(source) => Err(NotebookError::Environment { source }),
    }
}

/// Returns whether the environment is installed.
pub fn is_installed() -> bool {
    with_environment(|environment| environment.is_installed())
}

fn with_environment<T>(use_it: impl FnOnce(&PythonEnvironment<'_>) -> T) -> T {
    let requirements: Vec<&str> = REQUIREMENTS.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    use_it(&PythonEnvironment { name: NAME, requirements: &requirements, python_minor_min: PYTHON_MINOR_MIN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_has_an_exact_version() {
        assert!(REQUIREMENTS.lines().all(|line| line.split_once("==").is_some_and(|(name, version)| {
            !name.is_empty() && version.starts_with(|first: char| first.is_ascii_digit())
        })));
        assert!(REQUIREMENTS.lines().any(|line| line == format!("jupyterlab=={JUPYTERLAB_VERSION}")));
        assert_eq!(NAME, format!("jupyterlab-{JUPYTERLAB_VERSION}"));
        for package in ["httpx", "numpy", "matplotlib"] {
            assert!(REQUIREMENTS.lines().any(|line| line.starts_with(&format!("{package}=="))), "{package}");
        }
    }
}
