//! Loads graphs from a plugin, a model version, an ONNX file, or a graph in text form.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use saggar_compile::CompileTarget;
use saggar_device::null_backend::{GraphRecording, RecordedGraph};
use saggar_device::{Backend, Meter, NullBackend};
use saggar_plugin::{
    CompiledPlugin, LoadedModel, ModelLimits, ModelParts, PluginEngine, PluginEngineConfig, PluginError,
};
use saggar_reference_plugins::ONNX_PLUGIN;
use saggar_store::ImageInputs;
use saggar_store::checkpoint::SavedVariable;
use saggar_store::dataset::{ColumnarDataset, DatasetStore};
use saggar_store::models;
use saggar_tensor::{text, verify};

use super::placeholder_dataset;
use crate::args::InspectArgs;
use crate::commands::{import, run, stored_version};
use crate::component_source::{ComponentSource, named_reference};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The mount point of a training's dataset.
const MOUNT: &str = "/data";

/// Loaded graphs, and the reasons why others are missing.
pub(super) struct LoadedGraphs {
    pub(super) recorded: GraphRecording,
    /// One sentence for each training or prediction that ended early.
    pub(super) incomplete_phases: Vec<String>,
}

/// Loads the graphs that `args` refers to.
///
/// # Errors
/// Returns `no_model` if nothing of that name exists, and `invalid` with the reason if it has no graph.
pub(super) fn load_graphs(
    args: &InspectArgs,
    target: CompileTarget,
    output: CliOutput,
) -> Result<LoadedGraphs, CliError> {
    let path = Path::new(&args.source);
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    if path.is_file() && extension == "graph" {
        return read_graph_text(path);
    }
    let mut session = InspectSession::new(args, target, output)?;
    if path.is_file() && extension == "onnx" {
        session.record_import(path)?;
    } else if path.is_file() || (path.is_dir() && !path.join(models::MANIFEST_FILE).is_file()) {
        session.record_component(&ComponentSource::find_or_build(path, output)?.read()?)?;
    } else if let Some(plugin) = named_reference(path).filter(|_| !session.has_model(&args.source)) {
        session.record_component(plugin.component())?;
    } else {
        session.record_version()?;
    }
    session.finish()
}

fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::invalid(format!("{}: {error}", path.display())))
}

/// Reads a graph in the format of `saggar inspect --stage graph`.
fn read_graph_text(path: &Path) -> Result<LoadedGraphs, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::invalid(format!("{}: {error}", path.display()));
    let text = String::from_utf8(read_file(path)?).map_err(|error| wrong(&error))?;
    let graph = verify(text::parse(&text).map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    let recorded = RecordedGraph { phase: "text".to_owned(), graph: Arc::new(graph) };
    let recorded = GraphRecording { graphs: vec![recorded], ..GraphRecording::default() };
    Ok(LoadedGraphs { recorded, incomplete_phases: Vec::new() })
}

/// A device that records graphs, and the plugins that build them.
struct InspectSession<'a> {
    args: &'a InspectArgs,
    output: CliOutput,
    host: PluginEngine,
    device: NullBackend,
    cut_short: Vec<String>,
}

