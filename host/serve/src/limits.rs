//! Every maximum of the server, by name.

use std::time::Duration;

/// Connections served at once; further ones wait in the kernel's backlog.
pub const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take to send a request's head. An idle connection is closed after this time too.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a body may go without a byte arriving.
pub const BODY_QUIET_MAX: Duration = Duration::from_secs(30);
/// Bytes that must arrive in a second, on the whole.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 64 << 10;
/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long requests in flight may take to finish once the server stops.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes of a body, where no other maximum is named.
pub const BODY_BYTES_MAX: usize = 10 << 20;
/// Bytes of a plugin's component.
pub const PLUGIN_BYTES_MAX: usize = saggar_plugin::limits::COMPONENT_BYTES_MAX;
/// Bytes of a file that a model is made of.
pub const IMPORT_BYTES_MAX: usize = 512 << 20;
/// Bytes of all bodies held at once; past it a request waits for others to finish.
pub const BODIES_BYTES_MAX: usize = 1 << 30;
/// Bytes that all compressed bodies held at once become; past it a request waits for others to finish.
pub const EXPANDED_BYTES_MAX: usize = 512 << 20;
/// Bytes from which on an answer is compressed where its client takes that; a smaller one fits a packet anyway.
pub const COMPRESS_BYTES_MIN: usize = 1 << 10;
/// Bytes of an inference request of the Open Inference Protocol, compressed or not, and of each tensor in it.
pub const INFER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a refused body that are read and dropped, so that the client gets to read the answer.
pub const REFUSED_BYTES_MAX: u64 = 1 << 30;
/// How long a refused body is read and dropped.
pub const REFUSED_TIME_MAX: Duration = Duration::from_secs(10);

/// Nesting of arrays in an input: a batch of items of the highest rank.
pub const JSON_DEPTH_MAX: usize = saggar_tensor::limits::RANK_MAX + 1;
/// Bytes of one decoded input. 10 MiB of JSON hold at most half as many numbers of 8 bytes.
pub const INPUT_BYTES_MAX: usize = BODY_BYTES_MAX * 4;
/// Pixels of a picture. A small file can hold a large one.
pub const IMAGE_PIXELS_MAX: u64 = 1 << 23;
/// Bodies up to this size are decoded where they arrive; larger ones on a thread that may take long.
pub const INLINE_BYTES_MAX: usize = 16 << 10;
/// Fields of a multipart form.
pub const FORM_FIELDS_MAX: usize = 64;

/// Predictions of one model version that wait or are computed at once, where its settings say nothing; further ones are
/// refused.
pub const PREDICTIONS_DEFAULT: usize = 256;
/// The most that settings can ask for.
pub const PREDICTIONS_MAX: usize = 1 << 16;
/// Calls of one model at a time, where its settings say nothing.
pub const INSTANCES_DEFAULT: usize = saggar_plugin::limits::MODEL_INSTANCES_DEFAULT;
/// The most that settings can ask for.
pub const INSTANCES_MAX: usize = 64;
/// A batch that is known to take no longer is computed on the thread that gathered it.
pub const QUICK_TIME_MAX: Duration = Duration::from_millis(2);
/// How long a batch that was thought to be quick may keep that thread, after which it is computed anew on another.
pub const QUICK_LIMIT: Duration = Duration::from_millis(100);
/// Aliases of a model.
pub const ALIASES_MAX: usize = 64;
/// Former default versions of a model that can be rolled back to.
pub const DEFAULTS_REMEMBERED: usize = 16;
/// Versions, of different models, that come up at the same time.
pub const LOADS_MAX: usize = 2;
/// Requests to wake a model that wait to be seen; further ones ask again.
pub const WAKES_WAITING_MAX: usize = 64;
/// How often idle models are looked for.
pub const IDLE_LOOK: Duration = Duration::from_millis(250);
/// The time a prediction gets where its client names none.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// The most time a client can give a prediction.
pub const DEADLINE_MAX: Duration = Duration::from_secs(600);
/// Pieces of an answer that wait for its client to read; past it the plugin waits.
pub const PIECES_WAITING_MAX: usize = 32;
/// Predictions that can be looked at, and are not over yet.
pub const PREDICTIONS_RUNNING_MAX: usize = 1024;
/// Predictions that are over and can still be looked at.
pub const PREDICTIONS_KEPT_MAX: usize = 1000;
/// Bytes of all those, their inputs, outputs and events.
pub const PREDICTIONS_KEPT_BYTES_MAX: usize = 64 << 20;
/// How long each of those can be looked at.
pub const PREDICTIONS_KEPT_TIME: Duration = Duration::from_secs(3600);
/// Bytes of an input that is kept with its prediction.
pub const PREDICTION_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a prediction's events; past it pieces of its outputs come with the whole alone.
pub const PREDICTION_EVENTS_BYTES_MAX: usize = 1 << 20;
/// How long a client can have its answer wait.
pub const PREDICTION_WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of a webhook's address.
pub const WEBHOOK_ADDRESS_BYTES_MAX: usize = 2048;
/// How long one call of a webhook may take.
pub const WEBHOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the last event is sent, until it is taken.
pub const WEBHOOK_TRIES_MAX: u32 = 5;
/// The pause before the second try; it doubles with each.
pub const WEBHOOK_BACKOFF: Duration = Duration::from_millis(500);
/// Webhooks called at once; further ones wait.
pub const WEBHOOKS_AT_ONCE_MAX: usize = 16;
/// Compiled plugins kept at hand for new weights.
pub const COMPILED_MAX: usize = 8;
/// Batch sizes of one version whose executions are counted apart.
pub const BATCHES_COUNTED_MAX: usize = 64;
/// Versions of one model whose series stay in `/metrics` after they were unloaded.
pub const UNLOADED_SERIES_MAX: usize = 8;
/// Versions that one look at the models directory tries to bring up for one model, newest first.
pub const LOAD_TRIES_MAX: usize = 4;

/// Jobs in an answer, where the client names no number.
pub const JOBS_LISTED_DEFAULT: u32 = 100;
/// Bytes of a piece of a log.
pub const LOG_PIECE_BYTES: u64 = 256 << 10;
/// Lines of a log's end that can be asked for.
pub const LOG_TAIL_MAX: usize = 10_000;
/// Bytes of a piece of a job's output.
pub const OUTPUT_PIECE_BYTES: u64 = 256 << 10;
/// Outputs that an answer names where one was asked for that is not there.
pub const OUTPUTS_NAMED_MAX: usize = 10;
/// Bytes of a request's identifier that are taken over from the client.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

const _: () = assert!(BODY_BYTES_MAX <= BODIES_BYTES_MAX);
const _: () = assert!(INFER_BYTES_MAX <= BODIES_BYTES_MAX && INFER_BYTES_MAX <= EXPANDED_BYTES_MAX);
const _: () = assert!(IMPORT_BYTES_MAX <= BODIES_BYTES_MAX);
const _: () = assert!(PLUGIN_BYTES_MAX <= BODIES_BYTES_MAX);
const _: () = assert!(saggar_store::limits::CHUNK_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(INSTANCES_DEFAULT <= INSTANCES_MAX && PREDICTIONS_DEFAULT <= PREDICTIONS_MAX);
