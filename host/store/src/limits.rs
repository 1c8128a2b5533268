//! Every maximum of this crate, as a named constant.

use std::time::Duration;

/// Bytes of one part of a checkpoint, which is written, synced and verified in one piece.
pub const PART_BYTES_MAX: usize = 64 << 20;

/// Variables of at least this many bytes get their own part, so that an unchanged one is not stored again.
pub const OWN_PART_BYTES_MIN: usize = 1 << 20;

/// Bytes of a part that small variables share, so that 100,000 of them are not 100,000 files.
pub const SHARED_PART_BYTES_MAX: usize = 4 << 20;

/// Attempts to write an object while other processes sweep it away. Each claim of a job sweeps once.
pub const PUT_TRIES_MAX: u32 = 4;

/// Repetitions of a request to a store of objects, the time from its beginning after which it is not repeated, and the
/// longest pause before one. The caller of a save decides what follows.
pub const S3_RETRIES_MAX: usize = 6;
/// See [`S3_RETRIES_MAX`].
pub const S3_RETRY_TIME_MAX: Duration = Duration::from_secs(30);
/// See [`S3_RETRIES_MAX`].
pub const S3_RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Attempts to create an object whose name the store refuses although no object has it: another put of the name was in
/// progress, and failed.
pub const S3_CREATES_MAX: u32 = 5;
/// Requests of one listing that read objects at the same time.
pub const CONCURRENT_READS_MAX: usize = 16;
/// Bytes of dataset versions that were fetched from a bucket and are kept on this machine, and the same for outputs of jobs.
/// The least recently used ones are removed first, and none that is mapped.
pub const FETCHED_BYTES_MAX: u64 = 128 << 30;
/// Time after its last use in which a fetched directory is not removed, because its user may not have opened it yet.
pub const FETCHED_AGE_MIN: Duration = Duration::from_secs(60);
/// Maximum bytes of a manifest that is stored in the index of its version in a bucket.
pub const INDEXED_MANIFEST_BYTES_MAX: usize = 1 << 20;

/// Requests that create the same object at once when a store is checked. Exactly one can succeed.
pub const PROBE_RACERS: usize = 8;

/// Bytes of a file with credentials.
pub const CREDENTIALS_FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes from which a chunk of an exported checkpoint is sent without copying; smaller ones are gathered.
pub const EXPORT_PIECE_BYTES_MIN: usize = 64 << 10;

/// Bytes of a manifest of any kind. 100,000 variables take about 25 MB.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a document in the records.
pub const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a safetensors file's header: the format's own limit.
pub const WEIGHTS_HEADER_BYTES_MAX: u64 = 100_000_000;

/// Bytes of a model version's card.
pub const CARD_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a model version's or a dataset's name.
pub const NAME_BYTES_MAX: usize = 63;

/// Keys of one server.
pub const KEYS_MAX: usize = 1000;

/// Projects that one key can be limited to.
pub const KEY_PROJECTS_MAX: usize = 64;

/// Bytes of the file that lists the projects of a model or a dataset.
pub const PROJECTS_BYTES_MAX: u64 = 16 << 10;

const _: () = assert!(KEY_PROJECTS_MAX * (NAME_BYTES_MAX + 3) + 2 < PROJECTS_BYTES_MAX as usize);

/// Secrets of one server.
pub const SECRETS_MAX: usize = 1000;

/// Bytes of a secret, at least: redacting a shorter one in a log would redact other text too.
pub const SECRET_BYTES_MIN: usize = 8;
/// Bytes of a secret, at most.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// Bytes of a chunk of an upload.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;

/// The time after which an upload that was announced and not committed is removed, with its chunks.
pub const ABANDONED_UPLOAD_AGE: Duration = Duration::from_hours(7 * 24);

/// The time after which parts of a version that never became visible are removed from a bucket.
pub const ABANDONED_PARTS_AGE: Duration = Duration::from_hours(24);

/// Files in an upload, and in a folder that is imported as a dataset.
pub const UPLOAD_FILES_MAX: usize = 100_000;

