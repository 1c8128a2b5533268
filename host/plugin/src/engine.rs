//! The wasmtime engine that compiles and runs plugins.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use saggar_store::Digest;
use wasmtime::component::{Component, HasSelf, Instance, InstancePre, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use crate::artifact::{ArtifactCache, CompiledComponent};
use crate::bindings::{AnyPlugin, http_handler, importer, predictor, step, trainer};
use crate::call_limits::CallClock;
use crate::compiler::children::{CompilePurpose, CompilerMode};
use crate::complexity;
use crate::error::PluginError;
use crate::inspect::{ComponentInterface, check_interface, check_preamble};
use crate::instance_state::InstanceState;
use crate::limits::{
    COMPILE_TIME_MAX, CORE_INSTANCES_MAX, EPOCH_TICK, MEMORIES_PER_MODULE_MAX, MEMORY_BYTES_MAX, POOL_INSTANCES_MAX,
    STACK_BYTES_MAX, TABLE_ELEMENTS_MAX, TABLE_KEEP_RESIDENT_BYTES, TABLES_PER_MODULE_MAX,
};
use crate::wasi;

/// Configuration of a [`PluginEngine`].
#[derive(Clone, Debug)]
pub struct PluginEngineConfig {
    /// Directory of precompiled plugins. With `None`, each process compiles every plugin again. The directory must
    /// belong to this process's user alone: its content is run as native code.
    pub cache_dir: Option<PathBuf>,
    /// Maximum number of instances of all plugins together.
    pub instances_max: u32,
    /// Where plugins and large graphs are compiled: in this process or in child processes.
    pub compiler: CompilerMode,
}

impl Default for PluginEngineConfig {
    fn default() -> PluginEngineConfig {
        PluginEngineConfig { cache_dir: None, instances_max: POOL_INSTANCES_MAX, compiler: CompilerMode::default() }
    }
}

/// The engine that compiles and runs plugins. Clones share the same engine.
#[derive(Clone)]
pub struct PluginEngine(Arc<PluginEngineInner>);

struct PluginEngineInner {
    engine: Engine,
    linker: Linker<InstanceState>,
    cache: Option<ArtifactCache>,
    cache_dir: Option<PathBuf>,
    compiler: CompilerMode,
}

impl std::fmt::Debug for PluginEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("cache", &self.0.cache).finish_non_exhaustive()
    }
}

