//! Watches a plugin's sources: the files that match its `watch` patterns, in the directories that can contain them.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use saggar_project::Glob;

use crate::exit::{self, CliError};
use crate::plugin_build;
use crate::project::ProjectContext;

/// The quiet time that ends a save: editors write in several steps.
const SETTLE_TIME: Duration = Duration::from_millis(40);
/// Maximum time to wait for the end of a save.
const SETTLE_TIME_MAX: Duration = Duration::from_millis(500);

/// A watcher that reports when a source was saved.
pub(super) struct SourceWatcher {
    saves: Receiver<Instant>,
    /// Ends the watch when dropped.
    _watcher: RecommendedWatcher,
}

impl SourceWatcher {
    /// Watches the sources of a plugin of the project.
    ///
    /// # Errors
    /// Fails if the system cannot watch files.
    pub(super) fn watch(project: &ProjectContext, plugin: &str) -> Result<SourceWatcher, CliError> {
        let said = project.manifest.plugins.get(plugin).and_then(|plugin| plugin.build.as_ref());
        let globs = match said.map(|build| build.watch.clone()).filter(|watch| !watch.is_empty()) {
            Some(watch) => watch,
            None => plugin_build::source_patterns().filter_map(|pattern| Glob::parse(pattern).ok()).collect(),
        };
        let failed = |error: notify::Error| {
            CliError::new(exit::UNEXPECTED, "watch", format!("sources cannot be watched: {error}"))
                .with_hint("on Linux: raise fs.inotify.max_user_watches")
        };
        let root = project.root.canonicalize().unwrap_or_else(|_| project.root.clone());
        let (saved, saves) = sync_channel(1);
        let mut watcher =
            notify::recommended_watcher(event_handler(root.clone(), globs.clone(), saved)).map_err(failed)?;
        for (directory, mode) in watched_directories(&globs) {
            let directory = root.join(directory);
            if directory.is_dir() {
                watcher.watch(&directory, mode).map_err(failed)?;
            }
        }
        Ok(SourceWatcher { saves, _watcher: watcher })
    }

    /// Waits up to `time` for a save, then for the quiet after it. Returns the time of the save's first event, or
    /// `None` if nothing was saved.
    pub(super) fn wait_for_save(&self, time: Duration) -> Option<Instant> {
        let began = match self.saves.recv_timeout(time) {
            Ok(began) => began,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                // The watcher is never dropped: it lives as long as the process.
                std::thread::park();
                return None;
            }
        };
        while began.elapsed() < SETTLE_TIME_MAX && self.saves.recv_timeout(SETTLE_TIME).is_ok() {}
        Some(began)
    }
}

/// Returns every directory to watch once, and whether its subdirectories are watched too.
fn watched_directories(globs: &[Glob]) -> Vec<(PathBuf, RecursiveMode)> {
    let mut found: Vec<(PathBuf, RecursiveMode)> = Vec::new();
    for glob in globs {
        let root = glob.literal_prefix();
        let rest = glob.as_str()[root.as_os_str().len()..].trim_start_matches('/');
        let deep = rest.contains('/') || rest.contains("**");
        let mode = if deep { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        match found.iter_mut().find(|(directory, _)| directory == root) {
            Some((_, known)) if deep => *known = mode,
            Some(_) => {}
            None => found.push((root.to_owned(), mode)),
        }
    }
    found
}

fn event_handler(
    root: PathBuf,
    globs: Vec<Glob>,
    saved: SyncSender<Instant>,
) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    let ours = move |path: &PathBuf| {
        let below = path.strip_prefix(&root).unwrap_or(Path::new(""));
        globs.iter().any(|glob| glob.matches(below))
    };
    move |event| {
        // Reads are not changes. Lost events may have been saves.
        let concerns = match event {
            Ok(event) => !event.kind.is_access() && (event.need_rescan() || event.paths.iter().any(&ours)),
            Err(_) => true,
        };
        if concerns {
            // A full channel already holds a save.
            let _ = saved.try_send(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_watch_patterns_are_watched() {
        let globs: Vec<Glob> =
            ["src/**/*.rs", "Cargo.toml", "src/*.wgsl"].iter().map(|it| Glob::parse(it).unwrap()).collect();
        let found = watched_directories(&globs);
        let src = (PathBuf::from("src"), RecursiveMode::Recursive);
        assert_eq!(found, [src, (PathBuf::new(), RecursiveMode::NonRecursive)]);
    }

    #[test]
    fn only_changes_to_source_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (saved, saves) = sync_channel(1);
        let globs = vec![Glob::parse("src/**/*.rs").unwrap()];
        let mut forward = event_handler(dir.path().to_owned(), globs, saved);
        let event = |name: &str, kind: notify::EventKind| Ok(notify::Event::new(kind).add_path(dir.path().join(name)));
        let change = notify::EventKind::Modify(notify::event::ModifyKind::Any);
        forward(event("target/x.rs", change));
        forward(event("src/x.rs.swp", change));
        forward(event("src/x.rs", notify::EventKind::Access(notify::event::AccessKind::Any)));
        assert!(saves.try_recv().is_err());
        forward(event("src/deep/x.rs", change));
        assert!(saves.try_recv().is_ok());
    }
}
