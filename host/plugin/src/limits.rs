//! Limits on plugins and on the host's work for them. Tensor and graph sizes are limited by [`saggar_tensor::limits`].

use std::time::Duration;

use saggar_store::limits::SERIES_MAX;

/// Bytes of a component's declarations.
pub const DECLARATIONS_BYTES_MAX: usize = 64 << 10;
/// Inputs, and outputs, of a step.
pub const STEP_PORTS_MAX: usize = 64;
/// Bytes of the name of a step's input or output.
pub const PORT_NAME_BYTES_MAX: usize = 63;
/// Bytes of a text or reference that a step returns. `wit/step.wit` documents this number.
pub const STEP_TEXT_BYTES_MAX: usize = 2 << 10;
/// Bytes of a file that a step gets as an input.
pub const STEP_FILE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a plugin's component file.
pub const COMPONENT_BYTES_MAX: usize = 256 << 20;
/// Functions in all modules of one component. The reference plugins have up to 1,000, each with up to 75 locals and 18
/// KB.
pub const FUNCTIONS_MAX: u64 = 100_000;
/// Bytes of one function's body. Compile time grows faster than linearly with a function's size.
pub const FUNCTION_BYTES_MAX: u64 = 2 << 20;
/// Locals of one function, with repetitions counted individually: three bytes of a component can declare all of them.
pub const FUNCTION_LOCALS_MAX: u64 = 20_000;
/// Locals of all functions of one component.
pub const LOCALS_MAX: u64 = 4_000_000;
/// Bytes of all functions' bodies of one component.
pub const CODE_BYTES_MAX: u64 = 64 << 20;
/// Compile cost of one component: the sum over its functions of their bytes of code, multiplied by one plus their
/// locals divided by [`LOCALS_PER_COST`]. The compiler tracks locals through a function, so both factors cost time.
pub const COMPILE_COST_MAX: u64 = 512 << 20;
/// Number of locals that doubles the cost of a function's bytes.
pub const LOCALS_PER_COST: u64 = 64;
/// Core modules in one component.
pub const MODULES_MAX: u64 = 128;
/// Components in one component.
pub const COMPONENTS_MAX: u64 = 256;
/// Nesting depth of components and modules, including the outermost component.
pub const COMPONENT_DEPTH_MAX: u64 = 16;
/// Types, imports, exports, instances, aliases and other entries of one component's sections.
pub const COMPONENT_ITEMS_MAX: u64 = 500_000;
/// Data and element segments of one component.
pub const SEGMENTS_MAX: u64 = 100_000;
/// Linear memory of all memories of one instance together, in bytes, unless its job requests more.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Maximum linear memory that a job can request: the whole range of a 32-bit memory.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Elements of all tables of one instance, and initial elements of one table.
pub const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Tables in one module.
pub const TABLES_PER_MODULE_MAX: u32 = 8;
/// Memories in one module.
pub const MEMORIES_PER_MODULE_MAX: u32 = 1;
/// Bytes of a table that stay resident, cleared, for the next instance.
pub const TABLE_KEEP_RESIDENT_BYTES: usize = 64 << 10;
/// Core instances, tables and memories of one component. Python guests have 38 core instances.
pub const CORE_INSTANCES_MAX: u32 = 64;
/// Handles of host resources (tensors, operands, variables and so on) that one instance can hold.
pub const HANDLES_MAX: usize = 50_000;
/// Handles of all resources that one instance can hold, including resources that the component defines.
pub const COMPONENT_HANDLES_MAX: usize = 2 * HANDLES_MAX;
/// Host memory of one instance's constants and graphs being built, in bytes.
pub const HOST_BYTES_MAX: u64 = 1 << 30;
/// Host memory charged for one node of a graph being built, in bytes.
pub const NODE_BYTES: u64 = 512;
/// Bytes that one call can pass from the plugin to the host.
pub const CALL_BYTES_MAX: usize = 512 << 20;
/// Stack of a plugin's code, in bytes.
pub const STACK_BYTES_MAX: usize = 1 << 20;
/// Bytes of a logged line; longer lines are truncated.
pub const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Lines that one instance can log; later ones are only counted.
pub const LOG_LINES_MAX: u64 = 100_000;
/// Bytes that one instance can log; later lines are only counted.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the message and of the place of an error that a plugin returns; longer texts are truncated.
pub const ERROR_TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes of a plugin's state in a checkpoint.
pub const STATE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the configuration that a plugin publishes with a model version.
pub const CONFIG_BYTES_MAX: usize = 16 << 20;
/// Series of metrics that one training can write.
pub const METRIC_SERIES_MAX: usize = SERIES_MAX as usize;
/// Phases that one training can start.
pub const PHASES_MAX: usize = 1_000;
/// Files that one training can write.
pub const OUTPUTS_MAX: usize = saggar_store::limits::OUTPUTS_LISTED_MAX;
/// Bytes of one such file, and of all of them together.
pub const OUTPUT_BYTES_MAX: usize = 1 << 30;
/// Variables in one namespace.
pub const VARIABLES_MAX: usize = 100_000;
/// Items in one batch.
pub const BATCH_ITEMS_MAX: u32 = 1 << 20;
/// Device bytes of a dataset's columns that are kept on the device; batches of larger datasets are copied.
pub const DEVICE_DATASET_BYTES_MAX: u64 = 4 << 30;
/// Dispatches of one `batches.run` whose outputs are pending on the device before they are read.
pub const RUN_OUTPUTS_PENDING_MAX: usize = 64;
/// Inputs, and outputs, of a signature.
pub const SIGNATURE_PORTS_MAX: usize = 256;
/// Class names of one port.
pub const CLASSES_MAX: usize = 100_000;
/// Additional paths of a model.
pub const ROUTES_MAX: usize = 64;
/// Bytes of such a path.
pub const ROUTE_BYTES_MAX: usize = 256;
/// Batch sizes in a signature.
pub const BATCH_SIZES_MAX: usize = 32;
/// Output pieces that one call can send before its answer. `wit/replies.wit` documents this number.
pub const PIECES_MAX: usize = 1 << 16;
/// Bytes of one such piece. `wit/replies.wit` documents this number.
pub const PIECE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a handler's whole response. `wit/http-handler.wit` documents this number.
pub const HANDLER_BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of one piece of a response that a handler streams. `wit/http-stream.wit` documents this number.
pub const HANDLER_PIECE_BYTES_MAX: usize = 64 << 10;
/// Headers of a handler's response, and bytes of their names and values. `wit/http-stream.wit` documents both.
pub const HANDLER_HEADERS_MAX: usize = 32;
/// See [`HANDLER_HEADERS_MAX`].
pub const HANDLER_HEADERS_BYTES_MAX: usize = 8 << 10;
/// Bytes of the description of a handler's route.
pub const HANDLER_DESCRIPTION_BYTES_MAX: usize = 1 << 10;

