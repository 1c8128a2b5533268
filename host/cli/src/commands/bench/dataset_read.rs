//! `saggar bench data`: reads the batches of a dataset to a device, as trainings do, without a training.
//!
//! The first epoch is read after the system was asked to drop the dataset's pages from its cache, so it is as cold as a
//! process without privileges can make it: the disk and what lies below the file system keep their own caches. The
//! following epochs are warm.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use saggar_device::Backend;
use saggar_plugin::{BatchReadOptions, BatchReader};
use saggar_store::dataset::DatasetInfo;
use saggar_store::{ColumnarDataset, DatasetStore};
use serde::Serialize;

use super::device::{self, format_rate, format_seconds};
use super::saved_result::{BenchKind, BetterDirection, MeasuredSeries, SavedResult};
use crate::args::BenchDataArgs;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The parts of the warm epochs whose figures are compared by `saggar bench diff`.
const PARTS: usize = 20;
const MEGABYTE: f64 = 1e6;

/// The figures of reading one dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DataReadResults {
    dataset: String,
    version: u64,
    device: String,
    items: u64,
    item_bytes: usize,
    batch: u32,
    /// Opening the version, which reads and verifies every byte.
    open_seconds: f64,
    /// The first epoch, after the pages were dropped from the system's cache.
    cold: EpochRead,
    /// The epochs after it, together.
    warm: EpochRead,
    warm_epochs: u32,
    /// Whether the system dropped the pages before the cold epoch.
    cache_dropped: bool,
}

/// The reading of one or more epochs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct EpochRead {
    seconds: f64,
    items_per_second: f64,
    megabytes_per_second: f64,
    batches_per_second: f64,
}

/// Batches that were read: the items and the time of each.
#[derive(Default)]
struct ReadBatches(Vec<(usize, Duration)>);

pub(super) fn data(args: &BenchDataArgs, output: CliOutput) -> Result<i32, CliError> {
    let home = super::open_state_dir(&args.home)?;
    let missing = |reason: String| {
        CliError::new(exit::NOT_FOUND, "no_dataset", reason).with_hint(
            "name the state directory that has the dataset: --home DIR; `saggar data ls` lists a server's datasets",
        )
    };
    let home = home.ok_or_else(|| missing(format!("there is no state directory {}", args.home.display())))?;
    let datasets = DatasetStore::new(home.datasets());
    // Model versions are named digits@3 and datasets digits/3; both are understood here.
    let reference = args.dataset.replace('@', "/");
    let info = datasets.resolve(&reference).map_err(|error| missing(error.to_string()))?;
    let invalid = |error: &dyn std::fmt::Display| CliError::invalid(error.to_string());
    let began = Instant::now();
    let dataset = Arc::new(datasets.open(&info).map_err(|error| invalid(&error))?);
    let open_seconds = began.elapsed().as_secs_f64();
    let directory = datasets.directory(&info).map_err(|error| invalid(&error))?;
    let results = device::measure_on_each(std::slice::from_ref(&args.device), output, |device| {
        measure(args, &info, &dataset, &directory, (device, open_seconds))
    });
    for (_, result) in &results {
        let Ok((read, series)) = result else { continue };
        let saved = SavedResult::new(BenchKind::Data, vec![series.clone()], read.clone())
            .with_condition("dataset", &info.name)
            .with_condition("batch", args.batch)
            .with_condition("fields", if args.fields.is_empty() { "all".to_owned() } else { args.fields.join(",") })
            .with_condition("order", if args.in_order { "stored" } else { "shuffled" })
            .with_condition("split", args.split.as_deref().unwrap_or("all"))
            .with_property("dataset digest", dataset.digest().hex());
        match output.json {
            true => output.print_json(&saved),
            false => print_read(read, output),
        }
        if let Some(file) = &args.save {
            saved.save(file)?;
        }
    }
    Ok(device::exit_code(&results))
}

fn measure(
    args: &BenchDataArgs,
    info: &DatasetInfo,
    dataset: &Arc<ColumnarDataset>,
    directory: &Path,
    (device, open_seconds): (Arc<dyn Backend>, f64),
) -> Result<(DataReadResults, MeasuredSeries), CliError> {
    let options = BatchReadOptions {
        split: args.split.clone(),
        fields: args.fields.clone(),
        size: args.batch,
        shuffle_seed: (!args.in_order).then_some(args.seed),
    };
    let mut reader = BatchReader::new(Arc::clone(dataset), &options, Arc::clone(&device))
        .map_err(|error| device::plugin_error(&error))?;
    let cache_dropped = drop_cached_pages(directory);
    let cold = read_epochs(&mut reader, &*device, 1)?;
    let warm = read_epochs(&mut reader, &*device, args.epochs)?;
    let item_bytes = reader.item_bytes();
    let results = DataReadResults {
        dataset: info.name.clone(),
        version: info.version,
        device: device.info().name.clone(),
        items: cold.items(),
        item_bytes,
        batch: args.batch,
        open_seconds,
        cold: cold.total(item_bytes),
        warm: warm.total(item_bytes),
        warm_epochs: args.epochs,
        cache_dropped,
    };
    let series = MeasuredSeries {
        group: format!("{}, warm", device.info().name),
        name: "MB/s".to_owned(),
        better: BetterDirection::Higher,
        samples: warm.part_rates(item_bytes),
    };
    Ok((results, series))
}

