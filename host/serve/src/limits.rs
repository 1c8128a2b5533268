//! Every maximum of the server, by name.

use std::time::Duration;

use saggar_store::limits::CHUNK_BYTES_MAX;

/// Connections served at once; further ones wait, or make idle ones end.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections that each listener has of its own, whatever comes in by the others.
pub const LISTENER_CONNECTIONS_OWN: usize = 32;
/// File descriptors that are left for the server's own files, where the system allows that many.
pub const DESCRIPTORS_RESERVED: usize = 256;
/// How many files the server asks the system to let it have open, if it may ask for that many.
pub const DESCRIPTORS_WANTED_MAX: u64 = 1 << 16;
/// How long a connection that has to make room for another may take to end, where nothing runs on it.
pub const EVICTED_CONNECTION_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a new connection waits for one to end before another one has to make room.
pub const EVICTION_PAUSE: Duration = Duration::from_millis(100);
/// How long a request may last that was let in without a key where one is asked for, once connections are short.
pub const UNAUTHENTICATED_REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may take to send a request's head. An idle connection is closed after this time too.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a body may go without a byte arriving.
pub const BODY_IDLE_MAX: Duration = Duration::from_secs(30);
/// Bytes that must arrive in a second, on the mean over each [`BODY_IDLE_MAX`].
pub const BODY_BYTES_PER_SECOND_MIN: usize = 64 << 10;
/// Bytes of a request's head. It has at most 100 fields over HTTP/1.1, which is the parser's own limit.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of the name that a request is for, with its port: a domain name's 255 and `:65535`.
pub const HOST_BYTES_MAX: usize = 261;
/// How long a client may take no byte of an answer that is there, and how much longer it may take for the whole of it
/// than [`ANSWER_BYTES_PER_SECOND_MIN`] allows.
pub const ANSWER_IDLE_MAX: Duration = Duration::from_secs(60);
/// Bytes of an answer that is there which a client must take in a second, on the whole. Thus an answer of 64 MiB is held for
/// 70 minutes at most.
pub const ANSWER_BYTES_PER_SECOND_MIN: usize = 16 << 10;
/// Bytes of a piece of an HTTP/2 answer, which tells when it is sent: a frame of the size that every client takes.
pub const ANSWER_PIECE_BYTES: usize = 16 << 10;
/// How often it is looked which answers of an HTTP/2 connection are not taken.
pub const ANSWER_POLL: Duration = Duration::from_secs(1);
/// Pieces of a body that may be of any size; those of a body of more are [`PIECE_BYTES_MIN`] on the whole.
pub const SMALL_PIECES_MAX: usize = 4096;
/// Bytes of a piece of a body, on the whole: each costs the server more than its bytes do.
pub const PIECE_BYTES_MIN: usize = 16;
/// How long a TLS handshake may take.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a list of devices waits for the search for them, which loads every driver of the machine.
pub const DEVICE_LIST_TIME_MAX: Duration = Duration::from_secs(10);
/// How often certificates are looked at; new ones are taken up when they are the same twice.
pub const CERTIFICATE_POLL: Duration = Duration::from_secs(1);
/// Bytes of a file of certificates or of a private key.
pub const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Requests of one HTTP/2 connection at once.
pub const HTTP2_STREAMS_MAX: u32 = 128;
/// Bytes of one HTTP/2 request's body that may arrive before they are read.
pub const HTTP2_STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all bodies of one HTTP/2 connection that may arrive before they are read.
pub const HTTP2_CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of one HTTP/2 answer that wait within the connection to be sent.
pub const HTTP2_SEND_BYTES_MAX: usize = 256 << 10;
/// Requests of one HTTP/2 connection that were given up before they were begun; past it the connection ends.
pub const HTTP2_RESETS_MAX: usize = 20;
/// Malformed requests of one HTTP/2 connection; past it the connection ends.
pub const HTTP2_ERRORS_MAX: usize = 256;
/// How often an HTTP/2 client is asked whether it is there.
pub const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long it may take to answer that.
pub const HTTP2_PING_TIME_MAX: Duration = Duration::from_secs(10);
/// How long an idle HTTP/2 connection may take to end once it was told to.
pub const HTTP2_GOAWAY_TIME_MAX: Duration = Duration::from_secs(5);