/// Uploads whose chunk digests are in memory. Those of one upload take less than half the bytes of its announcement.
pub const UPLOADS_OPEN_MAX: usize = 8;

/// Bytes of all files of an upload.
pub const UPLOAD_BYTES_MAX: u64 = 64 << 30;

/// Bytes of an uploaded file's path.
pub const UPLOAD_PATH_BYTES_MAX: usize = 255;
/// Components of an uploaded file's path, including the file name.
pub const UPLOAD_PATH_PARTS_MAX: usize = 8;

/// Bytes of disk space that an upload must leave free.
pub const DISK_RESERVE_BYTES: u64 = 64 << 20;

/// Bytes of all columns of a dataset. They are written to files during the import.
pub const DATASET_BYTES_MAX: u64 = 16 << 30;

/// Items of a dataset: plugins number them with 32 bits.
pub const DATASET_ITEMS_MAX: u64 = u32::MAX as u64;

/// Bytes of `dataset.json` in an imported folder.
pub const DESCRIPTION_BYTES_MAX: u64 = 4 << 20;

/// Splits that the items of a table can be divided into.
pub const SHARES_MAX: usize = 1_000;

/// Bytes of memory that one import uses, whatever its files are: buffers, and one decoded piece of a file. A server
/// imports one dataset at a time.
pub const INGEST_BYTES_MAX: usize = 256 << 20;

/// Imports that wait for the running one.
pub const INGESTS_WAITING_MAX: usize = 8;

/// Total bytes of the buffers of all columns that are written at the same time.
pub const INGEST_BUFFERS_BYTES_MAX: usize = 32 << 20;
/// Bytes of the buffer of one column, at least.
pub const INGEST_BUFFER_BYTES_MIN: usize = 512;
/// Bytes of the buffer of one column, at most.
pub const INGEST_BUFFER_BYTES_MAX: usize = 256 << 10;

/// Limit on the ratio of a dataset's columns to its files. Compressed files reach it only if they repeat one value,
/// texts only if one of them is much longer than the others.
pub const INGEST_EXPANSION_MAX: u64 = 1_000;

/// Bytes of columns up to which [`INGEST_EXPANSION_MAX`] is not checked, for small files.
pub const INGEST_EXPANSION_UNCHECKED_BYTES: u64 = 64 << 20;

/// Bytes of the central directory at the end of a ZIP archive.
pub const ZIP_DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// Bytes of the header of a safetensors file that is imported as a dataset.
pub const DATASET_HEADER_BYTES_MAX: usize = 16 << 20;

/// Bytes of the header of a `.npy` file, which is one line of text.
pub const NPY_HEADER_BYTES_MAX: u64 = 64 << 10;

/// Bytes of the footer of a Parquet file, which is in memory with a structure for each column of each row group.
pub const PARQUET_FOOTER_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a name in a Parquet schema. A column's full name contains the names of all its groups.
pub const PARQUET_NAME_BYTES_MAX: usize = 255;

/// Bytes of a page of a Parquet file, compressed and decompressed. Writers make pages of about 1 MiB.
pub const PARQUET_PAGE_BYTES_MAX: usize = 32 << 20;

/// Bytes of a page's header, which contains the minimum and maximum of the page.
pub const PARQUET_PAGE_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Values of a page. They are decoded in batches.
pub const PARQUET_PAGE_VALUES_MAX: u32 = 64 << 20;

/// Decoded values in memory at once: of the pages that one list spans, and the lengths of a page of texts.
pub const PARQUET_VALUES_HELD_MAX: u32 = 8 << 20;

/// Values of a dictionary in a Parquet file. All of them are decoded.
pub const PARQUET_DICTIONARY_VALUES_MAX: u32 = 1 << 20;

/// Rows up to which a column of Parquet or Arrow files can have nulls. There is a bit for each row.
pub const TABLE_NULL_ROWS_MAX: u64 = 1 << 28;

