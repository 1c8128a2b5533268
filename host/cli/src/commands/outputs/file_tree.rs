//! The outputs of a job as a tree: names with `/` act as folders.

use saggar_rest::outputs::OutputFileDocument;

/// A line of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeLine {
    /// The name, indented by its depth; that of a folder ends with `/`.
    pub(super) name: String,
    /// The size of the file, or of all files in the folder.
    pub(super) bytes: u64,
    /// The number of files in the folder; `None` for a file.
    pub(super) files: Option<usize>,
}

/// Returns the files in a folder, or the file itself. A leading `/` and a `/` at the end change nothing; without a
/// path, all files.
pub(super) fn files_below(files: Vec<OutputFileDocument>, path: &str) -> Vec<OutputFileDocument> {
    let path = path.trim_matches('/');
    let is_below = |file: &OutputFileDocument| {
        path.is_empty() || file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    files.into_iter().filter(is_below).collect()
}

/// Returns the lines of the tree, sorted by path: each folder before what is in it.
pub(super) fn tree_lines(files: &[OutputFileDocument]) -> Vec<TreeLine> {
    let mut sorted: Vec<(Vec<&str>, u64)> =
        files.iter().map(|file| (file.path.split('/').collect(), file.bytes)).collect();
    sorted.sort();
    let mut lines = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for (parts, bytes) in &sorted {
        let (folders, name) = parts.split_at(parts.len() - 1);
        let common = open.iter().zip(folders).take_while(|(one, other)| one == other).count();
        for depth in common..folders.len() {
            let inside =
                |other: &&(Vec<&str>, u64)| other.0.len() > depth + 1 && other.0.starts_with(&folders[..=depth]);
            lines.push(TreeLine {
                name: format!("{}{}/", "  ".repeat(depth), folders[depth]),
                bytes: sorted.iter().filter(inside).map(|(_, bytes)| bytes).sum(),
                files: Some(sorted.iter().filter(inside).count()),
            });
        }
        open = folders.to_vec();
        lines.push(TreeLine { name: format!("{}{}", "  ".repeat(folders.len()), name[0]), bytes: *bytes, files: None });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[(&str, u64)]) -> Vec<OutputFileDocument> {
        paths.iter().map(|&(path, bytes)| OutputFileDocument { path: path.to_owned(), bytes }).collect()
    }

    #[test]
    fn names_with_slashes_act_as_folders() {
        let listed = files(&[("b.txt", 1), ("a/x/1.png", 2), ("a/2.png", 3), ("a/x/0.png", 4), ("ab/3.png", 5)]);
        let line = |name: &str, bytes, files| TreeLine { name: name.to_owned(), bytes, files };
        let expected = [
            line("a/", 9, Some(3)),
            line("  2.png", 3, None),
            line("  x/", 6, Some(2)),
            line("    0.png", 4, None),
            line("    1.png", 2, None),
            line("ab/", 5, Some(1)),
            line("  3.png", 5, None),
            line("b.txt", 1, None),
        ];
        assert_eq!(tree_lines(&listed), expected);
        let paths =
            |below: &str| files_below(listed.clone(), below).into_iter().map(|file| file.path).collect::<Vec<String>>();
        assert_eq!(paths("/a"), ["a/x/1.png", "a/2.png", "a/x/0.png"]);
        assert_eq!(paths("a/x/"), ["a/x/1.png", "a/x/0.png"]);
        assert_eq!(paths("b.txt"), ["b.txt"]);
        assert_eq!(paths("a/none"), [""; 0]);
        assert_eq!(paths("/").len(), 5);
    }
}