/// How often the file of keys is looked at.
pub const KEYS_POLL: Duration = Duration::from_millis(500);
/// How often it is saved what keys used of their quotas; what was used since is forgotten by a kill.
pub const KEY_USAGE_SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of the audit log; past it, it is put aside and a new one begun.
pub const AUDIT_BYTES_MAX: u64 = 16 << 20;
/// Characters of a name or a detail in the audit log.
pub const AUDIT_FIELD_CHARS_MAX: usize = 500;
/// Audit logs put aside that are kept.
pub const AUDIT_FILES_MAX: u32 = 4;
/// How long requests in flight may take to finish once the server stops.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes of a body, where no other maximum is named.
pub const BODY_BYTES_MAX: usize = 10 << 20;
/// Bytes of a plugin's component.
pub const PLUGIN_BYTES_MAX: usize = saggar_plugin::limits::COMPONENT_BYTES_MAX;
/// Bytes of a file that a model is made of.
pub const IMPORT_BYTES_MAX: usize = 512 << 20;
/// Bytes of the options beside a file in the models directory that is to be imported.
pub const IMPORT_OPTIONS_BYTES_MAX: u64 = 1 << 20;
/// Other files that an ONNX model may keep tensors in.
pub const EXTERNAL_FILES_MAX: usize = 1000;
/// Bytes of such a file's name, which an archive has room for.
pub const EXTERNAL_NAME_BYTES_MAX: usize = 99;
/// Bytes of a model in the models directory and of its other files together: what a plugin's memory has room for.
pub const DROPPED_BYTES_MAX: u64 = 2 << 30;
/// Bytes of memory that requests of all clients may take, from their bodies to their answers, where the machine's memory is
/// not known.
pub const REQUEST_MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// The least and the most of that where it follows from the machine's memory.
pub const REQUEST_MEMORY_BYTES_MIN: u64 = 64 << 20;
/// The upper of the two.
pub const REQUEST_MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Which part of the machine's memory it is.
pub const REQUEST_MEMORY_DIVISOR: u64 = 4;
/// How long a request waits for memory that others hold, before it is refused.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer that are not charged to its client.
pub const ANSWER_UNCHARGED_BYTES_MAX: u64 = 1 << 10;
/// Accounts of clients from which on those that hold nothing are forgotten.
pub const MEMORY_ACCOUNTS_KEPT_MAX: usize = 1024;
/// Bytes by which the memory of a body grows while it arrives or is expanded.
pub const BODY_GROWTH_BYTES: usize = 256 << 10;
/// Bytes that the parsed form of a body of JSON takes for each of its own. A list of empty lists takes 3 characters and 32
/// bytes of memory each.
pub const JSON_PARSED_RATIO: u64 = 16;
/// Bytes from which on an answer is compressed where its client takes that; a smaller one fits a packet anyway.
pub const COMPRESS_BYTES_MIN: usize = 1 << 10;
/// Bytes of an inference request of the Open Inference Protocol, compressed or not, and of each tensor in it.
pub const INFER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a refused body that are read and dropped, so that the client gets to read the answer.
pub const REFUSED_BYTES_MAX: u64 = 1 << 30;
/// The same of a client that is not let in.
pub const UNAUTHENTICATED_BYTES_MAX: u64 = 16 << 20;
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