/// Limit on the ratio of the values of a Parquet file to its size. A run of equal values takes a few bytes however long
/// it is, so a damaged or hostile file could claim any number of rows.
pub const PARQUET_EXPANSION_MAX: u64 = 4096;

/// Bytes of the metadata of an Arrow file's footer, and of one message.
pub const ARROW_METADATA_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a name in an Arrow schema.
pub const ARROW_NAME_BYTES_MAX: usize = 255;

/// Bytes of a value of fixed length in an Arrow file.
pub const ARROW_VALUE_BYTES_MAX: usize = 16 << 20;

/// Bytes of the window of a Zstandard decoder of an Arrow buffer. Up to four buffers are decoded at a time.
pub const ARROW_WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the texts that the string views of a column refer to in one record batch. They are in memory, because views
/// can have any order.
pub const ARROW_VIEWS_BYTES_MAX: u64 = 32 << 20;

/// Limit on the ratio of the decompressed buffers of Arrow files to the files.
pub const ARROW_EXPANSION_MAX: u64 = 4096;

/// Bytes of memory for the texts of dictionaries, and for the names of the classes that they become.
pub const TABLE_DICTIONARY_BYTES_MAX: usize = 16 << 20;

/// Bytes of an image in a dataset, both encoded and decoded.
pub const IMAGE_BYTES_MAX: usize = 24 << 20;

/// Pixels of a side of an image.
pub const IMAGE_SIDE_MAX: usize = 16_384;
/// Scans of one JPEG. A progressive one has about ten. Each can make the decoder visit all pixels.
pub const JPEG_SCANS_MAX: usize = 100;
/// Bytes of memory for the chunks and one row of a PNG.
pub const PNG_CHUNKS_BYTES_MAX: usize = 64 << 20;

/// Bytes of one record of a CSV file. A quoted record can span several lines.
pub const CSV_LINE_BYTES_MAX: usize = 4 << 20;

/// Columns of a CSV file whose fields are inferred.
pub const TABLE_COLUMNS_MAX: usize = DATASET_NAMES_MAX;

/// Distinct texts in a column of a CSV file that are still classes.
pub const TABLE_CLASSES_MAX: usize = 1_000;

/// Bytes of the distinct texts of all columns of a CSV file whose fields are inferred.
pub const TABLE_CLASSES_BYTES_MAX: usize = 32 << 20;

/// Bytes of a line of JSON.
pub const JSON_LINE_BYTES_MAX: usize = 4 << 20;

/// Levels of lists in a member of a JSON object.
pub const JSON_DEPTH_MAX: usize = 8;

/// Members of JSON objects whose texts can become classes without a description.
pub const JSON_CLASS_MEMBERS_MAX: usize = 100;

/// Bytes of a text that can become the name of a class.
pub const CLASS_NAME_BYTES_MAX: usize = 255;

/// Notes about one import.
pub const DATASET_NOTES_MAX: usize = 64;

/// Bytes of one line of a text file that is imported as a dataset.
pub const TEXT_LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file of class names.
pub const CLASS_NAMES_BYTES_MAX: u64 = 64 << 10;

/// Fields of a dataset, splits of a dataset, and classes of a field.
pub const DATASET_NAMES_MAX: usize = 65_536;

/// Datasets made of job outputs that are kept in the cache, evicted in LRU order.
pub const OUTPUT_CACHE_DATASETS_MAX: usize = 64;

/// Seconds without a write to a cached dataset in preparation after which its writer is considered dead.
pub const OUTPUT_STAGING_SECONDS_MAX: u64 = 3600;

/// Files in one listing of a job's outputs.
pub const OUTPUTS_LISTED_MAX: usize = 10_000;

/// Images, tables and histograms that are kept of a job.
pub const LOGGED_ITEMS_MAX: usize = 10_000;

/// Bytes of the files of all of them.
pub const LOGGED_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a logged table's file, and of a logged image's pixels. `wit/job.wit` documents this number and the next ones.
pub const LOGGED_ITEM_BYTES_MAX: usize = 8 << 20;

