//! The files that the objects of a bucket become.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{ContentItem, ContentKind, ContentPlan, ContentSource};
use crate::bucket_folders::{DATASETS_FOLDER, MODELS_FOLDER, PREDICTIONS_FOLDER, UPLOADS_FOLDER};
use crate::error::StoreError;
use crate::logged_items::{LOGGED_FOLDER, LoggedKey};
use crate::objects::{BlockingObjects, MIGRATION_MARK, ObjectInfo};
use crate::outputs::{OUTPUT_FOLDER, is_output_path};
use crate::versions::objects::{PENDING_INDEX_NAME, VersionIndex};
use crate::versions::{is_name, parse_version};

/// The part of a bucket that is read: checkpoints before the records, everything else after them, so that the records name
/// nothing that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketPart {
    Checkpoints,
    Rest,
}

/// The lines of a log that are in the records, with the first byte of them.
pub(super) type RecordedLogs = BTreeMap<(String, u32), Vec<(u64, String)>>;

/// Lists the objects of a bucket, by name.
///
/// # Errors
/// Returns any error of the store.
pub(super) fn list_all(bucket: &BlockingObjects) -> Result<Vec<ObjectInfo>, StoreError> {
    bucket.wait(|objects| async move { objects.list("").await })
}

/// Plans the files of a state directory that have the content of a bucket.
///
/// # Errors
/// Returns any error of the store.
pub(super) fn plan(
    bucket: &BlockingObjects,
    part: BucketPart,
    recorded: &RecordedLogs,
) -> Result<ContentPlan, StoreError> {
    let mut plan = ContentPlan::default();
    let listed = match part {
        BucketPart::Checkpoints => bucket.wait(|objects| async move { objects.list("checkpoints").await })?,
        BucketPart::Rest => list_all(bucket)?,
    };
    let mut by_folder: BTreeMap<&str, Vec<&ObjectInfo>> = BTreeMap::new();
    for object in &listed {
        by_folder.entry(object.name.split('/').next().unwrap_or_default()).or_default().push(object);
    }
    for (folder, objects) in &by_folder {
        match *folder {
            "checkpoints" if part == BucketPart::Checkpoints => {
                objects.iter().for_each(|object| plan_object(&mut plan, ContentKind::Checkpoints, object));
            }
            "checkpoints" => {}
            "blobs" | "plugins" => {
                objects.iter().for_each(|object| plan_object(&mut plan, ContentKind::Plugins, object));
            }
            DATASETS_FOLDER | MODELS_FOLDER => {
                let kind = if *folder == MODELS_FOLDER { ContentKind::Models } else { ContentKind::Datasets };
                let no_objects = Vec::new();
                let of = |suffix: &str| by_folder.get(format!("{folder}{suffix}").as_str()).unwrap_or(&no_objects);
                plan_versions(bucket, &mut plan, kind, folder, (objects, of("-parts"), of("-projects")))?;
            }
            "datasets-parts" | "models-parts" | "datasets-projects" | "models-projects" => {}
            "jobs" => plan_jobs(&mut plan, objects, recorded),
            MIGRATION_MARK => {}
            other => {
                let reason = match other {
                    UPLOADS_FOLDER => "it belongs to an upload that is not complete",
                    PREDICTIONS_FOLDER => "servers keep predictions for an hour only",
                    _ => "this build does not know what it is",
                };
                objects.iter().for_each(|object| plan.leave(&object.name, reason));
            }
        }
    }
    Ok(plan)
}

fn source(object: &ObjectInfo) -> ContentSource {
    ContentSource::Object { name: object.name.clone(), bytes: object.size, sha256: None }
}

fn plan_object(plan: &mut ContentPlan, kind: ContentKind, object: &ObjectInfo) {
    plan.add(kind, format!("objects/{}", object.name), source(object));
}

