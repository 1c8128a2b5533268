//! Named limits of the server.

use std::time::Duration;

use saggar_serving::limits::REQUEST_MEMORY_BYTES_MIN;
use saggar_store::limits::CHUNK_BYTES_MAX;

/// Bytes of recorded predictions that are computed or wait for the thread that collects them.
pub const SAMPLES_BYTES_MAX: usize = 64 << 20;
/// Graphs of model versions that were inspected and are kept.
pub const GRAPHS_CACHED_MAX: usize = 8;
/// Recorded predictions that wait for the thread that collects them.
pub const SAMPLES_WAITING_MAX: usize = 65_536;
/// The time between two looks whether recorded predictions become a version.
pub const RECORDING_TICK: Duration = Duration::from_millis(250);
/// Maximum time in which a server that stops stores recorded predictions.
pub const RECORDING_TIME_MAX: Duration = Duration::from_secs(10);
/// Newest versions of a dataset of recorded predictions that are kept.
pub const RECORDED_VERSIONS_MAX: usize = 5;
/// Entries of a page of MLflow's interface if the client names no number: MLflow's default.
pub const MLFLOW_ENTRIES_DEFAULT: usize = 1000;
/// Most entries of a page that a client of MLflow's interface can name: MLflow's maximum.
pub const MLFLOW_PAGE_MAX: usize = 50_000;
/// Newest jobs, and newest external runs, of an experiment in which MLflow's clients search.
pub const MLFLOW_RUNS_SEARCHED_MAX: usize = 20_000;
/// Bytes of the runs that match a search of MLflow's clients.
pub const MLFLOW_SEARCH_BYTES_MAX: usize = 64 << 20;
/// Values of a metric in one answer to MLflow's clients, which expect all at once.
pub const MLFLOW_POINTS_MAX: usize = 1_000_000;
/// Runs of one answer to a chart of MLflow's pages.
pub const MLFLOW_CHART_RUNS_MAX: usize = 100;
/// Values of each run in one answer to a chart of MLflow's pages.
pub const MLFLOW_CHART_POINTS_MAX: usize = 2500;
/// Bytes of a file of MLflow's pages.
pub const MLFLOW_UI_FILE_BYTES_MAX: u64 = 64 << 20;
/// Logged items of a job in one response.
pub const LOGGED_ITEMS_ANSWERED_MAX: usize = 1000;
/// Logged items of a job in one response with the bins of histograms, which have up to 20 KiB each.
pub const LOGGED_VALUES_ANSWERED_MAX: usize = 200;
/// Bytes that clients of MLflow's interface can log between two checks of the storage quota, which walk directories.
pub const LOGGED_BYTES_UNCHECKED_MAX: u64 = 1 << 20;
/// Characters of a path or header in the access log.
pub const ACCESS_FIELD_CHARS_MAX: usize = 512;
/// Connections served at the same time. Further ones wait until one ends or an idle one is evicted.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections reserved for each listener, independent of the load on the others.
pub const LISTENER_CONNECTIONS_OWN: usize = 32;
/// File descriptors reserved for the server's own files, if the system's limit permits.
pub const DESCRIPTORS_RESERVED: usize = 256;
/// File descriptor limit that the server requests from the system, if it is permitted to raise it that far.
pub const DESCRIPTORS_WANTED_MAX: u64 = 1 << 16;
/// Time in which an evicted connection must close if no request runs on it.
pub const EVICTED_CONNECTION_TIME_MAX: Duration = Duration::from_secs(1);
/// Time that a new connection waits for another to end before an idle one is evicted.
pub const EVICTION_PAUSE: Duration = Duration::from_millis(100);
/// Maximum duration of a request that was admitted without a key on a server that requires keys, once connections are
/// scarce.
pub const UNAUTHENTICATED_REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Time in which a client must send a request's head. An idle connection is closed after this time too.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time between two bytes of a body.
pub const BODY_IDLE_MAX: Duration = Duration::from_secs(30);
/// Minimum rate of an arriving body in bytes per second, averaged over each [`BODY_IDLE_MAX`].
pub const BODY_BYTES_PER_SECOND_MIN: usize = 64 << 10;
/// Bytes of a request's head. Over HTTP/1.1 it has at most 100 fields, which is the parser's own limit.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of the host name of a request with its port: 255 of a domain name and `:65535`.
pub const HOST_BYTES_MAX: usize = 261;
/// Maximum time in which a client reads no byte of a response that is ready, and the extra time that it has for the
/// whole response beyond what [`ANSWER_BYTES_PER_SECOND_MIN`] allows.
pub const ANSWER_IDLE_MAX: Duration = Duration::from_secs(60);
/// Minimum rate, averaged over the whole response, at which a client must read a response that is ready, in bytes per
/// second. A response of 64 MiB is therefore held for at most 70 minutes.
pub const ANSWER_BYTES_PER_SECOND_MIN: usize = 16 << 10;
/// Bytes of a chunk of an HTTP/2 response, after which the time of sending is recorded: the frame size that every
/// client accepts.
pub const ANSWER_PIECE_BYTES: usize = 16 << 10;
/// Interval at which the responses of an HTTP/2 connection are checked for clients that do not read them.
pub const ANSWER_POLL: Duration = Duration::from_secs(1);
/// Chunks of a body that can be of any size. In a body with more, chunks must average [`PIECE_BYTES_MIN`].
pub const SMALL_PIECES_MAX: usize = 4096;
/// Minimum average bytes per chunk of a body. Each chunk costs the server more than its bytes do.
pub const PIECE_BYTES_MIN: usize = 16;
/// Maximum duration of a TLS handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time that a list of devices waits for device discovery, which loads every driver of the machine.
pub const DEVICE_LIST_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval at which certificate files are read. New ones are used once two consecutive reads are equal.
pub const CERTIFICATE_POLL: Duration = Duration::from_secs(1);
/// Bytes of a certificate file or of a private key file.
pub const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Concurrent requests of one HTTP/2 connection.
pub const HTTP2_STREAMS_MAX: u32 = 128;
/// Bytes of one HTTP/2 request's body that can arrive before they are read.
pub const HTTP2_STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all bodies of one HTTP/2 connection that can arrive before they are read.
pub const HTTP2_CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of one HTTP/2 response that can be buffered in the connection.
pub const HTTP2_SEND_BYTES_MAX: usize = 256 << 10;
/// Requests of one HTTP/2 connection that were reset before they started. Past this the connection is closed.
pub const HTTP2_RESETS_MAX: usize = 20;
/// Malformed requests of one HTTP/2 connection. Past this the connection is closed.
pub const HTTP2_ERRORS_MAX: usize = 256;
/// Interval of HTTP/2 pings.
pub const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time in which the client must answer a ping.
pub const HTTP2_PING_TIME_MAX: Duration = Duration::from_secs(10);
/// Time in which an idle HTTP/2 connection must close after GOAWAY was sent.
pub const HTTP2_GOAWAY_TIME_MAX: Duration = Duration::from_secs(5);