/// Columns of a logged table.
pub const LOGGED_COLUMNS_MAX: usize = 64;

/// Rows of a logged table.
pub const LOGGED_ROWS_MAX: usize = 10_000;

/// Bins of a logged histogram.
pub const LOGGED_BINS_MAX: usize = 512;

/// Milliseconds that a write to the records waits for another process's write.
pub const RECORDS_BUSY_MS: u32 = 30_000;

/// Connections of one process to PostgreSQL. A server accepts 100 by default.
pub const POSTGRES_CONNECTIONS_MAX: u32 = 8;

/// Milliseconds until a connection to PostgreSQL has to be open.
pub const POSTGRES_CONNECT_MS_MAX: u32 = 5_000;

/// Milliseconds without an answer of the host after which a connection to PostgreSQL is given up.
pub const POSTGRES_SILENCE_MS_MAX: u32 = 15_000;

/// Milliseconds for which a transaction of PostgreSQL waits for the next statement of its client before it is rolled back. A
/// server that is stopped in the middle of one must not block the others; when it continues, it repeats the transaction.
pub const POSTGRES_IDLE_TRANSACTION_MS_MAX: u32 = 3_000;

/// Milliseconds for which a transaction is repeated while PostgreSQL cannot be reached, for example because it restarts.
pub const POSTGRES_RETRY_MS_MAX: u32 = 15_000;

/// Jobs that are taken away from servers in one transaction. The next ones follow at once.
pub const LEASES_REAPED_MAX: u32 = 64;

/// Jobs in one result of `Records::list`.
pub const JOBS_LISTED_MAX: u32 = 1_000;

/// Pipeline runs, and sweeps, that an experiment lists.
pub const EXPERIMENT_MEMBERS_MAX: u32 = 100;

/// Jobs in the queue; the next one is refused.
pub const JOBS_QUEUED_MAX: u64 = 200_000;

/// The first queued jobs, of which a placement reads no others if one of them starts.
pub const QUEUE_FIRST_JOBS_READ: usize = 64;

/// Queued jobs that a placement reads, if they are in few groups.
pub const QUEUE_JOBS_READ: usize = 1_024;

/// Queued jobs of one group that a placement reads, if there are few groups. The next placement reads more if all of them
/// start.
pub const QUEUE_GROUP_JOBS_READ_MAX: usize = 32;

/// Queued jobs of one group that a placement reads, however many groups there are.
pub const QUEUE_GROUP_JOBS_READ_MIN: usize = 2;

/// Maximum pipeline runs that are not over.
pub const PIPELINE_RUNS_UNFINISHED_MAX: u64 = 1000;
/// Schedules of one server.
pub const SCHEDULES_MAX: u64 = 1_000;

/// Points in one result of `Records::series`.
pub const POINTS_LISTED_MAX: u32 = 100_000;

/// Events in one result of `Records::events`.
pub const EVENTS_LISTED_MAX: u32 = 10_000;

/// Bytes of a job's specification.
pub const SPEC_BYTES_MAX: usize = 1 << 20;

/// Names of metric series in one job.
pub const SERIES_MAX: u32 = 256;

/// Bytes of the name of a series.
pub const SERIES_NAME_BYTES_MAX: usize = 255;

/// Sweeps in one listing.
pub const SWEEPS_LISTED_MAX: u32 = 100;

/// Sweeps that are not over.
pub const SWEEPS_UNFINISHED_MAX: u64 = 100;

/// Points of all series of one job, about 25 MB; beyond this, series are thinned.
pub const POINTS_MAX: u64 = 250_000;

/// Events of one kind of one job; beyond this, the oldest are removed.
pub const EVENTS_OF_KIND_MAX: u32 = 10_000;

/// Bytes of the text of an event; longer texts are truncated.
pub const EVENT_TEXT_BYTES_MAX: usize = 4 << 10;

