//! From what a user names to graphs: what a plugin builds, a model version, an ONNX file, a graph in text form.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use saggar_compile::CompileTarget;
use saggar_device::null_backend::{GraphRecording, RecordedGraph};
use saggar_device::{Backend, Meter, NullBackend};
use saggar_plugin::{Host, HostConfig, LoadedModel, ModelLimits, ModelParts, Plugin, PluginError};
use saggar_store::checkpoint::SavedVariable;
use saggar_store::dataset::{Dataset, Datasets};
use saggar_store::models;
use saggar_tensor::{text, verify};

use super::stand_in;
use crate::args::Inspect;
use crate::commands::{build, import, run, serve, stored};
use crate::exit::{self, Failure};
use crate::output::Output;

/// Where a training's dataset is mounted.
const MOUNT: &str = "/data";

/// Graphs, and what kept others from being there.
pub(super) struct Found {
    pub(super) recorded: GraphRecording,
    /// Sentences about trainings and predictions that did not come to their end.
    pub(super) cut_short: Vec<String>,
}

/// The graphs of what `args` names.
///
/// # Errors
/// `no_model` where nothing of that name is there; `invalid` where it has no graph, saying why.
pub(super) fn graphs(args: &Inspect, target: CompileTarget, output: Output) -> Result<Found, Failure> {
    let path = Path::new(&args.source);
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    if path.is_file() && extension == "graph" {
        return read_text(path);
    }
    let mut session = Session::new(args, target)?;
    if path.is_file() && extension == "onnx" {
        session.import(path)?;
    } else if path.is_file() {
        session.component(&read(path)?)?;
    } else if path.is_dir() && !path.join(models::MANIFEST_FILE).is_file() {
        session.component(&read(&build::component(path, output)?)?)?;
    } else {
        session.version()?;
    }
    session.found()
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::invalid(format!("{}: {error}", path.display())))
}

/// A graph as `saggar inspect --stage graph` prints it.
fn read_text(path: &Path) -> Result<Found, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::invalid(format!("{}: {error}", path.display()));
    let text = String::from_utf8(read(path)?).map_err(|error| wrong(&error))?;
    let graph = verify(text::parse(&text).map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    let recorded = RecordedGraph { phase: "text".to_owned(), graph: Arc::new(graph) };
    let recorded = GraphRecording { graphs: vec![recorded], ..GraphRecording::default() };
    Ok(Found { recorded, cut_short: Vec::new() })
}

