//! What every measurement needs: the device, the peers' environment, a folder, and how long it may take.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_device::{Backend, cpu};

use crate::arguments::Arguments;
use crate::environment::{Environment, succeed};

/// One for all works.
pub(crate) struct Stage {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) threads: usize,
    /// What kernels take is said too.
    pub(crate) kernels: bool,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    /// Seconds of each work's that may pass until the machine is quiet.
    pub(crate) patience: u64,
    /// Where the table and the environment are.
    pub(crate) folder: PathBuf,
    python: Option<PathBuf>,
    /// Opened by the first work that needs it.
    environment: OnceCell<Result<Environment, String>>,
}

impl Stage {
    /// # Errors
    /// No threads, or no folder.
    pub(crate) fn new(arguments: &Arguments) -> Result<Stage, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("bench-peers");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Stage {
            backend: cpu::open(Some(arguments.threads)).map_err(|error| error.to_string())?,
            threads: arguments.threads,
            kernels: arguments.kernels,
            seconds: arguments.seconds,
            rounds: arguments.rounds,
            patience: arguments.patience,
            folder,
            python: arguments.python.clone(),
            environment: OnceCell::new(),
        })
    }

    /// # Errors
    /// Why there is none.
    pub(crate) fn environment(&self) -> Result<&Environment, String> {
        let open = || match &self.python {
            Some(python) => Ok(Environment::of(python)),
            None => Environment::open(&self.folder),
        };
        self.environment.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// A folder with what all sides of a comparison begin with; see `export.py`.
    ///
    /// # Errors
    /// What Python says.
    pub(crate) fn start(&self, model: &str, batch: usize, onnx: bool) -> Result<Start, String> {
        let folder = self.folder.join(format!("{model}-b{batch}"));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let start = Start(folder);
        let mut command = self.environment()?.program("export.py", self.threads);
        command.args([model, &batch.to_string()]).arg(&start.0);
        succeed(command.args(onnx.then_some("onnx")))?;
        Ok(start)
    }
}

/// A folder of files for one comparison. It is large, and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Start(PathBuf);

impl Start {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
