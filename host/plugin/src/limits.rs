//! Named maxima of what a plugin may take, and of the host's work for it. Tensor and graph sizes are limited by
//! [`saggar_tensor::limits`].

use std::time::Duration;

use saggar_store::limits::SERIES_MAX;

/// Bytes of what a component declares of its parameters and data.
pub const DECLARATIONS_BYTES_MAX: usize = 64 << 10;
/// Bytes of a plugin's component file.
pub const COMPONENT_BYTES_MAX: usize = 256 << 20;
/// Functions of one component, in all its modules. The reference plugins have up to 1,000, of 75 locals and 18 KB at most.
pub const FUNCTIONS_MAX: u64 = 100_000;
/// Bytes of one function's body. The compiler takes more than linear time for a large function.
pub const FUNCTION_BYTES_MAX: u64 = 2 << 20;
/// Locals of one function, repetitions written out: three bytes of a component can declare them all.
pub const FUNCTION_LOCALS_MAX: u64 = 20_000;
/// Locals of all functions of one component.
pub const LOCALS_MAX: u64 = 4_000_000;
/// Bytes of all functions' bodies of one component.
pub const CODE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of code of one component, each function's multiplied by one more than its locals divided by
/// [`LOCALS_PER_COST`]: what follows a local through a function costs the compiler both.
pub const COMPILE_COST_MAX: u64 = 512 << 20;
/// Locals that double the cost of a function's bytes.
pub const LOCALS_PER_COST: u64 = 64;
/// Core modules in one component.
pub const MODULES_MAX: u64 = 128;
/// Components in one component.
pub const COMPONENTS_MAX: u64 = 256;
/// Levels of components and modules in each other, the outermost component counted.
pub const COMPONENT_DEPTH_MAX: u64 = 16;
/// Types, imports, exports, instances, aliases and other entries of one component's sections.
pub const COMPONENT_ITEMS_MAX: u64 = 500_000;
/// Data and element segments of one component.
pub const SEGMENTS_MAX: u64 = 100_000;
/// Linear memory of one instance, all its memories together, unless its job asks for more.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// The most linear memory that can be asked for: a 32-bit memory's whole range.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Elements of all tables of one instance, and of one table from the start.
pub const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Tables that one module may define.
pub const TABLES_PER_MODULE_MAX: u32 = 8;
/// Memories that one module may define.
pub const MEMORIES_PER_MODULE_MAX: u32 = 1;
/// Bytes of a table that stay in memory, cleared, for the next instance.
pub const TABLE_KEEP_RESIDENT_BYTES: usize = 64 << 10;
/// Core instances, tables and memories one component may be made of. Python guests have 38 core instances.
pub const CORE_INSTANCES_MAX: u32 = 64;
/// Handles of host resources (tensors, operands, variables ...) one instance may hold at a time.
pub const HANDLES_MAX: usize = 50_000;
/// Handles of all resources that one instance may hold at a time, those that the component defines itself among them.
pub const COMPONENT_HANDLES_MAX: usize = 2 * HANDLES_MAX;
/// Host memory that one instance's constants and unbuilt graphs may take.
pub const HOST_BYTES_MAX: u64 = 1 << 30;
/// Host memory that one node of a graph being built is charged with.
pub const NODE_BYTES: u64 = 512;
/// Bytes that one call may bring from the plugin to the host.
pub const CALL_BYTES_MAX: usize = 512 << 20;
/// Stack of a plugin's code.
pub const STACK_BYTES_MAX: usize = 1 << 20;
/// Bytes of a logged line; the rest is cut.
pub const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Lines that one instance may log; the rest is counted.
pub const LOG_LINES_MAX: u64 = 100_000;
/// Bytes that one instance may log; the rest is counted.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the message of an error that a plugin answers, and of its place; the rest is cut.
pub const ERROR_TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes of the state that a plugin gives to a checkpoint.
pub const STATE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the configuration a plugin publishes with a model version.
pub const CONFIG_BYTES_MAX: usize = 16 << 20;
/// Distinct series of metrics that one training may write.
pub const METRIC_SERIES_MAX: usize = SERIES_MAX as usize;
/// Phases that one training may begin.
pub const PHASES_MAX: usize = 1_000;
/// Files that one training may write.
pub const OUTPUTS_MAX: usize = saggar_store::limits::OUTPUTS_LISTED_MAX;
/// Bytes of one such file, and of all of them together.
pub const OUTPUT_BYTES_MAX: usize = 1 << 30;
/// Variables in one namespace.
pub const VARIABLES_MAX: usize = 100_000;
/// Items in one batch.
pub const BATCH_ITEMS_MAX: u32 = 1 << 20;
/// Device bytes of the columns that batches are drawn from on a device: larger ones are copied batch by batch.
pub const DEVICE_DATASET_BYTES_MAX: u64 = 4 << 30;
/// Dispatches of one `batches.run` whose outputs wait on the device before they are read.
pub const RUN_OUTPUTS_PENDING_MAX: usize = 64;
/// Ports of a signature, inputs and outputs each.
pub const SIGNATURE_PORTS_MAX: usize = 256;
/// Class names of one port.
pub const CLASSES_MAX: usize = 100_000;
/// Paths of a model's own.
pub const ROUTES_MAX: usize = 64;
/// Bytes of such a path.
pub const ROUTE_BYTES_MAX: usize = 256;
/// Batch sizes of a signature.
pub const BATCH_SIZES_MAX: usize = 32;
/// Pieces of outputs that one call may send ahead of its answer. `wit/replies.wit` names it.
pub const PIECES_MAX: usize = 1 << 16;
/// Bytes of one such piece. `wit/replies.wit` names it.
pub const PIECE_BYTES_MAX: usize = 16 << 10;

