//! The Python environment of the peers: a virtual environment with pinned versions.
//!
//! It is created once, and again if `requirements.txt` changes. If a package cannot be installed, its peers are
//! skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the version of PyTorch and the device it computes on.
const DESCRIBE: &str = "import torch; cuda = torch.cuda.is_available(); print('PyTorch', torch.__version__, \
    *(['with CUDA', torch.version.cuda, 'on', torch.cuda.get_device_name()] if cuda else ['on the CPU: no CUDA']))";

/// A Python with the packages of the peers that could be installed.
#[derive(Debug)]
pub(crate) struct PythonEnvironment {
    python: PathBuf,
    /// The directory of the peers' programs.
    sources: PathBuf,
}

impl PythonEnvironment {
    /// Returns an environment that uses the given Python.
    pub(crate) fn from_python(python: &Path, sources: &Path) -> PythonEnvironment {
        PythonEnvironment { python: python.to_owned(), sources: sources.to_owned() }
    }

    /// Returns the machine's `python3`, or `None` if its PyTorch has no CUDA.
    pub(crate) fn with_cuda(sources: &Path) -> Option<PythonEnvironment> {
        let found = PythonEnvironment::from_python(Path::new("python3"), sources);
        found.torch_description().contains("with CUDA").then_some(found)
    }

    /// Returns a description of its PyTorch.
    pub(crate) fn torch_description(&self) -> String {
        let output = Command::new(&self.python).args(["-c", DESCRIBE]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        if text.is_empty() { "no PyTorch".to_owned() } else { text }
    }

    /// Opens the environment in `folder`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an error if there is no Python to create it with.
    pub(crate) fn open(folder: &Path, sources: &Path) -> Result<PythonEnvironment, String> {
        let (dir, wanted) = (folder.join("environment"), sources.join("requirements.txt"));
        let (python, made_of) = (dir.join("bin/python"), dir.join("requirements.txt"));
        if std::fs::read(&made_of).ok() == std::fs::read(&wanted).ok() {
            return Ok(PythonEnvironment::from_python(&python, sources));
        }
        println!("creating {} from {}", dir.display(), wanted.display());
        let _ = std::fs::remove_dir_all(&dir);
        run_to_success(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        match run_to_success(pip(&python).arg("--requirement").arg(&wanted)) {
            // Copied only now, so that an incomplete installation is tried again next time.
            Ok(()) => drop(std::fs::copy(&wanted, &made_of).map_err(|error| error.to_string())?),
            Err(_) => install_each(&python, &wanted)?,
        }
        Ok(PythonEnvironment::from_python(&python, sources))
    }

    /// Returns a command that runs one of our programs, with the thread limit of its libraries.
    pub(crate) fn python_command(&self, name: &str, threads: usize) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(self.sources.join(name)).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("OMP_NUM_THREADS", threads.to_string()).env("MKL_NUM_THREADS", threads.to_string());
        command
    }

    /// Returns the version of an installed package.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    pub(crate) fn version(&self, package: &str) -> Result<String, String> {
        let program = format!("from importlib.metadata import version; print(version('{package}'))");
        let output = Command::new(&self.python).args(["-c", &program]).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() { Ok(text) } else { Err(format!("{package} is not installed")) }
    }
}

/// Installs the packages one by one and prints those that fail.
fn install_each(python: &Path, requirements: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(requirements).map_err(|error| error.to_string())?;
    for package in text.lines().filter(|line| !line.starts_with('#')) {
        if let Err(reason) = run_to_success(pip(python).arg(package)) {
            println!("{package} cannot be installed: {reason}");
        }
    }
    Ok(())
}

fn pip(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    command
}

/// Runs a command to its end.
///
/// # Errors
/// Returns the last line of its standard error if it fails.
pub(crate) fn run_to_success(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", errors.trim_end().lines().last().unwrap_or("no output")))
}
