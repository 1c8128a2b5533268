//! Durable state: objects, checkpoints, model versions, datasets, job records and keys.
//!
//! Committed state survives `kill -9` and power loss at any instant: data is synced before the one small file that
//! makes it visible, and that file is created once and never changed. Content is verified against its digest when it is
//! read.
//!
//! Deliberately elsewhere: applying a checkpoint to a device (`jobs`), plugins (`plugin`), authentication (`serve`).
//! Logic takes the time as an argument; see [`saggar_clock`].

pub mod abandoned_content;
pub mod archive;
pub mod backup;
pub mod bucket_folders;
pub mod bucket_usage;
pub mod certificates;
pub mod checkpoint;
pub mod dataset;
pub mod digest;
pub mod error;
pub mod external_runs;
pub mod image_decoder;
pub mod image_preprocessing;
pub mod image_resizer;
pub mod job_files;
pub mod keys;
pub mod limits;
pub mod logged_items;
pub mod migration;
pub mod models;
pub mod objects;
pub mod outputs;
pub mod png_encoder;
pub mod projects;
pub mod records;
pub mod regular_file;
pub mod rights;
pub mod secrets;
pub mod server_identity;
pub mod shared_file;
pub mod signature;
pub mod state_dir;
pub mod state_formats;
pub mod storage_kind;
pub mod storage_usage;
pub mod zip_directory;

mod directory_size;
mod durable;
mod format_number;
mod safetensors_header;
mod tensor_text;
mod versions;

pub use checkpoint::{
    BestMetric, Checkpoint, CheckpointExport, CheckpointInfo, CheckpointQuery, CheckpointStore, CheckpointVerification,
    DatasetPosition, LatestCheckpoint, MetricMode, Retention, SavedVariable, SkippedCheckpoint, VariableKind,
    digest_of_variables,
};
pub use dataset::upload::UploadStore;
pub use dataset::{ColumnarDataset, DatasetField, DatasetSplit, DatasetStore, dataset_description_schema};
pub use digest::{Digest, Sha256Hasher};
pub use durable::random_hex;
pub use error::{BundleError, CheckpointError, DatasetError, ModelError, RecordError, StoreError};
pub use external_runs::{ExternalRunError, ExternalRunStore};
pub use image_preprocessing::{
    ImageColors, ImageFit, ImageInputs, ImageInputsError, ImageLayout, ImageNormalization, ImagePreprocessing,
    ImagePreprocessingError, ImageResize, read_image_inputs,
};
pub use job_files::{AttemptLog, JobFiles, LocalJobFiles, ObjectJobFiles};
pub use keys::{KeyError, KeyFile, KeyRecord, KeyScope, NewKey};
pub use logged_items::{LoggedItem, LoggedKey, LoggedKind, StoredItem};
pub use models::{
    ModelPublication, ModelRegistry, PublishedVersion, ScannedVersion, VersionCompleteness, VersionFiles,
};
pub use objects::{BlockingObjects, ObjectStorage};
pub use outputs::{OutputFile, is_output_path};
pub use projects::{ProjectAssignments, ProjectsError};
pub use records::{JobLease, JobRecord, JobRecords, JobState};
pub use rights::{AccessAction, AccessDenied, AccessRights, ResourceKind, VersionClaim};
pub use secrets::{SecretError, SecretStore};
pub use shared_file::{SealingKey, SharedFile, SharedFileError};
pub use state_dir::{StateDir, StateDirLock};
pub use storage_usage::{StorageKind, StorageQuota, StorageUsage};