impl PluginEngine {
    /// Starts an engine and its epoch thread. The thread ends when the last plugin and engine are dropped.
    ///
    /// # Errors
    /// `Engine` if the system refuses address space or a thread. A cache directory that cannot be used is not an error:
    /// a warning in the log gives the reason.
    pub fn new(config: PluginEngineConfig) -> Result<PluginEngine, PluginError> {
        let PluginEngineConfig { cache_dir, instances_max, compiler } = config;
        let engine = new_engine(instances_max)?;
        start_epoch_thread(&engine)?;
        let mut linker = Linker::new(&engine);
        AnyPlugin::add_to_linker::<InstanceState, HasSelf<InstanceState>>(&mut linker, |state| state)
            .map_err(PluginError::engine)?;
        let cache = cache_dir.as_deref().and_then(|dir| match ArtifactCache::open(dir, &engine) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "cannot use the plugin cache");
                None
            }
        });
        Ok(PluginEngine(Arc::new(PluginEngineInner { engine, linker, cache, cache_dir, compiler })))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn compiler(&self) -> &CompilerMode {
        &self.0.compiler
    }

    pub(crate) fn cache_dir(&self) -> Option<&Path> {
        self.0.cache_dir.as_deref()
    }

    /// Compiles like [`PluginEngine::compile_for`], for loading by this process, within [`COMPILE_TIME_MAX`].
    ///
    /// # Errors
    /// As [`PluginEngine::compile_for`].
    pub fn compile(&self, wasm: &[u8]) -> Result<CompiledPlugin, PluginError> {
        self.compile_for(wasm, CompilePurpose::Load, COMPILE_TIME_MAX)
    }

    /// Returns a component ready to run: from the cache, or compiled within `time`. None of its code runs yet. Anything
    /// that is not a plugin or is too complex is refused before compilation. Blocks.
    ///
    /// # Errors
    /// `TooLarge`, `NotComponent`, `Malformed`, `TooComplex`, `WitVersion`, `UnknownImport`, `NotGranted`, `NoExports`,
    /// `HandlerWithoutModel`, `TrainerAndStep`, `Incompatible`; with child processes also `CompileLimit`, `CompilerBusy`, `CompilerStopped` and
    /// `CompilerCrashed`.
    pub fn compile_for(
        &self,
        wasm: &[u8],
        purpose: CompilePurpose,
        time: Duration,
    ) -> Result<CompiledPlugin, PluginError> {
        check_preamble(wasm)?;
        let digest = Digest::of(wasm);
        let span = tracing::debug_span!("plugin", %digest);
        let _entered = span.enter();
        let compile = || {
            check_interface(&complexity::check_complexity(wasm)?)?;
            self.compile_uncached(wasm, purpose, time)
        };
        let component = match &self.0.cache {
            Some(cache) => cache.get_or_compile(&self.0.engine, &digest, compile)?,
            None => compile()?.component,
        };
        let halves = check_interface(&ComponentInterface::from_component(&component, &self.0.engine))?;
        let pre = self.link(&component).map_err(incompatible_error)?;
        let trainer =
            halves.trains.then(|| trainer::GuestIndices::new(&pre)).transpose().map_err(incompatible_error)?;
        let predictor =
            halves.predicts.then(|| predictor::GuestIndices::new(&pre)).transpose().map_err(incompatible_error)?;
        let importer =
            halves.imports.then(|| importer::GuestIndices::new(&pre)).transpose().map_err(incompatible_error)?;
        let handler =
            halves.handles.then(|| http_handler::GuestIndices::new(&pre)).transpose().map_err(incompatible_error)?;
        let step = halves.is_step.then(|| step::GuestIndices::new(&pre)).transpose().map_err(incompatible_error)?;
        Ok(CompiledPlugin(Arc::new(CompiledPluginInner { digest, pre, trainer, predictor, importer, handler, step })))
    }

    /// Resolves the imports of a component. Only one that imports WASI gets that.
    fn link(&self, component: &Component) -> wasmtime::Result<InstancePre<InstanceState>> {
        if !wasi::is_imported_by(component) {
            return self.0.linker.instantiate_pre(component);
        }
        let mut linker = self.0.linker.clone();
        wasi::add_to_linker(&mut linker, component)?;
        linker.instantiate_pre(component)
    }

    fn compile_uncached(
        &self,
        wasm: &[u8],
        purpose: CompilePurpose,
        time: Duration,
    ) -> Result<CompiledComponent, PluginError> {
        match &self.0.compiler {
            CompilerMode::InProcess => {
                let component = Component::from_binary(&self.0.engine, wasm)
                    .map_err(|error| PluginError::Malformed { reason: error.root_cause().to_string() })?;
                Ok(CompiledComponent { component, precompiled_bytes: None })
            }
            CompilerMode::Children(children) => {
                CompiledComponent::from_compile_child(&self.0.engine, children.compile_component(wasm, purpose, time)?)
            }
        }
    }
}

/// Returns the error for an import or export whose type differs from the interface's.
pub(crate) fn incompatible_error(error: wasmtime::Error) -> PluginError {
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    PluginError::Incompatible { reason: chain.join(": ") }
}

/// A plugin ready to run. Clones share the compiled code.
#[derive(Clone)]
pub struct CompiledPlugin(Arc<CompiledPluginInner>);

struct CompiledPluginInner {
    digest: Digest,
    pre: InstancePre<InstanceState>,
    trainer: Option<trainer::GuestIndices>,
    predictor: Option<predictor::GuestIndices>,
    importer: Option<importer::GuestIndices>,
    handler: Option<http_handler::GuestIndices>,
    step: Option<step::GuestIndices>,
}

/// A reference to a plugin that is ready to run as long as others use it.
#[derive(Clone)]
pub struct WeakCompiledPlugin(Weak<CompiledPluginInner>);

impl WeakCompiledPlugin {
    /// Returns the plugin, or `None` if its compiled code was freed.
    pub fn upgrade(&self) -> Option<CompiledPlugin> {
        self.0.upgrade().map(CompiledPlugin)
    }
}

impl std::fmt::Debug for WeakCompiledPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WeakCompiledPlugin").field(&self.upgrade()).finish()
    }
}

impl std::fmt::Debug for CompiledPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CompiledPluginInner { digest, trainer, predictor, .. } = &*self.0;
        let (trains, predicts) = (trainer.is_some(), predictor.is_some());
        f.debug_struct("Plugin")
            .field("digest", digest)
            .field("trains", &trains)
            .field("predicts", &predicts)
            .finish_non_exhaustive()
    }
}

impl CompiledPlugin {
    /// Returns the SHA-256 of the component.
    pub fn digest(&self) -> &Digest {
        &self.0.digest
    }

    /// Returns the memory of the compiled code and data in bytes. It is freed with the last clone.
    pub fn code_bytes(&self) -> usize {
        let code = self.0.pre.component().image_range();
        (code.end as usize).saturating_sub(code.start as usize)
    }

    /// Returns a reference that does not keep the compiled code in memory.
    pub fn downgrade(&self) -> WeakCompiledPlugin {
        WeakCompiledPlugin(Arc::downgrade(&self.0))
    }

