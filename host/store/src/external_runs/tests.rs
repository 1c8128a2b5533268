use super::*;

fn store() -> (tempfile::TempDir, ExternalRunStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = ExternalRunStore::new(directory.path().join("external-runs.db"));
    (directory, store)
}

fn new_run(experiment: &str) -> NewExternalRun {
    NewExternalRun { experiment: experiment.to_owned(), name: "calm-fox-1".to_owned(), ..NewExternalRun::default() }
}

fn point(key: &str, step: i64, value: f64) -> ExternalPoint {
    ExternalPoint { key: key.to_owned(), value, step, at_ms: 1000 + step }
}

fn text(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn reading_creates_no_file() {
    let (directory, store) = store();
    assert!(store.experiments().unwrap().is_empty() && store.runs("a", None, 10).unwrap().is_empty());
    assert!(matches!(store.run("x"), Err(ExternalRunError::NoRun { .. })));
    assert!(matches!(store.history("x", "loss", 0, 10), Err(ExternalRunError::NoRun { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_run_keeps_what_was_logged_across_a_restart() {
    let (directory, store) = store();
    store.create_experiment("mine", 5).unwrap();
    assert!(matches!(store.create_experiment("mine", 6), Err(ExternalRunError::ExperimentExists { .. })));
    let run = store.create_run(&NewExternalRun { tags: vec![text("a", "1")], ..new_run("mine") }).unwrap();
    assert_eq!((run.id.len(), run.status, run.tags.len()), (32, ExternalRunStatus::Running, 1));
    let points = vec![
        point("loss", 2, 0.5),
        point("loss", 1, f64::NAN),
        point("loss", -1, f64::NEG_INFINITY),
        point("b", 0, 0.0),
    ];
    let log = ExternalLog { parameters: vec![text("lr", "0.1")], tags: vec![text("a", "2")], points };
    store.log(&run.id, &log).unwrap();
    // A client that got no answer sends it again.
    store.log(&run.id, &log).unwrap();
    drop(store);
    let store = ExternalRunStore::new(directory.path().join("external-runs.db"));
    let read = store.run(&run.id).unwrap();
    assert_eq!((&read.parameters, &read.tags), (&vec![text("lr", "0.1")], &vec![text("a", "2")]));
    assert_eq!(read.latest, [point("b", 0, 0.0), point("loss", 2, 0.5)]);
    let history = store.history(&run.id, "loss", 0, 10).unwrap();
    assert_eq!(history.iter().map(|it| it.step).collect::<Vec<_>>(), [-1, 1, 2]);
    assert!(history[0].value == f64::NEG_INFINITY && history[1].value.is_nan());
    assert_eq!(store.history(&run.id, "loss", 2, 10).unwrap(), history[2..]);
    let ended =
        ExternalRunUpdate { status: Some(ExternalRunStatus::Finished), ended_ms: Some(9), ..Default::default() };
    let ended = store.update_run(&run.id, &ended).unwrap();
    assert_eq!(
        (ended.status, ended.ended_ms, ended.name.as_str()),
        (ExternalRunStatus::Finished, Some(9), "calm-fox-1")
    );
    assert!(store.remove_tag(&run.id, "a").unwrap() && !store.remove_tag(&run.id, "a").unwrap());
    assert_eq!(store.experiments().unwrap()[0].name, "mine");
}

#[test]
fn runs_are_paged_newest_first() {
    let (_directory, store) = store();
    let ids: Vec<String> = (0..5).map(|_| store.create_run(&new_run("a")).unwrap().id).collect();
    store.create_run(&new_run("b")).unwrap();
    let first = store.runs("a", None, 3).unwrap();
    let second = store.runs("a", Some(first[2].0), 3).unwrap();
    let read: Vec<String> = first.into_iter().chain(second).map(|(_, run)| run.id).collect();
    assert_eq!(read, ids.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn a_refused_write_stores_nothing() {
    let (_directory, store) = store();
    let run = store.create_run(&new_run("a")).unwrap().id;
    let log = |parameters: &[(&str, &str)], points| {
        let parameters = parameters.iter().map(|(key, value)| text(key, value)).collect();
        store.log(&run, &ExternalLog { parameters, tags: Vec::new(), points })
    };
    log(&[("lr", "1")], Vec::new()).unwrap();
    let changed = log(&[("new", "1"), ("lr", "2")], vec![point("loss", 1, 1.0)]);
    assert!(matches!(changed, Err(ExternalRunError::ParameterChanged { .. })));
    let long = "k".repeat(KEY_CHARS_MAX + 1);
    assert!(matches!(log(&[("new", "1")], vec![point(&long, 1, 1.0)]), Err(ExternalRunError::Length { .. })));
    assert!(matches!(log(&[("", "1")], Vec::new()), Err(ExternalRunError::Length { .. })));
    let many: Vec<_> = (0..=METRIC_KEYS_MAX).map(|at| point(&format!("m{at}"), 1, 1.0)).collect();
    assert!(matches!(log(&[], many), Err(ExternalRunError::TooMany { .. })));
    let large: Vec<(String, String)> = (0..200).map(|at| text(&at.to_string(), &"v".repeat(8000))).collect();
    let large = large.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>();
    assert!(matches!(log(&large, Vec::new()), Err(ExternalRunError::TooMany { .. })));
    let read = store.run(&run).unwrap();
    assert_eq!((read.parameters, read.latest), (vec![text("lr", "1")], Vec::new()));
}

#[test]
fn a_database_of_a_newer_build_is_refused_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("external-runs.db");
    ExternalRunStore::new(path.clone()).create_experiment("tuning", 1).unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
    let error = ExternalRunStore::new(path.clone()).create_experiment("other", 2).unwrap_err();
    let reason =
        format!("{error}: {}", std::error::Error::source(&error).map_or_else(String::new, ToString::to_string));
    assert!(reason.contains("it has format 2, and this build reads up to 1"), "{reason}");
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let experiments =
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM experiments", [], count).unwrap();
    assert_eq!(experiments, 1);
}