/// Asks the system to drop the pages of the files below `directory`. Returns whether it did so for every file. Pages
/// that a process has mapped and read are kept, so call it before the dataset's columns are read.
fn drop_cached_pages(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let drop_file = |entry: std::io::Result<std::fs::DirEntry>| {
        let file = std::fs::File::open(entry?.path())?;
        // Pages that are not written yet cannot be dropped.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok::<_, std::io::Error>(())
    };
    entries.map(drop_file).all(|dropped| dropped.is_ok())
}

fn read_epochs(reader: &mut BatchReader, device: &dyn Backend, epochs: u32) -> Result<ReadBatches, CliError> {
    let failed = |error| device::plugin_error(&error);
    let mut read = ReadBatches::default();
    for _ in 0..epochs {
        loop {
            let began = Instant::now();
            let Some(items) = reader.read_batch().map_err(failed)? else { break };
            read.0.push((items, began.elapsed()));
        }
    }
    // Copies to a device can be behind; waiting for them belongs to the last batch.
    let began = Instant::now();
    device.synchronize().map_err(|error| failed(error.into()))?;
    if let Some((_, time)) = read.0.last_mut() {
        *time += began.elapsed();
    }
    Ok(read)
}

impl ReadBatches {
    fn items(&self) -> u64 {
        self.0.iter().map(|(items, _)| *items as u64).sum()
    }

    fn total(&self, item_bytes: usize) -> EpochRead {
        let seconds = self.0.iter().map(|(_, time)| *time).sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE);
        let items = self.items() as f64;
        EpochRead {
            seconds,
            items_per_second: items / seconds,
            megabytes_per_second: items * item_bytes as f64 / MEGABYTE / seconds,
            batches_per_second: self.0.len() as f64 / seconds,
        }
    }

    /// Returns the megabytes per second of [`PARTS`] consecutive parts, or of fewer if there are fewer batches.
    fn part_rates(&self, item_bytes: usize) -> Vec<f64> {
        let length = self.0.len().div_ceil(PARTS).max(1);
        let rate = |part: &[(usize, Duration)]| ReadBatches(part.to_vec()).total(item_bytes).megabytes_per_second;
        self.0.chunks(length).map(rate).collect()
    }
}

fn print_read(read: &DataReadResults, output: CliOutput) {
    let bytes = read.items as f64 * read.item_bytes as f64;
    let row = |name: &str, epoch: &EpochRead| {
        vec![
            name.to_owned(),
            format_rate(epoch.megabytes_per_second),
            format_rate(epoch.items_per_second),
            format_rate(epoch.batches_per_second),
            format_seconds(epoch.seconds),
        ]
    };
    let opened = vec![
        "open and verify".to_owned(),
        format_rate(bytes / MEGABYTE / read.open_seconds.max(f64::MIN_POSITIVE)),
        format_rate(read.items as f64 / read.open_seconds.max(f64::MIN_POSITIVE)),
        "-".to_owned(),
        format_seconds(read.open_seconds),
    ];
    let cold = if read.cache_dropped { "first epoch, cache dropped" } else { "first epoch" };
    let warm = format!("{} warm epochs", read.warm_epochs);
    let headers = ["READ", "MB/S", "ITEMS/S", "BATCHES/S", "TIME"];
    output.print_table(&headers, &[opened, row(cold, &read.cold), row(&warm, &read.warm)]);
    let DataReadResults { dataset, version, items, item_bytes, batch, device, .. } = read;
    output.print_note(&format!(
        "{dataset}/{version}: {items} items of {item_bytes} bytes, batches of {batch}, memory-mapped, to {device}"
    ));
    if !read.cache_dropped {
        output.print_note(
            "warning: the system did not drop the dataset's pages from its cache, so the first epoch is warm",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_items_and_times() {
        let batches = ReadBatches((0..40).map(|_| (10, Duration::from_millis(10))).collect());
        let total = batches.total(1000);
        assert!((total.items_per_second - 1000.0).abs() < 1e-6 && (total.megabytes_per_second - 1.0).abs() < 1e-9);
        assert!((total.batches_per_second - 100.0).abs() < 1e-6);
        let parts = batches.part_rates(1000);
        assert!(parts.len() == PARTS && parts.iter().all(|rate| (rate - 1.0).abs() < 1e-9), "{parts:?}");
        assert!(ReadBatches::default().part_rates(1).is_empty());
    }

    #[test]
    fn pages_of_files_are_dropped_and_a_missing_directory_is_reported() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("column"), vec![1; 1 << 16]).unwrap();
        assert!(drop_cached_pages(place.path()));
        assert!(!drop_cached_pages(&place.path().join("none")));
    }
}
