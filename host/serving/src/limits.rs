//! Named limits of serving models.

use std::time::Duration;

/// Bytes of the options file beside a file in the models directory that is to be imported.
pub const IMPORT_OPTIONS_BYTES_MAX: u64 = 1 << 20;
/// Number of external files in which an ONNX model can store tensors.
pub const EXTERNAL_FILES_MAX: usize = 1000;
/// Bytes of the name of an external file, which must fit an archive header.
pub const EXTERNAL_NAME_BYTES_MAX: usize = 99;
/// Bytes of a model in the models directory together with its external files: the capacity of a plugin's memory.
pub const DROPPED_BYTES_MAX: u64 = 2 << 30;
/// Bytes of memory that the requests of all clients can use, from their bodies to their responses, if the size of the
/// machine's memory is unknown.
pub const REQUEST_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// Lower bound of that budget if it is derived from the machine's memory.
pub const REQUEST_MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Upper bound of that budget if it is derived from the machine's memory.
pub const REQUEST_MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Divisor of the machine's memory that gives the budget.
pub const REQUEST_MEMORY_DIVISOR: u64 = 4;
/// Time that a request waits for memory held by others before it is refused.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Number of client accounts from which on accounts without charges are dropped.
pub const MEMORY_ACCOUNTS_KEPT_MAX: usize = 1024;
/// Predictions of one model version that are queued or run at the same time if its configuration sets no limit. Further
/// ones are refused.
pub const PREDICTIONS_DEFAULT: usize = 256;
/// Upper bound for the configured value.
pub const PREDICTIONS_MAX: usize = 1 << 16;
/// Lower bound for the concurrent calls of one model if its configuration sets none. The default is the number of
/// cores.
pub const INSTANCES_MIN: usize = 2;
/// Upper bound for that default.
pub const INSTANCES_DEFAULT: usize = saggar_plugin::limits::MODEL_INSTANCES_DEFAULT;
/// Upper bound for the configured number of instances.
pub const INSTANCES_MAX: usize = 64;
/// Blocking threads of the runtime. They run the code of models, load versions, read and write files, and take over the
/// connections of threads that compute in place.
pub const BLOCKING_THREADS_MAX: usize = 512;
/// Number of those that can run the code of models at the same time. Further batches wait.
pub const GUEST_THREADS_MAX: usize = 256;
/// Batches that can be computed in place at the same time, each of which can occupy one of those threads. Further ones
/// are dispatched like slow batches.
pub const IN_PLACE_BATCHES_MAX: usize = 64;
/// Expected duration up to which a batch is computed on the thread that gathered it.
pub const QUICK_BATCH_TIME_MAX: Duration = Duration::from_millis(2);
/// Duration from which on a batch counts as slow, whatever earlier batches took.
pub const SLOW_BATCH_TIME_MIN: Duration = Duration::from_millis(20);
/// Maximum duration of a batch that is computed in place. After it the batch is recomputed on another thread.
pub const IN_PLACE_BATCH_TIME_MAX: Duration = Duration::from_millis(100);
/// Pieces of a response that a handler streams, each of up to 64 KiB, that wait for a slow client. Past this the plugin
/// waits.
pub const HANDLER_PIECES_WAITING_MAX: usize = 8;
/// Time after the deadline of a streamed response in which the interrupted plugin must have ended.
pub const STREAM_END_GRACE: Duration = Duration::from_secs(2);
/// Aliases of a model.
pub const ALIASES_MAX: usize = 64;
/// Former default versions of a model that it can be rolled back to.
pub const FORMER_DEFAULTS_MAX: usize = 16;
/// Versions of different models that are loaded at the same time.
pub const LOADS_MAX: usize = 2;
/// Duration of a load after which another one starts beside it, so that a version that never becomes ready blocks no
/// other model.
pub const LOAD_TURN_TIME_MAX: Duration = Duration::from_secs(5);
/// Upper bound for the versions that are loaded at the same time, whatever their duration.
pub const SLOW_LOADS_MAX: usize = 16;
/// Queued requests to wake a model. Further ones are retried by the request that waits.
pub const WAKE_REQUESTS_MAX: usize = 64;
/// Versions of a model that are loaded at the same time only because requests named them.
pub const ON_DEMAND_VERSIONS_MAX: usize = 4;
/// Idle time after which such a version is unloaded.
pub const ON_DEMAND_IDLE_MAX: Duration = Duration::from_secs(600);
/// Interval at which idle models are searched for.
pub const IDLE_MODEL_POLL: Duration = Duration::from_millis(250);
/// Interval at which the device that models run on is checked for loss.
pub const DEVICE_LOSS_POLL: Duration = Duration::from_millis(100);
/// Time for which opening a replacement for a lost device is retried. If the server restarts instead, it answers again
/// within five seconds of the loss.
pub const DEVICE_RECOVERY_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts to open a device.
pub const DEVICE_RECOVERY_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Deadline of a prediction if its client sets none.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// Longest deadline that a client can set for a prediction.
pub const DEADLINE_MAX: Duration = Duration::from_secs(600);
/// Divisor of the models' memory that gives the bytes that the calls of one version can leave allocated.
pub const MODEL_RETAINED_MEMORY_DIVISOR: u64 = 8;
/// Divisor of the models' memory that gives the bytes up to which the programs of one version are built for larger
/// batch sizes.
pub const MODEL_BATCH_MEMORY_DIVISOR: u64 = 16;
/// Compiled plugins that are cached for new weights.
pub const COMPILED_PLUGINS_MAX: usize = 8;
/// Bytes of compiled code and data up to which a plugin stays in memory after its last version was unloaded.
pub const COMPILED_PLUGIN_BYTES_MAX: usize = 8 << 20;
/// Batch sizes of one version whose executions are counted separately.
pub const BATCHES_COUNTED_MAX: usize = 64;
/// Versions of one model whose series stay in `/metrics` after they were unloaded.
pub const UNLOADED_SERIES_MAX: usize = 8;
/// Versions of one model that one scan of the models directory tries to load, newest first.
pub const LOAD_TRIES_MAX: usize = 4;

const _: () = assert!(REQUEST_MEMORY_BYTES_MIN <= REQUEST_MEMORY_BYTES_MAX);
// Leaves threads for other blocking work.
const _: () = assert!(GUEST_THREADS_MAX + IN_PLACE_BATCHES_MAX + SLOW_LOADS_MAX <= BLOCKING_THREADS_MAX / 4 * 3);
const _: () = assert!(LOADS_MAX <= SLOW_LOADS_MAX);
const _: () = assert!(INSTANCES_DEFAULT <= INSTANCES_MAX && PREDICTIONS_DEFAULT <= PREDICTIONS_MAX);
