//! `saggar metrics --tensorboard`: a job's series as an event file, which TensorBoard reads.
//!
//! A job is a run: the directory of its name, with one event file, which is always of the same name. Exporting a job again
//! replaces the file, so that no value is there twice. A followed job's file grows by whole records.

mod event_file;
mod logged_events;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use saggar_rest::jobs::JobDocument;

use self::event_file::{ScalarEvent, encode_file_start, encode_scalar};
use self::logged_events::LoggedEvents;
use super::job_series::{JobMetrics, SeriesPoint};
use crate::args::MetricsArgs;
use crate::client::ApiClient;
use crate::commands::job_follow::{POLL_INTERVAL, detach_on_interrupt, is_over, job_path};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

/// Writes the series of the jobs to `directory`; with `--follow`, until the job is over.
///
/// # Errors
/// `NOT_FOUND` and others of the server; `INVALID` if a file cannot be written, or if several jobs were to be followed.
pub(super) fn export(
    args: &MetricsArgs,
    directory: &Path,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    if args.follow && args.jobs.len() > 1 {
        return Err(CliError::new(exit::USAGE, "usage", "--follow writes the values of one job")
            .with_hint("run the command once for each job"));
    }
    let mut written = Vec::new();
    for job in &args.jobs {
        let run = export_job(args, job, directory, client, output)?;
        let (path, points, logged) = (run.path.display().to_string(), run.points, run.logged);
        if !output.json {
            let logged = if logged > 0 { format!(", and {logged} images and histograms") } else { String::new() };
            output.print_line(&format!("{points} points in {path}{logged}"));
        }
        written.push(serde_json::json!({ "file": path, "points": points, "logged": logged }));
    }
    if output.json {
        output.print_json_or_list(&written);
    }
    Ok(())
}