/// Bytes of an earlier build's database up to which opening it rewrites it, so that removed rows free disk space.
/// `saggar gc` rewrites larger ones.
pub const RECORDS_REWRITTEN_BYTES_MAX: u64 = 64 << 20;

/// Rows and pages removed in one batch, so that the write-ahead log stays short.
pub const RECORDS_REMOVAL_BATCH: u32 = 20_000;

/// Bytes to which the write-ahead log is truncated between transactions.
pub const RECORDS_LOG_BYTES_MAX: u64 = 4 << 20;

/// Parts and metrics of checkpoints cached between two saves, over all jobs: about 64 MiB.
pub const CHECKPOINT_CACHE_ENTRIES_MAX: usize = 1 << 20;

/// Metrics in one checkpoint: every series of the job.
pub const CHECKPOINT_METRICS_MAX: usize = SERIES_MAX as usize;

/// Time that a server waits for a lock that a child process inherited from its killed holder.
pub const INHERITED_LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Interval between two attempts to take that lock.
pub const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

const _: () = assert!(POINTS_MAX / (2 * SERIES_MAX as u64) > 100);
/// Tags of a job.
pub const JOB_TAGS_MAX: usize = 50;
/// Bytes of a tag's name.
pub const TAG_NAME_BYTES_MAX: usize = 63;
/// Bytes of a tag's value.
pub const TAG_VALUE_BYTES_MAX: usize = 500;
/// Bytes of the note about a job.
pub const JOB_NOTE_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(EVENTS_LISTED_MAX <= EVENTS_OF_KIND_MAX);
const _: () = assert!(OWN_PART_BYTES_MIN <= SHARED_PART_BYTES_MAX);
const _: () = assert!(SHARED_PART_BYTES_MAX <= PART_BYTES_MAX);
const _: () = assert!(PARQUET_PAGE_BYTES_MAX <= i32::MAX as usize);
// A compressed page, the decompressed page and the decompressor's window; decoded values with their two levels.
const _: () = assert!(
    INGEST_BUFFERS_BYTES_MAX + 3 * PARQUET_PAGE_BYTES_MAX + 12 * PARQUET_VALUES_HELD_MAX as usize <= INGEST_BYTES_MAX
);
// The footer, its list of messages and one message; four windows in buffers of up to twice their size; texts of views or
// a value and its conversion; dictionaries, and the names of classes twice.
const _: () = assert!(
    INGEST_BUFFERS_BYTES_MAX
        + 3 * ARROW_METADATA_BYTES_MAX as usize
        + 8 * ARROW_WINDOW_BYTES_MAX as usize
        + ARROW_VIEWS_BYTES_MAX as usize
        + 3 * TABLE_DICTIONARY_BYTES_MAX
        <= INGEST_BYTES_MAX
);
const _: () = assert!(2 * ARROW_VALUE_BYTES_MAX <= ARROW_VIEWS_BYTES_MAX as usize);
// An encoded and a decoded image, and the coefficients of a progressive JPEG.
const _: () = assert!(INGEST_BUFFERS_BYTES_MAX + 5 * IMAGE_BYTES_MAX <= INGEST_BYTES_MAX);
// A record, and the end offset of each of its columns.
const _: () = assert!(INGEST_BUFFERS_BYTES_MAX + (1 + size_of::<usize>()) * CSV_LINE_BYTES_MAX <= INGEST_BYTES_MAX);
// A value of a parsed line takes 32 bytes, and at least 2 in the line.
const _: () =
    assert!(INGEST_BUFFERS_BYTES_MAX + 17 * JSON_LINE_BYTES_MAX + TABLE_CLASSES_BYTES_MAX <= INGEST_BYTES_MAX);
const _: () =
    assert!(JSON_CLASS_MEMBERS_MAX * TABLE_CLASSES_MAX * (CLASS_NAME_BYTES_MAX + 64) <= TABLE_CLASSES_BYTES_MAX);
const _: () = assert!(INGEST_BUFFER_BYTES_MIN * DATASET_NAMES_MAX <= INGEST_BUFFERS_BYTES_MAX);
