//! Every maximum of this crate, by name.

use std::time::Duration;

/// Bytes of one part of a checkpoint: what is written, synced and verified in one piece.
pub const PART_BYTES_MAX: usize = 64 << 20;

/// Variables from this size on get parts of their own, so that an unchanged one is not stored again.
pub const OWN_PART_BYTES_MIN: usize = 1 << 20;

/// Small variables share parts of up to this size, so that 100,000 of them are not 100,000 files.
pub const SHARED_PART_BYTES_MAX: usize = 4 << 20;

/// Times that an object is written while others sweep it away; each claim of a job sweeps once.
pub const PUT_TRIES_MAX: u32 = 4;

/// Bytes from which on a piece of an exported checkpoint goes out alone; smaller ones are gathered.
pub const EXPORT_PIECE_BYTES_MIN: usize = 64 << 10;

/// Bytes of a manifest, of any kind. 100,000 variables take about 25 MB.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a safetensors file's header: the format's own limit.
pub const WEIGHTS_HEADER_BYTES_MAX: u64 = 100_000_000;

/// Bytes of a model version's or a dataset's name.
pub const NAME_BYTES_MAX: usize = 63;

/// Keys of one server.
pub const KEYS_MAX: usize = 1000;

/// Projects that one key may be limited to.
pub const KEY_PROJECTS_MAX: usize = 64;

/// Bytes of the file of the projects that a model or a dataset belongs to.
pub const PROJECTS_BYTES_MAX: u64 = 16 << 10;

const _: () = assert!(KEY_PROJECTS_MAX * (NAME_BYTES_MAX + 3) + 2 < PROJECTS_BYTES_MAX as usize);

/// Secrets of one server.
pub const SECRETS_MAX: usize = 1000;

/// Bytes of a secret: shorter ones could not be blackened in a log without blackening other text.
pub const SECRET_BYTES_MIN: usize = 8;
/// Bytes of a secret at most.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// Bytes of a chunk of an upload.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;

/// Files in an upload, and in a folder that is taken in as a dataset.
pub const UPLOAD_FILES_MAX: usize = 100_000;

/// Uploads whose chunks' digests are in memory. Those of one have less than half the bytes of its announcement.
pub const UPLOADS_OPEN_MAX: usize = 8;

/// Bytes of all files of an upload together.
pub const UPLOAD_BYTES_MAX: u64 = 64 << 30;

/// Bytes of an uploaded file's path, and its depth in folders.
pub const UPLOAD_PATH_BYTES_MAX: usize = 255;
/// Folders in an uploaded file's path, the file's own name included.
pub const UPLOAD_PATH_PARTS_MAX: usize = 8;

/// Bytes that a tar archive may say of one entry before it: long names and attributes, which are in memory together.
pub const TAR_HEADERS_BYTES_MAX: u64 = 256 << 10;

/// Disk space that an upload must leave free.
pub const DISK_RESERVE_BYTES: u64 = 64 << 20;

/// Bytes of a dataset's columns together. They are written to files while they are taken in.
pub const DATASET_BYTES_MAX: u64 = 16 << 30;

/// Items of a dataset: plugins number them with 32 bits.
pub const DATASET_ITEMS_MAX: u64 = u32::MAX as u64;

/// Bytes of `dataset.json` in a folder that is taken in.
pub const DESCRIPTION_BYTES_MAX: u64 = 4 << 20;

/// Parts that the items of a table can be dealt to.
pub const SHARES_MAX: usize = 1_000;

/// Bytes that taking in one dataset holds in memory, whatever its files are: buffers, and one piece of a file, decoded.
/// A server takes in one dataset at a time.
pub const INGEST_BYTES_MAX: usize = 256 << 20;

/// Requests to take in a dataset that wait for the one that is taken in.
pub const INGESTS_WAITING_MAX: usize = 8;

/// Bytes of the buffers of all columns that are written at the same time.
pub const INGEST_BUFFERS_BYTES_MAX: usize = 32 << 20;
/// Bytes of the buffer of one column, at least.
pub const INGEST_BUFFER_BYTES_MIN: usize = 512;
/// Bytes of the buffer of one column, at most.
pub const INGEST_BUFFER_BYTES_MAX: usize = 256 << 10;

/// How many times as long as its files the columns of a dataset may be. Compressed files reach this only if they repeat one
/// value, texts only if one of them is much longer than the others.
pub const INGEST_EXPANSION_MAX: u64 = 1_000;

/// Bytes that the columns of a dataset may have, however small its files are.
pub const INGEST_EXPANSION_UNCHECKED_BYTES: u64 = 64 << 20;

/// Bytes of the list of files at the end of a ZIP archive.
pub const ZIP_DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// Bytes of the header of a safetensors file that is taken in as a dataset.
pub const DATASET_HEADER_BYTES_MAX: usize = 16 << 20;

/// Bytes of the header of a `.npy` file, which is a line of text.
pub const NPY_HEADER_BYTES_MAX: u64 = 64 << 10;

/// Bytes of the footer of a Parquet file, which is held with a structure for each column of each row group.
pub const PARQUET_FOOTER_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a name in the schema of such a file: columns are called by the names of all groups that they are in.
pub const PARQUET_NAME_BYTES_MAX: usize = 255;

/// Bytes of a page of a Parquet file, compressed and expanded. Writers make pages of about 1 MiB.
pub const PARQUET_PAGE_BYTES_MAX: usize = 32 << 20;

/// Bytes of the header of such a page: the least and the greatest value of the page are in it.
pub const PARQUET_PAGE_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Values of such a page, of which some are decoded at a time.
pub const PARQUET_PAGE_VALUES_MAX: u32 = 64 << 20;

