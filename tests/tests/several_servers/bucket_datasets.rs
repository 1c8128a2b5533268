//! Datasets in a bucket: what listings and fetches cost, and what happens to damaged copies and interrupted removals.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are printed")]

use std::path::Path;

use saggar_store::dataset::DatasetInfo;
use saggar_store::{BlockingObjects, DatasetStore, ProjectAssignments, StateDir};
use saggar_tests::s3::{FaultProxy, MotoServer, S3Fault, s3_objects};
use tempfile::TempDir;

/// Versions that the listing has.
const VERSIONS: usize = 12;

/// A bucket behind a proxy that counts requests, and a machine with a cache for each name.
struct TestBucket {
    _store: MotoServer,
    proxy: FaultProxy,
    directory: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl TestBucket {
    fn start() -> Option<TestBucket> {
        let store = MotoServer::start()?;
        let proxy = FaultProxy::start(store.port());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Some(TestBucket { _store: store, proxy, directory: tempfile::tempdir().unwrap(), runtime })
    }

    fn objects(&self) -> BlockingObjects {
        BlockingObjects::new(s3_objects(self.proxy.port(), "lab"), self.runtime.handle().clone())
    }

    fn cache(&self, machine: &str) -> std::path::PathBuf {
        self.directory.path().join(machine)
    }

    fn datasets(&self, machine: &str) -> DatasetStore {
        DatasetStore::in_objects(self.objects(), self.cache(machine))
    }

    /// Returns the number of requests that `work` sends: listings and reads of objects.
    fn count<T>(&self, work: impl FnOnce() -> T) -> (T, usize, usize) {
        let counts = || {
            let listings = self.proxy.requests("GET", "list-type=2");
            (listings, self.proxy.requests("GET", "/") - listings)
        };
        let before = counts();
        let value = work();
        let after = counts();
        (value, after.0 - before.0, after.1 - before.1)
    }
}

fn ingest(datasets: &DatasetStore, name: &str, content: usize) -> DatasetInfo {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.csv"), format!("a,b\n{content},2\n3,4\n")).unwrap();
    datasets.ingest(name, folder.path(), 0).unwrap()
}

/// Returns the directories of fetched versions in a cache.
fn fetched(cache: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(cache).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir() && !path.file_name().unwrap().to_string_lossy().starts_with('.')).collect()
}

#[test]
fn a_listing_reads_each_manifest_once_and_no_column() {
    let Some(bucket) = TestBucket::start() else { return };
    let here = bucket.datasets("here");
    let stored: Vec<DatasetInfo> = (0..VERSIONS).map(|at| ingest(&here, &format!("d{}", at % 4), at)).collect();
    let there = bucket.datasets("there");
    let (listed, listings, reads) = bucket.count(|| there.list().unwrap());
    println!("a first listing of {VERSIONS} versions: {listings} listings and {reads} reads");
    assert_eq!((listed.len(), listings, reads), (VERSIONS, 1, VERSIONS));
    assert!(stored.iter().all(|info| listed.contains(info)));
    let (again, listings, reads) = bucket.count(|| there.list().unwrap());
    assert_eq!((again == listed, listings, reads), (true, 1, 0));
    here.remove("d1", 1).unwrap();
    ingest(&here, "d9", 99);
    let (changed, listings, reads) = bucket.count(|| there.list().unwrap());
    assert_eq!((changed.len(), listings, reads), (VERSIONS, 1, 1), "only the new one is read");
    assert!(changed.iter().all(|info| (info.name.as_str(), info.version) != ("d1", 1)));
    assert_eq!(fetched(&bucket.cache("there")), Vec::<std::path::PathBuf>::new());
    let (newest, listings, reads) = bucket.count(|| there.resolve("d0").unwrap());
    assert_eq!((newest.version, listings, reads), (3, 1, 1));
}

#[test]
fn users_of_one_machine_fetch_a_dataset_once_and_a_damaged_copy_is_fetched_again() {
    let Some(bucket) = TestBucket::start() else { return };
    let info = ingest(&bucket.datasets("here"), "d", 1);
    let part_reads = || bucket.proxy.requests("GET", "datasets-parts/");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| bucket.datasets("there").open(&info).unwrap());
        }
    });
    let files = fetched(&bucket.cache("there"));
    let once = part_reads();
    assert_eq!((files.len(), once), (1, std::fs::read_dir(&files[0]).unwrap().count()), "each file has one part");
    let there = bucket.datasets("there");
    let opened = there.open(&info).unwrap();
    assert_eq!((opened.digest(), part_reads()), (info.digest, once), "it is used again");
    let column = std::fs::read_dir(&files[0]).unwrap().map(|it| it.unwrap().path());
    let column = column.into_iter().find(|path| path.extension().is_some_and(|it| it == "bin")).unwrap();
    let bytes = std::fs::read(&column).unwrap();
    std::fs::remove_file(&column).unwrap();
    std::fs::write(&column, vec![7; bytes.len()]).unwrap();
    assert_eq!(there.open(&info).unwrap().digest(), info.digest);
    assert_eq!(part_reads(), 2 * once);
}

#[test]
fn a_removal_that_was_interrupted_is_completed_by_the_next_one() {
    let Some(bucket) = TestBucket::start() else { return };
    let datasets = bucket.datasets("here");
    (0..2).for_each(|at| drop(ingest(&datasets, "d", at)));
    // Deletions are single requests of the crate, or one for many objects.
    for method in ["DELETE", "POST"] {
        bucket.proxy.inject(S3Fault::Refuse(403, "AccessDenied"), method, "/", u32::MAX);
    }
    datasets.remove("d", 1).unwrap_err();
    bucket.proxy.heal();
    let versions = || -> Vec<u64> { datasets.list().unwrap().into_iter().map(|info| info.version).collect() };
    assert_eq!(versions(), [2], "it is removed for every reader");
    let left = |folder: &str| bucket.runtime.block_on(bucket.objects().storage().list(folder)).unwrap().len();
    let before = left("datasets-parts");
    datasets.remove("d", 2).unwrap();
    assert!(before > 0 && left("datasets-parts") == 0, "{before}");
    assert_eq!((versions(), ingest(&datasets, "d", 0).version), (Vec::new(), 3));
}

#[test]
fn assignments_to_projects_are_those_of_all_machines_and_end_with_the_last_version() {
    let Some(bucket) = TestBucket::start() else { return };
    let homes = ["a", "b"].map(|name| StateDir::open(bucket.cache(name)).unwrap().with_bucket(bucket.objects()));
    let [here, there] = homes.each_ref().map(ProjectAssignments::of_datasets);
    let datasets = DatasetStore::of_home(&homes[0]);
    assert!(here.set("d", vec!["digits".to_owned()]).is_err(), "there is no such dataset");
    ingest(&datasets, "d", 0);
    here.set("d", vec!["digits".to_owned()]).unwrap();
    assert_eq!(there.recorded_projects("d").unwrap(), Some(vec!["digits".to_owned()]));
    there.set("d", vec!["faces".to_owned(), "digits".to_owned()]).unwrap();
    let fresh = ProjectAssignments::of_datasets(&homes[0]);
    let (projects, _, reads) =
        bucket.count(|| (0..100).map(|_| fresh.recorded_projects("d").unwrap()).next_back().unwrap());
    assert_eq!((projects, reads), (Some(vec!["digits".to_owned(), "faces".to_owned()]), 1));
    datasets.remove("d", 1).unwrap();
    assert_eq!(ProjectAssignments::of_datasets(&homes[1]).recorded_projects("d").unwrap(), None);
}
