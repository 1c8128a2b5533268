//! The context of all measurements: the device, the peers' environment, a folder and time limits.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_device::Backend;

use crate::arguments::BenchArguments;
use crate::environment::{PythonEnvironment, run_to_success};

/// The context that all benchmarks share.
pub(crate) struct BenchContext {
    pub(crate) backend: Arc<dyn Backend>,
    /// The device's name, if one was given.
    pub(crate) device: Option<String>,
    pub(crate) threads: usize,
    /// Shrink networks.
    pub(crate) small: bool,
    /// Print the time of each kernel too.
    pub(crate) kernels: bool,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    /// Seconds that each benchmark can wait for a quiet machine.
    pub(crate) patience: u64,
    /// The folder of the table and the environment.
    pub(crate) folder: PathBuf,
    /// Our time divided by a peer's, by comparison; means are computed from these.
    pub(crate) ratios: RefCell<Vec<(String, f64)>>,
    /// Whether the peer of the last comparison computed on a GPU.
    pub(crate) peer_has_cuda: Cell<bool>,
    python: Option<PathBuf>,
    sources: PathBuf,
    /// Opened by the first benchmark that needs it.
    environment: OnceCell<Result<PythonEnvironment, String>>,
}

impl BenchContext {
    /// Opens the device and creates the folder.
    ///
    /// # Errors
    /// Returns an error if the device or the folder cannot be opened.
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
            peer_has_cuda: Cell::default(),
            python: arguments.python.clone(),
            sources: arguments.sources.clone().unwrap_or_else(|| package.join("benches/peers")),
            environment: OnceCell::new(),
        })
    }

    /// Returns the peers' environment, and opens it if needed.
    ///
    /// # Errors
    /// Returns the reason why it cannot be opened.
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

    /// Returns a folder with the initial tensors of all sides of a comparison; see `export.py`.
    ///
    /// # Errors
    /// Returns Python's error.
    pub(crate) fn exported_folder(&self, model: &str, batch: usize, onnx: bool) -> Result<WorkFolder, String> {
        let start = self.create_folder(&format!("{model}-b{batch}"))?;
        let mut command = self.environment()?.python_command("export.py", self.threads);
        command.args([model, &batch.to_string()]).arg(&start.0);
        run_to_success(command.args(onnx.then_some("onnx")))?;
        Ok(start)
    }

    /// Creates a folder of this name for files that are removed after a benchmark.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(crate) fn create_folder(&self, name: &str) -> Result<WorkFolder, String> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(WorkFolder(folder))
    }
}

/// Opens the device of this name, or the CPU with `threads` threads.
///
/// # Errors
/// Returns the device's error.
pub(crate) fn open_device(device: Option<&str>, threads: usize) -> Result<Arc<dyn Backend>, String> {
    match device {
        None | Some("cpu") => saggar_cpu::open(Some(threads)).map_err(|error| error.to_string()),
        Some(name) => saggar_devices::open(name).map(|choice| choice.backend).map_err(|error| error.to_string()),
    }
}

/// A folder of files for one comparison. It is large and is removed when this is dropped.
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