impl<'a> InspectSession<'a> {
    fn new(args: &'a InspectArgs, target: CompileTarget, output: CliOutput) -> Result<InspectSession<'a>, CliError> {
        let host = PluginEngine::new(PluginEngineConfig { instances_max: 8, ..PluginEngineConfig::default() })
            .map_err(plugin_error)?;
        Ok(InspectSession { args, output, host, device: NullBackend::new(target), cut_short: Vec::new() })
    }

    /// Records the graphs of a plugin's training, and of predictions with the models that this training published.
    fn record_component(&mut self, wasm: &[u8]) -> Result<(), CliError> {
        let plugin = self.host.compile(wasm).map_err(plugin_error)?;
        let mut published = Vec::new();
        if plugin.has_trainer() {
            let datasets = BTreeMap::from([(MOUNT.to_owned(), Arc::new(self.open_dataset()?))]);
            let parameters = serde_json::Value::Object(run::parse_parameters(&self.args.parameters)?).to_string();
            self.device.set_phase("training");
            let (made, ended) =
                saggar_plugin::dry_run(&self.host, &plugin, &self.device, datasets, parameters, self.args.limit);
            published = made;
            self.note_incomplete("the training", ended);
        }
        if !plugin.has_predictor() {
            return Ok(());
        }
        if !plugin.has_trainer() {
            self.record_predictions("prediction", plugin, Vec::new(), Default::default());
            return Ok(());
        }
        let several = published.len() > 1;
        for made in published {
            let phase = if several { format!("prediction of {}", made.model) } else { "prediction".to_owned() };
            self.record_predictions(&phase, plugin.clone(), made.variables, (made.config, made.inputs));
        }
        Ok(())
    }

    fn open_dataset(&self) -> Result<ColumnarDataset, CliError> {
        let Some(reference) = &self.args.data else {
            return placeholder_dataset::placeholder_dataset(&self.args.field, self.args.items);
        };
        let datasets = DatasetStore::new(self.args.home.join("datasets"));
        let missing = |error: saggar_store::DatasetError| {
            let hint = format!("`saggar inspect` reads datasets of the state directory {}", self.args.home.display());
            CliError::new(exit::NOT_FOUND, "not_found", error.to_string()).with_hint(hint)
        };
        let info = datasets.resolve(reference).map_err(missing)?;
        datasets.open(&info).map_err(missing)
    }

    /// Records the graphs of a published version.
    fn record_version(&mut self) -> Result<(), CliError> {
        let hint = "name a plugin's component or directory, a model that the state directory has (--home), an .onnx or a \
                    .graph file";
        let (files, variables) =
            stored_version::open_version(&self.args.source, Some(&self.args.home.join("models")), hint)?;
        let wrong = |error| CliError::invalid(format!("{}: {error}", files.dir.display()));
        let plugin = self.host.compile(&files.load_plugin().map_err(wrong)?).map_err(plugin_error)?;
        self.record_predictions("prediction", plugin, variables, (files.manifest.config, files.manifest.inputs));
        Ok(())
    }

    /// Returns whether the state directory has a model of this name.
    fn has_model(&self, name: &str) -> bool {
        self.args.home.join("models").join(name).is_dir()
    }

    /// Records the graphs that the ONNX plugin builds from a file.
    fn record_import(&mut self, file: &Path) -> Result<(), CliError> {
        let importer = self.args.onnx_plugin.as_deref().unwrap_or(Path::new(ONNX_PLUGIN));
        let component = ComponentSource::find_or_build(importer, self.output)?.read()?;
        let plugin = self.host.compile(&component).map_err(plugin_error)?;
        let options = serde_json::Value::Object(run::parse_parameters(&self.args.parameters)?).to_string();
        let files = import::read_model_files(file)?;
        let model =
            files.plugin_payload().map_err(|error| CliError::invalid(format!("{}: {error}", file.display())))?;
        self.device.set_phase("import");
        let (device, limits): (Arc<dyn Backend>, _) = (Arc::new(self.device.clone()), self.model_limits());
        let meter = Meter::unlimited();
        let imported = saggar_plugin::import(&self.host, &plugin, &model, &options, device, meter, limits)
            .map_err(plugin_error)?;
        self.record_predictions("prediction", plugin, imported.variables, (imported.config, ImageInputs::new()));
        Ok(())
    }

    /// Loads a model and runs a prediction for every batch size that it has graphs for.
    fn record_predictions(
        &mut self,
        phase: &str,
        plugin: CompiledPlugin,
        variables: Vec<SavedVariable>,
        (config, inputs): (String, ImageInputs),
    ) {
        self.device.set_phase(phase);
        let parts = ModelParts {
            plugin,
            variables,
            config,
            inputs,
            weights_meter: Meter::unlimited(),
            meter: Meter::unlimited(),
            limits: self.model_limits(),
            on_instance_start: None,
        };
        let until = Instant::now() + self.args.limit;
        let loaded = LoadedModel::load(&self.host, parts, Arc::new(self.device.clone()));
        let left = until.saturating_duration_since(Instant::now());
        self.note_incomplete(
            &format!("the {phase}"),
            loaded.and_then(|model| model.predict_defaults_in_all_sizes(left)),
        );
    }

    fn model_limits(&self) -> ModelLimits {
        ModelLimits { load_time: self.args.limit, ..ModelLimits::default() }
    }

    fn note_incomplete(&mut self, what: &str, ended: Result<(), PluginError>) {
        if let Err(error) = ended {
            self.cut_short.push(format!("{what} ended early: {error}"));
        }
    }

    fn finish(self) -> Result<LoadedGraphs, CliError> {
        let recorded = self.device.recording();
        if recorded.graphs.is_empty() {
            let why = self.cut_short.first().cloned().unwrap_or_else(|| "it builds no graph".to_owned());
            let hint = "name the dataset that it trains on (--data NAME), or the fields of a placeholder (--field \
                        image=uint8[28,28]), and its parameters after --";
            return Err(CliError::invalid(format!("{} has no graph: {why}", self.args.source)).with_hint(hint));
        }
        Ok(LoadedGraphs { recorded, incomplete_phases: self.cut_short })
    }
}

/// Converts the error of a plugin that cannot run here.
fn plugin_error(error: PluginError) -> CliError {
    CliError::invalid(error.to_string())
}