/// Interval at which the key file is checked for changes.
pub const KEYS_POLL: Duration = Duration::from_millis(500);
/// Interval at which the usage of keys is saved. A kill loses the usage since the last save.
pub const KEY_USAGE_SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of the audit log. Past this it is rotated.
pub const AUDIT_BYTES_MAX: u64 = 16 << 20;
/// Characters of a name or a detail in the audit log.
pub const AUDIT_FIELD_CHARS_MAX: usize = 500;
/// Lines of the audit log that wait for the database of several servers. Further lines are only in the file.
pub const AUDIT_LINES_WAITING_MAX: usize = 10_000;
/// Time between two tries to record lines of the audit log.
pub const AUDIT_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which a process that ends waits until its lines of the audit log are recorded.
pub const AUDIT_FLUSH_TIME_MAX: Duration = Duration::from_secs(5);
/// Lines of a page of the audit log.
pub const AUDIT_PAGE_LINES_MAX: u32 = 1000;
/// Interval at which the usage of keys is added to that of other servers.
pub const KEY_USAGE_SHARE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of rotated audit logs that are kept.
pub const AUDIT_FILES_MAX: u32 = 4;
/// Time that requests in flight have to finish once the server stops.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes of a body if no other limit is named.
pub const BODY_BYTES_MAX: usize = 10 << 20;
/// Maximum bytes of the body of a request to a notebook, such as a document that is saved.
pub const NOTEBOOK_BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of a plugin's component.
pub const PLUGIN_BYTES_MAX: usize = saggar_plugin::limits::COMPONENT_BYTES_MAX;
/// Bytes of a file that a model is imported from.
pub const IMPORT_BYTES_MAX: usize = 512 << 20;
/// Names in the note about tensors that a plugin did not read.
pub const UNREAD_TENSORS_SHOWN_MAX: usize = 20;
/// Characters of such a name.
pub const TENSOR_NAME_SHOWN_CHARS_MAX: usize = 80;
/// Bytes of a response that are not charged to its client.
pub const ANSWER_UNCHARGED_BYTES_MAX: u64 = 1 << 10;
/// Bytes by which the charge of a body grows while it arrives or is decompressed.
pub const BODY_GROWTH_BYTES: usize = 256 << 10;
/// Bytes of memory that parsed JSON takes per byte of its text. A list of empty lists takes 3 characters and 32 bytes
/// of memory per element.
pub const JSON_PARSED_RATIO: u64 = 16;
/// Bytes from which on a response is compressed if its client accepts that. A smaller one fits a packet uncompressed.
pub const COMPRESS_BYTES_MIN: usize = 1 << 10;
/// Bytes of an inference request of the Open Inference Protocol, compressed and uncompressed, and of each of its
/// tensors.
pub const INFER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a gRPC message other than a request for a prediction, before and after decompression.
pub const GRPC_REQUEST_BYTES_MAX: usize = 256 << 10;
/// Bytes of memory that such a message takes per byte when it is decoded. An entry of a map has 2 bytes, and takes less
/// than 128 of memory.
pub const GRPC_PARSED_RATIO: u64 = 64;
/// Bytes of the text of a gRPC status, percent-encoded. Clients accept headers of 8 KiB in total.
pub const GRPC_MESSAGE_TEXT_BYTES_MAX: usize = 4 << 10;
/// Predictions of one gRPC stream that run at the same time. Their responses are sent in the order of the requests.
pub const STREAM_PREDICTIONS_MAX: usize = 16;
/// Bytes of a refused body that are read and dropped so that the client can read the response.
pub const REFUSED_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a refused body that are read and dropped if the client was not admitted.
pub const UNAUTHENTICATED_BYTES_MAX: u64 = 16 << 20;
/// Time for which a refused body is read and dropped.
pub const REFUSED_TIME_MAX: Duration = Duration::from_secs(10);

