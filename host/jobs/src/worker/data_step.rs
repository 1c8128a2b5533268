//! The attempt of a data step: makes a version of a dataset from a job's output or a fetched file, with the code of
//! `saggar data add` and of uploads. Repeating it makes no second version.

use std::cell::RefCell;

use saggar_clock::{Clock, SystemClock};
use saggar_fetch::{FetchRequest, RemoteFetcher, file_name_of_url};
use saggar_plugin::TrainOutcome;
use saggar_store::archive::unpack_download;
use saggar_store::dataset::DatasetInfo;
use saggar_store::limits::UPLOAD_BYTES_MAX;
use saggar_store::{DatasetStore, Digest, StateDir};

use super::lost_worker::data_failure;
use super::rights::JobRights;
use super::write_fence::WriteFence;
use super::{AttemptFailure, WorkerAttempt};
use crate::protocol::WorkerEvent;
use crate::spec::{DataStepFetch, DataStepOutput, DataStepSource, DataStepSpec};
use crate::step_outputs::DATASET_OUTPUT;

/// The reason code of an attempt that could not make the version.
const BAD_DATASET: &str = "BAD_DATASET";

impl WorkerAttempt<'_> {
    /// Makes the version. No device is opened.
    pub(super) fn run_data_step(&self, step: &DataStepSpec, home: &StateDir) -> Result<TrainOutcome, AttemptFailure> {
        self.channel.send(&WorkerEvent::Started {
            device: "cpu".to_owned(),
            adapter: "no device is opened".to_owned(),
            driver: String::new(),
            exact_seconds: false,
            choice: "a data step computes nothing".to_owned(),
        });
        let rights = JobRights::new(&self.start, home, &self.locations.models);
        let claimed = |make: &dyn Fn() -> Result<DatasetInfo, AttemptFailure>| {
            let denied = |error| AttemptFailure::permanent("FORBIDDEN", format!("dataset {}: {error}", step.dataset));
            rights.claim_dataset(&step.dataset).map_err(denied)?;
            WriteFence::new(&self.start, self.channel, &self.control).wait();
            let made = make();
            if made.is_err() {
                rights.release_dataset(&step.dataset);
            }
            made
        };
        let made = self.outage_retry().run(|| match &step.from {
            DataStepSource::Output(output) => claimed(&|| self.ingest_output(step, output, home)),
            DataStepSource::Fetch(fetch) => claimed(&|| self.ingest_fetched(step, fetch, home)),
            // It exists, and whether it can be read was checked when the job was submitted.
            DataStepSource::Version(existing) => DatasetStore::of_home(home)
                .info(&step.dataset, existing.version)
                .map_err(|error| data_failure(BAD_DATASET, &error)),
        })?;
        let reference = format!("{}/{}", made.name, made.version);
        for note in &made.notes {
            self.log(format!("note: {note}"));
        }
        self.log(format!("dataset {reference}: {} items, sha256 {}", made.items, made.digest));
        self.channel.send(&WorkerEvent::StepOutput {
            name: DATASET_OUTPUT.to_owned(),
            kind: "dataset".to_owned(),
            value: reference,
        });
        Ok(TrainOutcome::Finished)
    }

    fn ingest_output(
        &self,
        step: &DataStepSpec,
        output: &DataStepOutput,
        home: &StateDir,
    ) -> Result<DatasetInfo, AttemptFailure> {
        let id = self.start.jobs.get(&output.job).map_or(output.job.as_str(), String::as_str);
        let room = RefCell::new(self.storage_guard(home));
        let reserve = |bytes| room.borrow_mut().reserve(bytes);
        let now_ms = SystemClock.now_ms();
        let datasets = DatasetStore::of_home(home);
        let made = datasets.ingest_output(&step.dataset, home, id, output.path.as_deref(), now_ms, reserve);
        made.map_err(|error| data_failure(BAD_DATASET, &error))
    }

    fn ingest_fetched(
        &self,
        step: &DataStepSpec,
        fetch: &DataStepFetch,
        home: &StateDir,
    ) -> Result<DatasetInfo, AttemptFailure> {
        let failed = |error: &dyn std::fmt::Display| AttemptFailure::permanent(BAD_DATASET, error);
        let sha256: Digest = fetch.sha256.to_ascii_lowercase().parse().map_err(|error| failed(&error))?;
        let datasets = DatasetStore::of_home(home);
        let found = datasets.find_fetched(&step.dataset, &sha256);
        if let Some(info) = found.map_err(|error| data_failure(BAD_DATASET, &error))? {
            self.log("the file is a version of the dataset already; it is not fetched again".to_owned());
            return Ok(info);
        }
        let name = file_name_of_url(&fetch.url).ok_or_else(|| failed(&"the URL ends in no plain name of a file"))?;
        let fetcher = RemoteFetcher::new(self.start.fetch.clone());
        let request = FetchRequest { url: &fetch.url, sha256: &sha256, bytes_max: UPLOAD_BYTES_MAX };
        let file = fetcher
            .fetch(&request, &home.fetched())
            .map_err(|error| AttemptFailure::permanent("FETCH_FAILED", error))?;
        self.log(format!("fetched {name} ({} bytes)", file.bytes()));
        let folder = file.create_folder().map_err(|error| failed(&error))?;
        let content = unpack_download(file.path(), &name, &folder, UPLOAD_BYTES_MAX);
        let content = content.map_err(|error| failed(&error))?;
        let room = RefCell::new(self.storage_guard(home));
        let reserve = |bytes| room.borrow_mut().reserve(bytes);
        let made = datasets.ingest_fetched(&step.dataset, &content, &sha256, SystemClock.now_ms(), reserve);
        made.map_err(|error| data_failure(BAD_DATASET, &error))
    }

    fn log(&self, line: String) {
        self.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
    }
}
