use std::fs;

use super::*;

const DEBOUNCE: Duration = Duration::from_millis(20);
/// Longer than any test runs, so that every tick was caused by an event.
const NEVER: Duration = Duration::from_secs(600);

fn models_dir() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("models");
    fs::create_dir(&dir).unwrap();
    (home, dir)
}

#[test]
fn a_new_version_triggers_a_tick() {
    let (_home, dir) = models_dir();
    let mut watch = ModelWatch::start_with(&dir, DEBOUNCE, NEVER).unwrap();
    fs::create_dir_all(dir.join("digits/1")).unwrap();
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
    fs::write(dir.join("digits/1/plugin.wasm"), b"x").unwrap();
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
}

#[test]
fn a_replaced_models_directory_is_still_watched() {
    let (home, dir) = models_dir();
    let mut watch = ModelWatch::start_with(&dir, DEBOUNCE, NEVER).unwrap();
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::rename(&dir, home.path().join("old")).unwrap();
    fs::rename(&other, &dir).unwrap();
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
    // The first tick can come between the two renames; this write is seen in either case.
    fs::write(dir.join("version"), b"x").unwrap();
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
}

#[test]
fn the_rescan_interval_triggers_a_tick() {
    let (_home, dir) = models_dir();
    let mut watch = ModelWatch::start_with(&dir, DEBOUNCE, Duration::from_millis(5)).unwrap();
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
    assert_eq!(watch.ticks.blocking_recv(), Some(()));
}

#[test]
fn watching_a_missing_directory_is_an_error() {
    let (home, _) = models_dir();
    let error = ModelWatch::start(&home.path().join("nowhere")).unwrap_err();
    assert!(error.message.starts_with("the models directory cannot be watched: "), "{}", error.message);
}

#[test]
fn dropping_the_watch_ends_its_thread() {
    let (_home, dir) = models_dir();
    let ModelWatch { ticks, _watcher } = ModelWatch::start_with(&dir, DEBOUNCE, NEVER).unwrap();
    drop(_watcher);
    let mut ticks = ticks;
    // The thread holds the sender; its end closes the channel.
    while ticks.blocking_recv().is_some() {}
}