/// Writes the series of a job, and unless series were named, its images and histograms. Returns the run.
fn export_job(
    args: &MetricsArgs,
    job: &str,
    directory: &Path,
    client: &ApiClient,
    output: CliOutput,
) -> Result<TensorBoardRun, CliError> {
    let job: JobDocument = client.get(&job_path(job))?;
    // Read before the series, so that what is recorded in between is not missed.
    let mut over = is_over(&job);
    let measured = JobMetrics::fetch(&job.name, &args.series, 0, client)?;
    let mut run =
        TensorBoardRun::create(directory, &job.name, &measured).map_err(|error| cannot_write(directory, &error))?;
    let mut logged = args.series.is_empty().then(|| LoggedEvents::new(job.name.clone(), measured.series.keys()));
    let write_logged = |logged: &mut Option<LoggedEvents>, run: &mut TensorBoardRun| match logged {
        Some(logged) => logged
            .write_new(client, |record| run.append_logged(&record).map_err(|error| cannot_write(directory, &error))),
        None => Ok(()),
    };
    write_logged(&mut logged, &mut run)?;
    if args.follow && !over {
        output.print_note(&format!("following {}; `tensorboard --logdir {}` shows it", job.name, directory.display()));
        detach_on_interrupt(job.name.clone());
        let mut reconnect = ReconnectState::new(output);
        while !over {
            std::thread::sleep(POLL_INTERVAL);
            // Series can have a value of an earlier step late, so the last time everything is read.
            let fetched = client.get::<JobDocument>(&job_path(&job.name)).and_then(|job| {
                let over = is_over(&job);
                let from = if over { 0 } else { run.last_step() };
                Ok((over, JobMetrics::fetch(&job.name, &args.series, from, client)?))
            });
            match fetched {
                Ok((now_over, measured)) => {
                    run.append(&measured).map_err(|error| cannot_write(directory, &error))?;
                    match write_logged(&mut logged, &mut run) {
                        Ok(()) => {
                            reconnect.note_connected();
                            over = now_over;
                        }
                        Err(failure) => reconnect.wait_for_retry(failure)?,
                    }
                }
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        }
    }
    Ok(run)
}

fn cannot_write(directory: &Path, error: &io::Error) -> CliError {
    CliError::new(exit::INVALID, "tensorboard", format!("{}: {error}", directory.display()))
        .with_hint("name a directory that this user can write to: `saggar metrics JOB --tensorboard runs`")
}

/// The event file of a job.
struct TensorBoardRun {
    path: PathBuf,
    file: File,
    /// The last step that was written of each series.
    last_steps: BTreeMap<String, u64>,
    points: usize,
    /// Images and histograms.
    logged: usize,
}

impl TensorBoardRun {
    /// Writes the file with the points so far. A reader never sees a part of them.
    fn create(directory: &Path, job: &str, measured: &JobMetrics) -> io::Result<TensorBoardRun> {
        let run = directory.join(job);
        std::fs::create_dir_all(&run)?;
        // TensorBoard reads every file with `tfevents` in its name.
        let part = run.join(format!(".saggar.{}.part", std::process::id()));
        let path = run.join(format!("events.out.tfevents.{:010}.saggar", measured.started_ms / 1000));
        let file = File::create(&part)?;
        let mut written = TensorBoardRun { path, file, last_steps: BTreeMap::new(), points: 0, logged: 0 };
        written.file.write_all(&encode_file_start(measured.started_ms))?;
        written.append(measured)?;
        for old in std::fs::read_dir(&run)?.flatten() {
            let name = old.file_name().to_string_lossy().into_owned();
            // That of another start of the job: one that was exported while it was queued.
            if name.starts_with("events.out.tfevents.") && name.ends_with(".saggar") && old.path() != written.path {
                std::fs::remove_file(old.path())?;
            }
        }
        std::fs::rename(&part, &written.path)?;
        Ok(written)
    }

    /// Returns the last step of any series.
    fn last_step(&self) -> u64 {
        self.last_steps.values().copied().max().unwrap_or(0)
    }

    /// Appends the record of an image or a histogram.
    fn append_logged(&mut self, record: &[u8]) -> io::Result<()> {
        self.file.write_all(record)?;
        self.logged += 1;
        Ok(())
    }

    /// Appends the points after those that were written, in one write.
    fn append(&mut self, measured: &JobMetrics) -> io::Result<()> {
        let mut points: Vec<(&str, SeriesPoint)> = Vec::new();
        for (name, series) in &measured.series {
            let last = self.last_steps.get(name).copied();
            points.extend(
                series.iter().filter(|it| last.is_none_or(|last| it.step > last)).map(|it| (name.as_str(), *it)),
            );
            if let Some(newest) = series.last().map(|point| point.step) {
                let known = self.last_steps.entry(name.clone()).or_insert(newest);
                *known = newest.max(*known);
            }
        }
        points.sort_by_key(|(_, point)| point.step);
        let mut bytes = Vec::new();
        for (tag, SeriesPoint { step, value, at_ms }) in &points {
            bytes.extend(encode_scalar(&ScalarEvent { tag, step: *step, value: *value, at_ms: *at_ms }));
        }
        self.file.write_all(&bytes)?;
        self.points += points.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(points: &[(u64, f64)]) -> JobMetrics {
        let point = |&(step, value): &(u64, f64)| SeriesPoint { step, value, at_ms: 1_000 * step };
        let series = BTreeMap::from([("loss".to_owned(), points.iter().map(point).collect())]);
        JobMetrics { started_ms: 5_000, series }
    }

    #[test]
    fn a_followed_file_grows_by_the_new_points_and_an_export_replaces_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = measured(&[(1, 0.5), (2, 0.25)]);
        let mut run = TensorBoardRun::create(directory.path(), "digits-1", &first).unwrap();
        let before = std::fs::read(&run.path).unwrap();
        run.append(&first).unwrap();
        assert_eq!(std::fs::read(&run.path).unwrap(), before, "nothing is written twice");
        run.append(&measured(&[(2, 0.25), (3, f64::NAN)])).unwrap();
        assert_eq!((run.points, run.last_step()), (3, 3));
        let grown = std::fs::read(&run.path).unwrap();
        assert!(grown.starts_with(&before) && grown.len() > before.len());
        TensorBoardRun::create(directory.path(), "digits-1", &measured(&[(1, 0.5), (2, 0.25), (3, f64::NAN)])).unwrap();
        assert_eq!(std::fs::read(&run.path).unwrap(), grown);
        let files = std::fs::read_dir(directory.path().join("digits-1")).unwrap().count();
        assert_eq!(files, 1);
    }
}