/// Nesting depth of arrays in an input: a batch of items of the highest rank.
pub const JSON_DEPTH_MAX: usize = saggar_tensor::limits::RANK_MAX + 1;
/// Bytes of one decoded input. 10 MiB of JSON hold at most half as many numbers of 8 bytes.
pub const INPUT_BYTES_MAX: usize = BODY_BYTES_MAX * 4;
/// Pixels of an image. A small file can decode to a large image.
pub const IMAGE_PIXELS_MAX: u64 = 1 << 23;
/// Bytes up to which bodies are decoded on the thread that received them. Larger ones are decoded on a blocking thread.
pub const INLINE_BYTES_MAX: usize = 16 << 10;
/// Fields of a multipart form.
pub const FORM_FIELDS_MAX: usize = 64;

/// Elements of all inputs together up to which a model's description contains an example of them.
pub const EXAMPLE_ELEMENTS_MAX: usize = 4096;
/// Chunks of a response that can be buffered for a slow client. Past this the plugin waits.
pub const PIECES_WAITING_MAX: usize = 32;
/// Unfinished predictions that can be queried.
pub const PREDICTIONS_RUNNING_MAX: usize = 1024;
/// Finished predictions that can still be queried.
pub const PREDICTIONS_KEPT_MAX: usize = 1000;
/// Bytes of all of those: their inputs, outputs and events.
pub const PREDICTIONS_KEPT_BYTES_MAX: usize = 64 << 20;
/// Time for which each of those can be queried.
pub const PREDICTIONS_KEPT_TIME_MAX: Duration = Duration::from_secs(3600);
/// Bytes of an input that is kept with its prediction.
pub const PREDICTION_INPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a prediction's events. Past this, parts of its outputs are only reported in the complete output.
pub const PREDICTION_EVENTS_BYTES_MAX: usize = 1 << 20;
/// Bytes of a prediction in the records that servers have in common. Larger ones are objects.
pub const PREDICTION_ROW_BYTES_MAX: usize = 128 << 10;
/// Finished predictions in those records, of all servers.
pub const PREDICTION_ROWS_MAX: u64 = 4096;
/// The time between two renewals of the predictions that a server computes for all servers.
pub const PREDICTION_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks at a prediction that another server computes, while a client waits for it.
pub const PREDICTION_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The time for which the end of a prediction is recorded again and again, if the records cannot be reached.
pub const PREDICTION_RECORDING_TIME_MAX: Duration = Duration::from_secs(600);
/// Longest time for which a client can have its response delayed until the prediction ends.
pub const PREDICTION_WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum duration of one call of a webhook.
pub const WEBHOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// Number of attempts to deliver the final event.
pub const WEBHOOK_TRIES_MAX: u32 = 5;
/// Pause before the second attempt. It doubles with each.
pub const WEBHOOK_BACKOFF: Duration = Duration::from_millis(500);
/// Concurrent calls of webhooks. Further ones wait.
pub const CONCURRENT_WEBHOOKS_MAX: usize = 16;