    /// Returns whether the plugin exports a trainer.
    pub fn has_trainer(&self) -> bool {
        self.0.trainer.is_some()
    }

    /// Returns whether the plugin exports a predictor.
    pub fn has_predictor(&self) -> bool {
        self.0.predictor.is_some()
    }

    /// Returns whether the plugin exports a step.
    pub fn has_step(&self) -> bool {
        self.0.step.is_some()
    }

    /// Returns the step export.
    ///
    /// # Errors
    /// `MissingExport`.
    pub(crate) fn step_export(&self) -> Result<&step::GuestIndices, PluginError> {
        let missing = PluginError::MissingExport { export: "saggar:plugin/step", purpose: "run as a step" };
        self.0.step.as_ref().ok_or(missing)
    }

    /// Returns the trainer export.
    ///
    /// # Errors
    /// `MissingExport`.
    pub(crate) fn trainer_export(&self) -> Result<&trainer::GuestIndices, PluginError> {
        let missing = PluginError::MissingExport { export: "saggar:plugin/trainer", purpose: "train" };
        self.0.trainer.as_ref().ok_or(missing)
    }

    /// Returns the predictor export.
    ///
    /// # Errors
    /// `MissingExport`.
    pub(crate) fn predictor_export(&self) -> Result<&predictor::GuestIndices, PluginError> {
        let missing = PluginError::MissingExport { export: "saggar:plugin/predictor", purpose: "predict" };
        self.0.predictor.as_ref().ok_or(missing)
    }

    /// Returns the importer export.
    ///
    /// # Errors
    /// `MissingExport`.
    pub(crate) fn importer_export(&self) -> Result<&importer::GuestIndices, PluginError> {
        let missing = PluginError::MissingExport { export: "saggar:plugin/importer", purpose: "import" };
        self.0.importer.as_ref().ok_or(missing)
    }

    /// Returns the export of HTTP handlers, or `None` if the plugin has none.
    pub(crate) fn handler_export(&self) -> Option<&http_handler::GuestIndices> {
        self.0.handler.as_ref()
    }

    /// Instantiates the plugin in `store`.
    ///
    /// # Errors
    /// The errors of the component's start, including the deadline of `clock`.
    pub(crate) fn instantiate(
        &self,
        store: &mut Store<InstanceState>,
        clock: CallClock,
    ) -> Result<Instance, PluginError> {
        store.data_mut().begin_call(clock);
        let instance = self.0.pre.instantiate(&mut *store);
        instance.map_err(|error| store.data_mut().trap_error("start", &error))
    }
}

/// Returns a wasmtime engine for this many instances. The number does not change the compiled code.
pub(crate) fn new_engine(instances_max: u32) -> Result<Engine, PluginError> {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(STACK_BYTES_MAX);
    // Makes a plugin's results equal on every machine.
    config.cranelift_nan_canonicalization(true);
    config.relaxed_simd_deterministic(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling_config(instances_max)));
    Engine::new(&config).or_else(|error| {
        // The pool reserves terabytes of address space, which some systems refuse.
        tracing::warn!(%error, "cannot reserve a pool for plugin instances: they are allocated one by one");
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
        Engine::new(&config).map_err(PluginError::engine)
    })
}

fn pooling_config(instances_max: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances_max);
    // Most components consist of one to three core instances, a few of dozens.
    pool.total_core_instances(instances_max.saturating_mul(8).max(CORE_INSTANCES_MAX));
    pool.total_memories(instances_max.saturating_mul(2).max(CORE_INSTANCES_MAX));
    pool.total_tables(instances_max.saturating_mul(4).max(CORE_INSTANCES_MAX));
    pool.max_core_instances_per_component(CORE_INSTANCES_MAX);
    pool.max_memories_per_component(CORE_INSTANCES_MAX);
    pool.max_tables_per_component(CORE_INSTANCES_MAX);
    pool.max_memories_per_module(MEMORIES_PER_MODULE_MAX);
    pool.max_tables_per_module(TABLES_PER_MODULE_MAX);
    pool.table_elements(TABLE_ELEMENTS_MAX);
    // Small tables of a page or two are cleared when an instance is dropped. If they were returned to the system
    // instead, each would cost the next instance a page fault.
    pool.table_keep_resident(TABLE_KEEP_RESIDENT_BYTES);
    pool.max_memory_size(usize::try_from(MEMORY_BYTES_MAX).unwrap_or(usize::MAX));
    pool
}

/// Starts the thread that increments the engine's epoch. Running plugins check their deadlines at each epoch.
fn start_epoch_thread(engine: &Engine) -> Result<(), PluginError> {
    let engine = engine.weak();
    let tick = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(EPOCH_TICK);
        }
    };
    std::thread::Builder::new().name("plugin-clock".to_owned()).spawn(tick).map_err(PluginError::engine)?;
    Ok(())
}
