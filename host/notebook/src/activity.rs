//! The activity of a notebook: what JupyterLab says about its kernels and terminals, and the changes of its documents.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::Deserialize;

/// The maximum number of documents whose changes count as activity.
const DOCUMENTS_MAX: usize = 1000;

/// A notebook's activity at one time. If two differ, something happened in between: a cell ran, a terminal was used, or
/// a document in the notebook's folder was saved. An open page that nobody uses is no activity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotebookActivity {
    /// Whether a cell is running.
    pub is_busy: bool,
    /// Marks that change with each activity.
    pub marks: Vec<String>,
}

#[derive(Deserialize)]
struct KernelState {
    id: String,
    last_activity: String,
    execution_state: String,
}

#[derive(Deserialize)]
struct TerminalState {
    name: String,
    last_activity: String,
}

impl NotebookActivity {
    /// Reads the activity from the responses to `GET api/kernels` and `GET api/terminals`, and from the documents in
    /// `folder`.
    ///
    /// # Errors
    /// The error of a response that has another form.
    pub(crate) fn read(kernels: &[u8], terminals: &[u8], folder: &Path) -> Result<NotebookActivity, serde_json::Error> {
        let kernels: Vec<KernelState> = serde_json::from_slice(kernels)?;
        let terminals: Vec<TerminalState> = serde_json::from_slice(terminals)?;
        let is_busy = kernels.iter().any(|kernel| kernel.execution_state == "busy");
        let kernels = kernels.iter().map(|kernel| format!("{} {}", kernel.id, kernel.last_activity));
        let terminals = terminals.iter().map(|terminal| format!("{} {}", terminal.name, terminal.last_activity));
        let mut marks: Vec<String> = kernels.chain(terminals).chain(document_marks(folder)).collect();
        marks.sort();
        Ok(NotebookActivity { is_busy, marks })
    }
}

/// Returns a mark for each file in a folder.
fn document_marks(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(DOCUMENTS_MAX);
    let marks = entries.filter_map(|entry| {
        let saved = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} {}", entry.file_name().to_string_lossy(), saved.as_nanos()))
    });
    marks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(state: &str, at: &str) -> String {
        format!(
            r#"[{{"id": "k", "name": "python3", "last_activity": "{at}", "execution_state": "{state}", "connections": 1}}]"#
        )
    }

    #[test]
    fn kernels_terminals_and_documents_are_activity() {
        let dir = tempfile::tempdir().unwrap();
        let read = |kernels: &str, terminals: &str| {
            NotebookActivity::read(kernels.as_bytes(), terminals.as_bytes(), dir.path()).unwrap()
        };
        let first = read(&kernels("idle", "1"), "[]");
        assert_eq!(first, read(&kernels("idle", "1"), "[]"));
        assert!(!first.is_busy && read(&kernels("busy", "1"), "[]").is_busy);
        assert_ne!(first, read(&kernels("idle", "2"), "[]"));
        assert_ne!(first, read(&kernels("idle", "1"), r#"[{"name": "1", "last_activity": "1"}]"#));
        fs::write(dir.path().join("start.ipynb"), "{}").unwrap();
        assert_ne!(first, read(&kernels("idle", "1"), "[]"));
        assert!(NotebookActivity::read(b"{}", b"[]", dir.path()).is_err());
    }
}