/// How often the clock by which instances are interrupted moves on.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// How long a model may take to load in one instance: it builds its graphs meanwhile.
pub const LOAD_TIME_DEFAULT: Duration = Duration::from_secs(300);
/// How long a training may compute, log and report without asking for anything else before it counts as hung.
pub const WATCHDOG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// How long a training that was told to stop, and whose state is safe, may take to return.
pub const STOP_GRACE: Duration = Duration::from_secs(20);
/// Device bytes that calls of a model version may leave behind, where its host says nothing.
pub const RESIDUAL_BYTES_DEFAULT: u64 = 1 << 30;
/// Device bytes of a model's programs up to which larger batch sizes are built.
pub const BATCH_BYTES_DEFAULT: u64 = 1 << 30;
/// Warm instances of one model version.
pub const MODEL_INSTANCES_DEFAULT: usize = 4;

/// How long a component may take to compile. The largest reference plugin, of 0.7 MB, takes 2 s of processor time in a debug
/// build.
pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(120);
/// Memory that a compile child may allocate; the largest reference plugin takes 66 MiB. To this come
/// [`COMPILE_MEMORY_PER_BYTE`] and [`IMPORT_MEMORY_PER_BYTE`].
pub const COMPILE_MEMORY_MAX: u64 = 1 << 30;
/// Where the machine has less than twice that left, a child may allocate half of it, but this much at least.
pub const COMPILE_MEMORY_MIN: u64 = 128 << 20;
/// Further memory for each byte of a component, or of a graph with its constants.
pub const COMPILE_MEMORY_PER_BYTE: u64 = 4;
/// Further memory for each byte of a model file that is imported: the file, the plugin's copy of it, and weights made of it.
pub const IMPORT_MEMORY_PER_BYTE: u64 = 6;
/// Compile children that run at a time for uploads, as many for model versions that come up, and as many for graphs.
pub const COMPILES_MAX: usize = 2;
/// Uploads that wait for one. More are refused.
pub const COMPILES_WAITING_MAX: usize = 8;
/// Niceness (nice(2)) of compile children and of a server's long work in the background: a lower scheduling priority than that
/// of requests, and a higher one than that of jobs' workers, because models that are loaded wait for a child.
pub const BACKGROUND_NICENESS: i32 = 5;
/// Threads of a compile child.
pub const COMPILE_THREADS_MAX: usize = 4;
/// Nodes, operands and ports of a graph that is compiled in place: less work than starting a child.
pub const GRAPH_WORK_IN_PLACE_MAX: usize = 4_000;
/// How long a graph may take to compile in a child, where its call's deadline is later.
pub const GRAPH_COMPILE_TIME_MAX: Duration = Duration::from_secs(120);

/// Instances of all plugins in the pool, at most.
pub const POOL_INSTANCES_MAX: u32 = 256;
/// Precompiled artefacts kept in the cache; the oldest go first.
pub const ARTIFACTS_MAX: usize = 64;
/// Bytes of a precompiled artefact.
pub const ARTIFACT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of what is compiled of an empty component, at most; images of its memories among them.
pub const ARTIFACT_BYTES_BASE: u64 = 64 << 20;
/// Further bytes for each byte of the component.
pub const ARTIFACT_BYTES_PER_BYTE: u64 = 8;

/// How long the models directory must be quiet before a change counts as complete.
pub const WATCH_DEBOUNCE: Duration = Duration::from_millis(200);
/// How often the models directory is looked at although nothing was reported.
pub const WATCH_RESCAN: Duration = Duration::from_secs(30);

const _: () = assert!(MEMORY_BYTES_DEFAULT <= MEMORY_BYTES_MAX);
const _: () = assert!(FUNCTION_LOCALS_MAX <= LOCALS_MAX && FUNCTION_BYTES_MAX <= CODE_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX <= COMPONENT_BYTES_MAX as u64 && CODE_BYTES_MAX <= COMPILE_COST_MAX);
const _: () = assert!(ARTIFACT_BYTES_BASE <= ARTIFACT_BYTES_MAX);
const _: () = assert!(LOG_LINE_BYTES_MAX as u64 <= LOG_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_CONSTANT_BYTES_MAX as u64 <= HOST_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_NODES_MAX as u64 * NODE_BYTES <= HOST_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_CONSTANT_BYTES_MAX <= CALL_BYTES_MAX);