/// Values that are in memory together once decoded: of the pages that one list goes on over, and the lengths of a page of
/// texts.
pub const PARQUET_VALUES_HELD_MAX: u32 = 8 << 20;

/// Values of a dictionary in a Parquet file, which are all decoded.
pub const PARQUET_DICTIONARY_VALUES_MAX: u32 = 1 << 20;

/// How many times as long as the file the values of a Parquet file may be: a run of equal values takes some bytes however
/// long it is, and so a file that is damaged or hostile could claim any number of rows.
pub const PARQUET_EXPANSION_MAX: u64 = 4096;

/// Bytes of an image in a dataset, as a file and decoded.
pub const IMAGE_BYTES_MAX: usize = 24 << 20;

/// Pixels of a side of an image.
pub const IMAGE_SIDE_MAX: usize = 16_384;
/// Scans of one JPEG. A progressive one has about ten; each may take the decoder over all pixels.
pub const JPEG_SCANS_MAX: usize = 100;
/// Bytes that the chunks and one row of a PNG may take in memory.
pub const PNG_CHUNKS_BYTES_MAX: usize = 64 << 20;

/// Bytes of one record of a CSV file, which may go on over several lines in quotation marks.
pub const CSV_LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes of one line of a text file that is a dataset.
pub const TEXT_LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of a file that names the classes.
pub const CLASS_NAMES_BYTES_MAX: u64 = 64 << 10;

/// Fields of a dataset, splits of a dataset, and classes of a field.
pub const DATASET_NAMES_MAX: usize = 65_536;

/// Datasets made of outputs that are kept in the cache: those used last.
pub const OUTPUT_CACHE_DATASETS_MAX: usize = 64;

/// Seconds that nothing was written to a dataset on its way into the cache, after which its writer is dead.
pub const OUTPUT_STAGING_SECONDS_MAX: u64 = 3600;

/// Files in one listing of what a job wrote.
pub const OUTPUTS_LISTED_MAX: usize = 10_000;

/// Milliseconds that a write to the records waits for another process's write.
pub const RECORDS_BUSY_MS: u32 = 30_000;

/// Jobs in one answer of `Records::list`.
pub const JOBS_LISTED_MAX: u32 = 1_000;

/// Jobs that may wait at once; one more is refused.
pub const JOBS_QUEUED_MAX: u64 = 10_000;

/// Schedules of one server.
pub const SCHEDULES_MAX: u64 = 1_000;

/// Points in one answer of `Records::series`.
pub const POINTS_LISTED_MAX: u32 = 100_000;

/// Events in one answer of `Records::events`.
pub const EVENTS_LISTED_MAX: u32 = 10_000;

/// Bytes of a job's specification.
pub const SPEC_BYTES_MAX: usize = 1 << 20;

/// Names of metric series in one job.
pub const SERIES_MAX: u32 = 256;

/// Bytes of the name of a series.
pub const SERIES_NAME_BYTES_MAX: usize = 255;

/// Points of all series of one job: past them series are thinned. They take some 25 MB.
pub const POINTS_MAX: u64 = 250_000;

/// Events of one kind of one job: past them the oldest go.
pub const EVENTS_OF_KIND_MAX: u32 = 10_000;

/// Bytes of the text of an event; the rest is cut.
pub const EVENT_TEXT_BYTES_MAX: usize = 4 << 10;

/// Bytes of records of an earlier build up to which they are rewritten when they are opened, so that what is removed from
/// them is given back to the disk. Larger ones are rewritten by `saggar gc`.
pub const RECORDS_REWRITTEN_BYTES_MAX: u64 = 64 << 20;

/// Rows and pages that are removed at a time, so that the write-ahead log stays short.
pub const RECORDS_REMOVAL_BATCH: u32 = 20_000;

/// Bytes of the write-ahead log that stay between two transactions.
pub const RECORDS_LOG_BYTES_MAX: u64 = 4 << 20;

/// Parts and metrics of a job's checkpoints that are remembered between two saves, of all together: some 64 MiB.
pub const CHECKPOINT_CACHE_ENTRIES_MAX: usize = 1 << 20;

/// Metrics in one checkpoint: every series of the job.
pub const CHECKPOINT_METRICS_MAX: usize = SERIES_MAX as usize;

/// How long a server waits for a lock that the process which took it has left to a child of it.
pub const INHERITED_LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// How often it looks.
pub const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

const _: () = assert!(POINTS_MAX / (2 * SERIES_MAX as u64) > 100);
const _: () = assert!(EVENTS_LISTED_MAX <= EVENTS_OF_KIND_MAX);
const _: () = assert!(OWN_PART_BYTES_MIN <= SHARED_PART_BYTES_MAX);
const _: () = assert!(SHARED_PART_BYTES_MAX <= PART_BYTES_MAX);
const _: () = assert!(PARQUET_PAGE_BYTES_MAX <= i32::MAX as usize);
// A page as it lies in the file, expanded, and the window of its decompressor; values with their two levels.
const _: () = assert!(
    INGEST_BUFFERS_BYTES_MAX + 3 * PARQUET_PAGE_BYTES_MAX + 12 * PARQUET_VALUES_HELD_MAX as usize <= INGEST_BYTES_MAX
);
// An image as a file and decoded, and the coefficients of a progressive JPEG.
const _: () = assert!(INGEST_BUFFERS_BYTES_MAX + 5 * IMAGE_BYTES_MAX <= INGEST_BYTES_MAX);
// A record, and where each of its columns ends.
const _: () = assert!(INGEST_BUFFERS_BYTES_MAX + (1 + size_of::<usize>()) * CSV_LINE_BYTES_MAX <= INGEST_BYTES_MAX);
const _: () = assert!(INGEST_BUFFER_BYTES_MIN * DATASET_NAMES_MAX <= INGEST_BUFFERS_BYTES_MAX);