/// Elements of all inputs together up to which a model's description has an example of them.
pub const EXAMPLE_ELEMENTS_MAX: usize = 4096;
/// Predictions of one model version that wait or are computed at once, where its settings say nothing; further ones are
/// refused.
pub const PREDICTIONS_DEFAULT: usize = 256;
/// The most that settings can ask for.
pub const PREDICTIONS_MAX: usize = 1 << 16;
/// Calls of one model at a time, where its settings say nothing: as many as there are cores, within these two.
pub const INSTANCES_MIN: usize = 2;
/// The upper of the two.
pub const INSTANCES_DEFAULT: usize = saggar_plugin::limits::MODEL_INSTANCES_DEFAULT;
/// The most that settings can ask for.
pub const INSTANCES_MAX: usize = 64;
/// Threads of the runtime that may block: those that run the code of models, load versions, read and write files, and take
/// over the connections of threads that compute in place.
pub const BLOCKING_THREADS_MAX: usize = 512;
/// Of those, how many run the code of models at a time; further batches wait for one.
pub const GUEST_THREADS_MAX: usize = 256;
/// Quick batches that are computed in place at a time, each of which may take one of those threads; further ones are computed
/// as slow ones are.
pub const IN_PLACE_BATCHES_MAX: usize = 64;
/// A batch that is known to take no longer is computed on the thread that gathered it.
pub const QUICK_BATCH_TIME_MAX: Duration = Duration::from_millis(2);
/// A batch that takes as long is slow, whatever those before took.
pub const SLOW_BATCH_TIME_MIN: Duration = Duration::from_millis(20);
/// How long a batch that was thought to be quick may keep that thread, after which it is computed anew on another.
pub const IN_PLACE_BATCH_TIME_MAX: Duration = Duration::from_millis(100);
/// Aliases of a model.
pub const ALIASES_MAX: usize = 64;
/// Former default versions of a model that can be rolled back to.
pub const FORMER_DEFAULTS_MAX: usize = 16;
/// Versions, of different models, that come up at the same time.
pub const LOADS_MAX: usize = 2;
/// How long one may take before another comes up beside it: a version that never comes up holds up no other model.
pub const LOAD_TURN_TIME_MAX: Duration = Duration::from_secs(5);
/// Versions that come up at the same time at most, however long they take.
pub const SLOW_LOADS_MAX: usize = 16;
/// Requests to wake a model that wait to be seen; further ones ask again.
pub const WAKE_REQUESTS_MAX: usize = 64;
/// Versions of a model that are up at a time only because requests named them.
pub const ON_DEMAND_VERSIONS_MAX: usize = 4;
/// How long such a version stays up when nobody asks for it.
pub const ON_DEMAND_IDLE_MAX: Duration = Duration::from_secs(600);
/// How often idle models are looked for.
pub const IDLE_MODEL_POLL: Duration = Duration::from_millis(250);
/// How often it is looked whether the device that models run on is still there.
pub const DEVICE_LOSS_POLL: Duration = Duration::from_millis(100);
/// How long another device is tried for in place of a lost one. A server that begins anew instead answers again within five
/// seconds of the loss.
pub const DEVICE_RECOVERY_TIME_MAX: Duration = Duration::from_secs(2);
/// How long is waited between two tries.
pub const DEVICE_RECOVERY_RETRY_PAUSE: Duration = Duration::from_millis(250);
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
pub const PREDICTIONS_KEPT_TIME_MAX: Duration = Duration::from_secs(3600);
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
pub const CONCURRENT_WEBHOOKS_MAX: usize = 16;
/// Which part of the memory of models the calls of one version may leave behind.
pub const MODEL_RETAINED_MEMORY_DIVISOR: u64 = 8;
/// Which part of the memory of models the programs of one version may take for larger batch sizes to be built.
pub const MODEL_BATCH_MEMORY_DIVISOR: u64 = 16;
/// Compiled plugins kept at hand for new weights.
pub const COMPILED_PLUGINS_MAX: usize = 8;
/// Batch sizes of one version whose executions are counted apart.
pub const BATCHES_COUNTED_MAX: usize = 64;
/// Versions of one model whose series stay in `/metrics` after they were unloaded.
pub const UNLOADED_SERIES_MAX: usize = 8;
/// Versions that one look at the models directory tries to bring up for one model, newest first.
pub const LOAD_TRIES_MAX: usize = 4;

