//! Imports a model: one call of a plugin's importer, which converts a file in a foreign format to weights and a
//! configuration.

use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, CancelToken, Meter};
use saggar_store::checkpoint::VariableKind;
use wasmtime::component::Resource;

use crate::call_limits::CallClock;
use crate::compiler::children::{CompilePurpose, CompilerMode};
use crate::engine::{CompiledPlugin, PluginEngine, incompatible_error};
use crate::error::PluginError;
use crate::imported_model::ImportedModel;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::limits::{CONFIG_BYTES_MAX, MEMORY_BYTES_MAX};
use crate::model::model_limits::ModelLimits;
use crate::variables::namespace::VariableNamespace;

/// A file to import.
#[derive(Clone, Copy, Debug)]
pub struct ImportRequest<'a> {
    /// The component that contains the importer.
    pub component: &'a [u8],
    /// The file.
    pub file: &'a [u8],
    /// A JSON object for the plugin.
    pub options: &'a str,
    /// Time limit, including the compilation of the component.
    pub time: Duration,
}

impl ImportRequest<'_> {
    /// Imports the file where `host` compiles: in a child, or in this process on `device`. Blocks.
    ///
    /// # Errors
    /// As [`PluginEngine::compile_for`] and [`import`].
    pub fn run(&self, host: &PluginEngine, device: Arc<dyn Backend>) -> Result<ImportedModel, PluginError> {
        let ImportRequest { component, file, options, time } = *self;
        let began = std::time::Instant::now();
        // Compile it here first, so that the child finds it in the cache.
        let plugin = host.compile_for(component, CompilePurpose::Upload, time)?;
        plugin.importer_export()?;
        let time = time.saturating_sub(began.elapsed());
        match host.compiler() {
            CompilerMode::InProcess => {
                let limits = ModelLimits { load_time: time, ..ModelLimits::default() };
                import(host, &plugin, file, options, device, Meter::unlimited(), limits)
            }
            CompilerMode::Children(children) => {
                children.import_file(host.cache_dir().map(ToOwned::to_owned), component, file, options, time)
            }
        }
    }
}

/// Imports `file` in a new instance of the plugin. Blocks.
///
/// `options` is a JSON object for the plugin. `meter` is charged with the weights and with the plugin's device memory.
/// The instance gets the maximum linear memory, because the file is copied into it.
///
/// # Errors
/// `MissingExport` if the plugin has no importer; `Guest` if it refuses the file, with the place it names; the failures
/// of its code, including the deadline of `limits.load_time`; `Device`.
pub fn import(
    host: &PluginEngine,
    plugin: &CompiledPlugin,
    file: &[u8],
    options: &str,
    device: Arc<dyn Backend>,
    meter: Meter,
    limits: ModelLimits,
) -> Result<ImportedModel, PluginError> {
    let importer = plugin.importer_export()?;
    let role = InstanceRole::Predict { plugin: plugin.digest().hex()[..12].into(), reply: None };
    let mut store = InstanceState::new(device, meter, MEMORY_BYTES_MAX, role).into_store(host.engine());
    let clock = CallClock::new(Some(limits.load_time), None);
    let instance = plugin.instantiate(&mut store, clock)?;
    let guest = importer.load(&mut store, &instance).map_err(incompatible_error)?;
    store.data_mut().begin_call(clock);
    let variables = store.data_mut().table.push(VariableNamespace::new(0)).map_err(PluginError::engine)?;
    let lent = Resource::new_borrow(variables.rep());
    let answer = guest.call_import_model(&mut store, file, options, lent);
    let answer = answer.map_err(|error| store.data_mut().trap_error("import", &error))?;
    let config = answer.map_err(|error| store.data_mut().guest_error("import", error))?;
    if config.len() > CONFIG_BYTES_MAX {
        let given = format!("{} bytes", config.len());
        let expected = format!("at most {CONFIG_BYTES_MAX} bytes");
        return Err(PluginError::BadOutput { name: "configuration".to_owned(), expected, given });
    }
    let state = store.data_mut();
    let namespace = state.table.delete(variables).map_err(PluginError::engine)?;
    let shipped = |kind| match kind {
        VariableKind::Parameter | VariableKind::Statistic => true,
        VariableKind::Training => false,
    };
    Ok(ImportedModel { variables: namespace.save(&*state.backend, &CancelToken::never(), shipped)?, config })
}