/// A device that keeps graphs, and plugins that build some.
struct Session<'a> {
    args: &'a Inspect,
    host: Host,
    device: NullBackend,
    cut_short: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(args: &'a Inspect, target: CompileTarget) -> Result<Session<'a>, Failure> {
        let host = Host::new(HostConfig { instances_max: 8, ..HostConfig::default() }).map_err(refused)?;
        Ok(Session { args, host, device: NullBackend::new(target), cut_short: Vec::new() })
    }

    /// What a plugin builds where it trains, and where it predicts with what that training published.
    fn component(&mut self, wasm: &[u8]) -> Result<(), Failure> {
        let plugin = self.host.compile(wasm).map_err(refused)?;
        let mut published = Vec::new();
        if plugin.trains() {
            let datasets = BTreeMap::from([(MOUNT.to_owned(), Arc::new(self.dataset()?))]);
            let parameters = serde_json::Value::Object(run::parameters(&self.args.parameters)?).to_string();
            self.device.set_phase("training");
            let (made, ended) =
                saggar_plugin::rehearse(&self.host, &plugin, &self.device, datasets, parameters, self.args.limit);
            published = made;
            self.note("the training", ended);
        }
        if !plugin.predicts() {
            return Ok(());
        }
        if !plugin.trains() {
            self.predict("prediction", plugin, Vec::new(), String::new());
            return Ok(());
        }
        let several = published.len() > 1;
        for made in published {
            let phase = if several { format!("prediction of {}", made.model) } else { "prediction".to_owned() };
            self.predict(&phase, plugin.clone(), made.variables, made.config);
        }
        Ok(())
    }

    fn dataset(&self) -> Result<Dataset, Failure> {
        let Some(reference) = &self.args.data else { return stand_in::dataset(&self.args.field, self.args.items) };
        let datasets = Datasets::new(self.args.home.join("datasets"));
        let missing = |error: saggar_store::DatasetError| {
            let hint = format!("`saggar inspect` reads datasets of the state directory {}", self.args.home.display());
            Failure::new(exit::NOT_FOUND, "not_found", error.to_string()).hint(hint)
        };
        let info = datasets.resolve(reference).map_err(missing)?;
        Dataset::open(&info.dir).map_err(missing)
    }

    /// What a published version builds.
    fn version(&mut self) -> Result<(), Failure> {
        let hint = "name a plugin's component or directory, a model that the state directory has (--home), an .onnx or a \
                    .graph file";
        let (files, variables) = stored::version(&self.args.source, Some(&self.args.home.join("models")), hint)?;
        let wrong = |error| Failure::invalid(format!("{}: {error}", files.dir.display()));
        let plugin = self.host.compile(&files.load_plugin().map_err(wrong)?).map_err(refused)?;
        self.predict("prediction", plugin, variables, files.manifest.config);
        Ok(())
    }

    /// What the plugin that reads ONNX files builds of one.
    fn import(&mut self, file: &Path) -> Result<(), Failure> {
        let program = std::env::current_exe().unwrap_or_default();
        let places = serve::onnx_plugins(self.args.onnx_plugin.as_deref(), &program);
        let found = places.iter().find(|path| path.is_file()).ok_or_else(|| {
            let message = format!("the plugin that reads ONNX files is not at {}", places[0].display());
            Failure::new(exit::NOT_FOUND, "no_plugin", message).hint("`make plugins` builds it; --onnx-plugin names it")
        })?;
        let plugin = self.host.compile(&read(found)?).map_err(refused)?;
        let options = serde_json::Value::Object(run::parameters(&self.args.parameters)?).to_string();
        let files = import::read(file)?;
        let model = files.payload().map_err(|error| Failure::invalid(format!("{}: {error}", file.display())))?;
        self.device.set_phase("import");
        let (device, limits): (Arc<dyn Backend>, _) = (Arc::new(self.device.clone()), self.limits());
        let meter = Meter::unlimited();
        let imported =
            saggar_plugin::import(&self.host, &plugin, &model, &options, device, meter, limits).map_err(refused)?;
        self.predict("prediction", plugin, imported.variables, imported.config);
        Ok(())
    }

    /// Loads a model and has it predict in every size that it has graphs for.
    fn predict(&mut self, phase: &str, plugin: Plugin, variables: Vec<SavedVariable>, config: String) {
        self.device.set_phase(phase);
        let parts = ModelParts {
            plugin,
            variables,
            config,
            weights_meter: Meter::unlimited(),
            meter: Meter::unlimited(),
            limits: self.limits(),
            started: None,
        };
        let until = Instant::now() + self.args.limit;
        let loaded = LoadedModel::load(&self.host, parts, Arc::new(self.device.clone()));
        let left = until.saturating_duration_since(Instant::now());
        self.note(&format!("the {phase}"), loaded.and_then(|model| model.try_all(left)));
    }

    fn limits(&self) -> ModelLimits {
        ModelLimits { load_time: self.args.limit, ..ModelLimits::default() }
    }

    fn note(&mut self, what: &str, ended: Result<(), PluginError>) {
        if let Err(error) = ended {
            self.cut_short.push(format!("{what} ended early: {error}"));
        }
    }

    fn found(self) -> Result<Found, Failure> {
        let recorded = self.device.recording();
        if recorded.graphs.is_empty() {
            let why = self.cut_short.first().cloned().unwrap_or_else(|| "it builds none".to_owned());
            let hint = "name the dataset that it trains on (--data NAME), or the fields of a stand-in (--field \
                        image=uint8[28,28]), and its parameters after --";
            return Err(Failure::invalid(format!("{} has no graph: {why}", self.args.source)).hint(hint));
        }
        Ok(Found { recorded, cut_short: self.cut_short })
    }
}

/// A plugin that cannot run here at all.
fn refused(error: PluginError) -> Failure {
    Failure::invalid(error.to_string())
}