/// Jobs in an answer, where the client names no number.
pub const JOBS_LISTED_DEFAULT: u32 = 100;
/// Jobs that are over and mounted a dataset version that a listing names: the newest.
pub const DATASET_USERS_SHOWN: usize = 20;
/// Jobs that a stream of events follows: the newest.
pub const JOBS_FOLLOWED_MAX: u32 = 500;
/// Events in the answer about one job: the newest. Its list of events has the others.
pub const EVENTS_SHOWN_MAX: u32 = 100;
/// Points of all series in one answer, which are in memory together.
pub const POINTS_ANSWERED_MAX: usize = 400_000;
/// Streams of events and followed logs at once; each looks at the records for itself.
pub const EVENT_STREAMS_MAX: usize = 128;
/// Those of one key, of one machine that needs no key, or of all programs of this machine together.
pub const EVENT_STREAMS_EACH_MAX: usize = 32;
/// The least time between two looks of a stream.
pub const EVENT_STREAM_POLL: Duration = Duration::from_millis(500);
/// How long a stream says nothing, before it says that it is still there.
pub const EVENT_STREAM_HEARTBEAT: Duration = Duration::from_secs(15);
/// Bytes of a piece of a log.
pub const LOG_PIECE_BYTES: u64 = 256 << 10;
/// Lines of a log's end that can be asked for.
pub const LOG_TAIL_MAX: usize = 10_000;
/// Bytes of the announcement of an upload, which names every file with its digests.
pub const UPLOAD_MANIFEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of a piece of a job's output, and of a dataset that is exported.
pub const OUTPUT_PIECE_BYTES: u64 = 256 << 10;
/// Outputs that an answer names where one was asked for that is not there.
pub const OUTPUTS_NAMED_MAX: usize = 10;
/// Bytes of a request's identifier that are taken over from the client.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

const _: () = assert!(JOBS_FOLLOWED_MAX <= saggar_store::limits::JOBS_LISTED_MAX);
const _: () = assert!(EVENTS_SHOWN_MAX <= saggar_store::limits::EVENTS_LISTED_MAX);
// Each series has a point at least, or asking for the rest would not go on; those that are named are named in a head.
const _: () =
    assert!(POINTS_ANSWERED_MAX > HEAD_BYTES_MAX && POINTS_ANSWERED_MAX > saggar_store::limits::SERIES_MAX as usize);
const _: () = assert!(EVENT_STREAMS_EACH_MAX < EVENT_STREAMS_MAX && EVENT_STREAMS_MAX < CONNECTIONS_MAX);
const _: () = assert!(REQUEST_MEMORY_BYTES_MIN <= REQUEST_MEMORY_BYTES_MAX);
const _: () = assert!((CHUNK_BYTES_MAX as u64) < REQUEST_MEMORY_BYTES_MIN / 2);
const _: () = assert!(BODY_GROWTH_BYTES as u64 <= REQUEST_MEMORY_BYTES_MIN);
const _: () = assert!(HTTP2_STREAM_WINDOW <= HTTP2_CONNECTION_WINDOW);
const _: () = assert!(CHUNK_BYTES_MAX <= BODY_BYTES_MAX);
// What else may block has threads left.
const _: () = assert!(GUEST_THREADS_MAX + IN_PLACE_BATCHES_MAX + SLOW_LOADS_MAX <= BLOCKING_THREADS_MAX / 4 * 3);
const _: () = assert!(LOADS_MAX <= SLOW_LOADS_MAX);
const _: () = assert!(ANSWER_PIECE_BYTES <= HTTP2_SEND_BYTES_MAX && ANSWER_PIECE_BYTES <= ANSWER_BYTES_PER_SECOND_MIN);
const _: () = assert!(2 * LISTENER_CONNECTIONS_OWN <= CONNECTIONS_MAX);
const _: () = assert!((CONNECTIONS_MAX + DESCRIPTORS_RESERVED) as u64 <= DESCRIPTORS_WANTED_MAX);
const _: () = assert!(INSTANCES_DEFAULT <= INSTANCES_MAX && PREDICTIONS_DEFAULT <= PREDICTIONS_MAX);
