//! What every measurement needs: the device, the peers' environment, a folder, and how long it may take.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_device::{Backend, cpu, select};

use crate::arguments::BenchArguments;
use crate::environment::{PythonEnvironment, run_to_success};

/// One for all works.
pub(crate) struct BenchContext {
    pub(crate) backend: Arc<dyn Backend>,
    /// Its name, where one was given.
    pub(crate) device: Option<String>,
    pub(crate) threads: usize,
    /// Networks shrink.
    pub(crate) small: bool,
    /// What kernels take is said too.
    pub(crate) kernels: bool,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    /// Seconds of each work's that may pass until the machine is quiet.
    pub(crate) patience: u64,
    /// Where the table and the environment are.
    pub(crate) folder: PathBuf,
    /// Our time over a peer's, by what was compared; means are of these.
    pub(crate) ratios: RefCell<Vec<(String, f64)>>,
    python: Option<PathBuf>,
    sources: PathBuf,
    /// Opened by the first work that needs it.
    environment: OnceCell<Result<PythonEnvironment, String>>,
}

impl BenchContext {
    /// # Errors
    /// No threads, or no folder.
    pub(crate) fn new(arguments: &BenchArguments) -> Result<BenchContext, String> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| package.join("../../target"), PathBuf::from);
        let folder = arguments.folder.clone().unwrap_or_else(|| target.join("bench-peers"));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(BenchContext {
            backend: open_device(arguments.device.as_deref(), arguments.threads)?,
            device: arguments.device.clone(),
            threads: arguments.threads,
            small: arguments.small,
            kernels: arguments.kernels,
            seconds: arguments.seconds,
            rounds: arguments.rounds,
            patience: arguments.patience,
            folder,
            ratios: RefCell::default(),
            python: arguments.python.clone(),
            sources: arguments.sources.clone().unwrap_or_else(|| package.join("benches/peers")),
            environment: OnceCell::new(),
        })
    }

    /// # Errors
    /// Why there is none.
    pub(crate) fn environment(&self) -> Result<&PythonEnvironment, String> {
        let open = || {
            if let Some(python) = &self.python {
                return Ok(PythonEnvironment::from_python(python, &self.sources));
            }
            let found = self.device.as_ref().and_then(|_| PythonEnvironment::with_cuda(&self.sources));
            found.map_or_else(|| PythonEnvironment::open(&self.folder, &self.sources), Ok)
        };
        self.environment.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// A folder with what all sides of a comparison begin with; see `export.py`.
    ///
    /// # Errors
    /// What Python says.
    pub(crate) fn exported_folder(&self, model: &str, batch: usize, onnx: bool) -> Result<WorkFolder, String> {
        let start = self.create_folder(&format!("{model}-b{batch}"))?;
        let mut command = self.environment()?.python_command("export.py", self.threads);
        command.args([model, &batch.to_string()]).arg(&start.0);
        run_to_success(command.args(onnx.then_some("onnx")))?;
        Ok(start)
    }

    /// A folder of this name, for what is removed after a work.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create_folder(&self, name: &str) -> Result<WorkFolder, String> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(WorkFolder(folder))
    }
}

/// Opens the device of a name; without one the processor, with so many threads.
///
/// # Errors
/// The device's.
pub(crate) fn open_device(device: Option<&str>, threads: usize) -> Result<Arc<dyn Backend>, String> {
    match device {
        None | Some("cpu") => cpu::open(Some(threads)).map_err(|error| error.to_string()),
        Some(name) => select::open(name).map(|choice| choice.backend).map_err(|error| error.to_string()),
    }
}

/// A folder of files for one comparison. It is large, and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkFolder(PathBuf);

impl WorkFolder {
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