fn plan_versions(
    bucket: &BlockingObjects,
    plan: &mut ContentPlan,
    kind: ContentKind,
    folder: &str,
    (objects, parts, projects): (&[&ObjectInfo], &[&ObjectInfo], &[&ObjectInfo]),
) -> Result<(), StoreError> {
    let (mut last, mut used): (BTreeMap<&str, u64>, BTreeSet<String>) = (BTreeMap::new(), BTreeSet::new());
    let sizes: BTreeMap<&str, u64> = parts.iter().map(|object| (object.name.as_str(), object.size)).collect();
    let removed: BTreeSet<&str> = objects.iter().filter_map(|object| object.name.strip_suffix(".removed")).collect();
    for object in objects {
        let Some((name, version, is_index)) = parse_index(folder, &object.name) else {
            plan.leave(&object.name, "this build does not know what it is");
            continue;
        };
        let highest = last.entry(name).or_default();
        *highest = version.max(*highest);
        if !is_index || removed.contains(object.name.strip_suffix(".json").unwrap_or_default()) {
            continue;
        }
        let wanted = object.name.clone();
        // It can have been removed meanwhile.
        let Some(text) = bucket.wait(|objects| async move { objects.find(&wanted).await })? else { continue };
        let index = VersionIndex::parse(&object.name, &text)?;
        for file in &index.files {
            let piece = |part: &crate::versions::objects::IndexedPart| {
                let name = format!("{}/{}", index.parts, part.name);
                used.insert(name.clone());
                let bytes = sizes.get(name.as_str()).copied().unwrap_or(0);
                ContentSource::Object { name, bytes, sha256: Some(part.sha256) }
            };
            let pieces = file.parts.iter().map(piece).collect();
            plan.items.push(ContentItem { kind, target: format!("{folder}/{name}/{version}/{}", file.name), pieces });
        }
    }
    for (name, number) in last {
        plan.add(kind, format!("{folder}/.locks/{name}"), ContentSource::Bytes(number.to_string().into()));
    }
    // The index that a version had among its parts before it was visible is part of the version.
    let folder_of = |name: &String| Some(name.rsplit_once('/')?.0.to_owned());
    let used_folders: BTreeSet<String> = used.iter().filter_map(folder_of).collect();
    let is_used = |name: &str| {
        used.contains(name)
            || name
                .rsplit_once('/')
                .is_some_and(|(folder, file)| file == PENDING_INDEX_NAME && used_folders.contains(folder))
    };
    for object in parts.iter().filter(|object| !is_used(&object.name)) {
        plan.leave(&object.name, "it belongs to no version: an upload was interrupted");
    }
    let mut newest: BTreeMap<&str, &ObjectInfo> = BTreeMap::new();
    for object in projects {
        // The listing is sorted, so the highest revision is last.
        if let Some(name) = object.name.split('/').nth(1).filter(|name| is_name(name)) {
            newest.insert(name, object);
        }
    }
    for (name, object) in newest {
        plan.add(kind, format!("{folder}/.projects/{name}"), source(object));
    }
    Ok(())
}

/// Returns the name, the number and whether it is an index, of an index or the mark of a removal.
fn parse_index<'a>(folder: &str, object: &'a str) -> Option<(&'a str, u64, bool)> {
    let (name, file) = object.strip_prefix(folder)?.strip_prefix('/')?.split_once('/')?;
    let (number, suffix) = file.split_once('.')?;
    let is_known = is_name(name) && matches!(suffix, "json" | "removed");
    is_known.then_some((name, parse_version(number)?, suffix == "json"))
}

fn plan_jobs(plan: &mut ContentPlan, objects: &[&ObjectInfo], recorded: &RecordedLogs) {
    // The chunks of each log and recording, by the path of the file.
    let mut chunks: BTreeMap<String, BTreeMap<u64, ContentSource>> = BTreeMap::new();
    for object in objects {
        let parts: Vec<&str> = object.name.splitn(4, '/').collect();
        match parts[..] {
            ["jobs", _, OUTPUT_FOLDER, path] if is_output_path(path) => {
                plan.add(ContentKind::JobFiles, object.name.clone(), source(object));
            }
            ["jobs", _, LOGGED_FOLDER, file] if LoggedKey::from_file_name(file).is_some() => {
                plan.add(ContentKind::JobFiles, object.name.clone(), source(object));
            }
            ["jobs", job, folder, first] => match (chunk_file(folder), first.parse()) {
                (Some(file), Ok(first)) => {
                    chunks.entry(format!("jobs/{job}/{file}")).or_default().insert(first, source(object));
                }
                _ => plan.leave(&object.name, "this build does not know what it is"),
            },
            _ => plan.leave(&object.name, "this build does not know what it is"),
        }
    }
    for ((job, attempt), lines) in recorded {
        let log = chunks.entry(format!("jobs/{job}/attempt-{attempt}.log")).or_default();
        let stored = log.iter().next_back().map_or(0, |(first, source)| first + source.bytes());
        for (first, text) in lines {
            // A log whose end was interrupted has the same lines in both places.
            let skipped = stored.saturating_sub(*first).min(text.len() as u64);
            if let Some(rest) = text.as_bytes().get(skipped as usize..).filter(|rest| !rest.is_empty()) {
                log.insert(first + skipped, ContentSource::Bytes(rest.to_vec().into()));
            }
        }
    }
    for (target, pieces) in chunks {
        let pieces = pieces.into_values().collect();
        plan.items.push(ContentItem { kind: ContentKind::JobFiles, target, pieces });
    }
}

/// Returns the file that has the chunks of a folder.
fn chunk_file(folder: &str) -> Option<String> {
    let number = |prefix: &str| folder.strip_prefix(prefix)?.parse::<u32>().ok();
    match (number("attempt-"), number("calls-")) {
        (Some(attempt), _) => Some(format!("attempt-{attempt}.log")),
        (_, Some(attempt)) => Some(format!("attempt-{attempt}.calls")),
        (None, None) => None,
    }
}