/// Interval of the epoch ticks at which running instances check their deadlines.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// Time limit for loading a model in one instance, which includes building its graphs.
pub const LOAD_TIME_DEFAULT: Duration = Duration::from_secs(300);
/// Time that a training can compute, log and report metrics without another host call before it counts as hung.
pub const WATCHDOG_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// Time that a training has to return after it was asked to stop and its state was saved.
pub const STOP_GRACE: Duration = Duration::from_secs(20);
/// Device bytes that calls of a model version can leave allocated, unless configured.
pub const RESIDUAL_BYTES_DEFAULT: u64 = 1 << 30;
/// Device bytes of a model's programs up to which larger batch sizes are built.
pub const BATCH_BYTES_DEFAULT: u64 = 1 << 30;
/// Warm instances of one model version.
pub const MODEL_INSTANCES_DEFAULT: usize = 4;

/// Time limit for compiling a component. The largest reference plugin, of 0.7 MB, takes 2 s of processor time in a
/// debug build.
pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(120);
/// Memory that a compile child can allocate, in bytes, plus [`COMPILE_MEMORY_PER_BYTE`] or [`IMPORT_MEMORY_PER_BYTE`]
/// for each byte of input. The largest reference plugin takes 66 MiB.
pub const COMPILE_MEMORY_MAX: u64 = 1 << 30;
/// If the machine has less than twice that memory left, a child can allocate half of the rest, but at least this many
/// bytes.
pub const COMPILE_MEMORY_MIN: u64 = 128 << 20;
/// Additional memory for each byte of a component, or of a graph with its constants.
pub const COMPILE_MEMORY_PER_BYTE: u64 = 4;
/// Additional memory for each byte of an imported model file: the file, the plugin's copy, and the weights.
pub const IMPORT_MEMORY_PER_BYTE: u64 = 6;
/// Concurrent compile children for uploads; as many again for loading model versions, and as many for graphs.
pub const COMPILES_MAX: usize = 2;
/// Uploads that wait for a compile child. More are refused.
pub const COMPILES_WAITING_MAX: usize = 8;
/// Niceness (nice(2)) of compile children and of a server's long background work. Their priority is lower than that of
/// requests and higher than that of jobs' workers, because model versions being loaded wait for a child.
pub const BACKGROUND_NICENESS: i32 = 5;
/// Threads of a compile child.
pub const COMPILE_THREADS_MAX: usize = 4;
/// Nodes, operands and ports of a graph that is compiled in-process, which takes less time than starting a child.
pub const GRAPH_WORK_IN_PLACE_MAX: usize = 4_000;
/// Time limit for compiling a graph in a child, if its call's deadline is later.
pub const GRAPH_COMPILE_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum instances of all plugins in the pool.
pub const POOL_INSTANCES_MAX: u32 = 256;
/// Precompiled artifacts in the cache; the oldest are deleted first.
pub const ARTIFACTS_MAX: usize = 64;
/// Bytes of a precompiled artifact.
pub const ARTIFACT_BYTES_MAX: u64 = 1 << 30;
/// Maximum bytes of the compiled form of an empty component, including images of its memories.
pub const ARTIFACT_BYTES_BASE: u64 = 64 << 20;
/// Additional bytes of compiled form for each byte of the component.
pub const ARTIFACT_BYTES_PER_BYTE: u64 = 8;

const _: () = assert!(MEMORY_BYTES_DEFAULT <= MEMORY_BYTES_MAX);
const _: () = assert!(FUNCTION_LOCALS_MAX <= LOCALS_MAX && FUNCTION_BYTES_MAX <= CODE_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX <= COMPONENT_BYTES_MAX as u64 && CODE_BYTES_MAX <= COMPILE_COST_MAX);
const _: () = assert!(ARTIFACT_BYTES_BASE <= ARTIFACT_BYTES_MAX);
const _: () = assert!(LOG_LINE_BYTES_MAX as u64 <= LOG_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_CONSTANT_BYTES_MAX as u64 <= HOST_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_NODES_MAX as u64 * NODE_BYTES <= HOST_BYTES_MAX);
const _: () = assert!(saggar_tensor::limits::GRAPH_CONSTANT_BYTES_MAX <= CALL_BYTES_MAX);
const _: () = assert!(HANDLER_BODY_BYTES_MAX <= CALL_BYTES_MAX);
