//! Durable state: objects, checkpoints, model versions, datasets, job records and keys.
//!
//! What is committed here survives `kill -9` and power loss at any instant: data is synced before
//! the one small file that makes it visible, and that file is created once and never changed. What
//! is read back is checked against its digest first.
//!
//! Deliberately elsewhere: what a checkpoint means to a device (`jobs`), what a plugin is
//! (`plugin`), who may ask (`serve`). Logic takes the time as an argument; see [`clock`].

pub mod archive;
pub mod checkpoint;
pub mod clock;
pub mod dataset;
pub mod digest;
pub mod error;
pub mod home;
pub mod keys;
pub mod limits;
pub mod models;
pub mod objects;
pub mod outputs;
pub mod picture;
pub mod projects;
pub mod records;
pub mod regular_file;
pub mod rights;
pub mod secrets;
pub mod usage;

mod durable;
mod tensor_text;
mod versions;
mod zip_directory;

pub use archive::Archive;
pub use checkpoint::{
    BestBy, Checkpoint, CheckpointInfo, Checkpoints, Export, Latest, Mode, Position, Retention, SavedVariable, Skipped,
    VariableKind, Verified, Wanted, digest_of_variables,
};
pub use clock::{Clock, ManualClock, Millis, SystemClock};
pub use dataset::upload::Uploads;
pub use dataset::{Dataset, Datasets, Field, Split};
pub use digest::{Digest, Hasher};
pub use error::{CheckpointError, DatasetError, ModelError, RecordError, StoreError};
pub use home::{Home, HomeLock};
pub use keys::{KeyError, KeyFile, KeyRecord, NewKey, Scope};
pub use models::{Found, FoundState, Models, Publication, Published, VersionFiles};
pub use objects::Objects;
pub use outputs::{OutputFile, is_output_path};
pub use projects::{Projects, ProjectsError};
pub use records::sqlite::SqliteRecords;
pub use records::{Job, JobState, Lease, Records};
pub use rights::{Claim, Effect, Kind, Refused, Rights};
pub use secrets::{SecretError, Secrets};
pub use usage::{StorageKind, StorageQuota, Usage};