/// Jobs in a listing if the client gives no number.
pub const JOBS_LISTED_DEFAULT: u32 = 100;
/// Jobs that are compared at once.
pub const JOBS_COMPARED_MAX: usize = 100;
/// Pipeline runs or sweeps that are compared at once.
pub const RUNS_COMPARED_MAX: usize = 20;
/// Finished jobs that a listing names as users of a dataset version: the newest.
pub const DATASET_USERS_SHOWN: usize = 20;
/// Jobs that an event stream follows: the newest.
pub const JOBS_FOLLOWED_MAX: u32 = 500;
/// Events in the response about one job: the newest. The job's event list has the others.
pub const EVENTS_SHOWN_MAX: u32 = 100;
/// Maximum time for the document of a job to wait for the list of its outputs.
pub const JOB_OUTPUTS_TIME_MAX: Duration = Duration::from_secs(3);
/// Points of all series in one response, which are in memory together.
pub const POINTS_ANSWERED_MAX: usize = 400_000;
/// Concurrent event streams and followed logs. Each one polls the records on its own schedule.
pub const EVENT_STREAMS_MAX: usize = 128;
/// Event streams of one key, of one client machine that needs no key, or of all local programs together.
pub const EVENT_STREAMS_EACH_MAX: usize = 32;
/// Minimum time between two polls of a stream.
pub const EVENT_STREAM_POLL: Duration = Duration::from_millis(500);
/// Time without events after which a stream sends a heartbeat.
pub const EVENT_STREAM_HEARTBEAT: Duration = Duration::from_secs(15);
/// Bytes of a chunk of a log.
pub const LOG_PIECE_BYTES: u64 = 256 << 10;
/// Lines that can be requested from the end of a log.
pub const LOG_TAIL_MAX: usize = 10_000;
/// Bytes of an upload's manifest, which names every file with its digests.
pub const UPLOAD_MANIFEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of a chunk of a job's output, or of an exported dataset.
pub const OUTPUT_PIECE_BYTES: u64 = 256 << 10;
/// Outputs that the error for a missing output lists.
pub const OUTPUTS_NAMED_MAX: usize = 10;
/// Bytes of a client's request ID that are used.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

const _: () = assert!(JOBS_FOLLOWED_MAX <= saggar_store::limits::JOBS_LISTED_MAX);
const _: () = assert!(EVENTS_SHOWN_MAX <= saggar_store::limits::EVENTS_LISTED_MAX);
// Each series has at least one point, otherwise requests for the rest would make no progress. Series are named in a
// request's head.
const _: () =
    assert!(POINTS_ANSWERED_MAX > HEAD_BYTES_MAX && POINTS_ANSWERED_MAX > saggar_store::limits::SERIES_MAX as usize);
const _: () = assert!(EVENT_STREAMS_EACH_MAX < EVENT_STREAMS_MAX && EVENT_STREAMS_MAX < CONNECTIONS_MAX);
const _: () = assert!((CHUNK_BYTES_MAX as u64) < REQUEST_MEMORY_BYTES_MIN / 2);
const _: () = assert!(BODY_GROWTH_BYTES as u64 <= REQUEST_MEMORY_BYTES_MIN);
const _: () = assert!(HTTP2_STREAM_WINDOW <= HTTP2_CONNECTION_WINDOW);
const _: () = assert!(CHUNK_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(ANSWER_PIECE_BYTES <= HTTP2_SEND_BYTES_MAX && ANSWER_PIECE_BYTES <= ANSWER_BYTES_PER_SECOND_MIN);
const _: () = assert!(2 * LISTENER_CONNECTIONS_OWN <= CONNECTIONS_MAX);
const _: () = assert!((CONNECTIONS_MAX + DESCRIPTORS_RESERVED) as u64 <= DESCRIPTORS_WANTED_MAX);
