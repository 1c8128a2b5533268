//! What the messages of pip and venv say about a failed installation.

/// The maximum number of lines that an error repeats.
const LINES_MAX: usize = 5;
/// The maximum number of characters of a line. pip prints whole lists of versions.
const LINE_CHARS_MAX: usize = 300;
/// The beginning of a line about one of several attempts to reach the package index.
const RETRYING: &str = "WARNING: Retrying";
/// The beginnings of lines that say nothing about the cause.
const NOISE: [&str; 5] =
    ["[notice]", "DEPRECATION:", "Traceback", "WARNING: There was an error checking", "Looking in"];

/// Why packages could not be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallFailure {
    /// No package index was reached, or it has no such package: pip says the same about both.
    NoIndex,
    /// The package index has no such version for this Python.
    NoVersion,
    /// Anything else.
    Other,
}

/// Returns the last lines of the messages that say something about the failure, as one line.
pub(crate) fn summarize(messages: &str) -> String {
    let is_frame = |line: &str| line.starts_with(' ');
    let is_noise = |line: &str| is_frame(line) || NOISE.iter().any(|noise| line.starts_with(noise));
    let is_retry = |line: &str| line.starts_with(RETRYING);
    let lines: Vec<&str> = messages.lines().filter(|line| !line.trim().is_empty() && !is_noise(line)).collect();
    let last_retry = lines.iter().rposition(|line| is_retry(line));
    let is_repeated = |(at, line): &(usize, &str)| is_retry(line) && Some(*at) != last_retry;
    let lines: Vec<&str> =
        lines.into_iter().enumerate().filter(|line| !is_repeated(line)).map(|(_, line)| line).collect();
    let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
    let last: Vec<String> = last.iter().map(|line| shorten(line.trim())).collect();
    last.join("; ")
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns what the messages of pip say about the cause.
pub(crate) fn classify(messages: &str) -> InstallFailure {
    const UNREACHABLE: [&str; 9] = [
        "(from versions: none)",
        "NewConnectionError",
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "Could not fetch URL",
        "ConnectTimeout",
        "timed out",
        "ProxyError",
        "SSLError",
    ];
    let has = |text: &str| messages.contains(text);
    if UNREACHABLE.into_iter().any(has) {
        InstallFailure::NoIndex
    } else if has("No matching distribution found") || has("Could not find a version") {
        InstallFailure::NoVersion
    } else {
        InstallFailure::Other
    }
}

/// Returns whether the messages say that a file system is full.
pub(crate) fn say_no_space(messages: &str) -> bool {
    ["No space left on device", "Errno 28", "Disk quota exceeded"].into_iter().any(|text| messages.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_about_the_cause_are_repeated() {
        let messages = "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(one)': /simple/a/\n\
                        WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(two)': /simple/a/\n\
                        ERROR: Could not find a version that satisfies the requirement a==1 (from versions: none)\n\
                        ERROR: No matching distribution found for a==1\n\n[notice] A new release of pip is available\n";
        let summary = summarize(messages);
        assert!(summary.starts_with("WARNING: Retrying (Retry(total=0))") && !summary.contains("total=1"), "{summary}");
        assert!(summary.ends_with("; ERROR: No matching distribution found for a==1"), "{summary}");
        assert_eq!(classify(messages), InstallFailure::NoIndex);
        let trace = "ERROR: Could not install packages\nTraceback (most recent call last):\n  File \"x.py\", line 1\n    \
                     f()\nOSError: [Errno 28] No space left on device\n";
        assert_eq!(summarize(trace), "ERROR: Could not install packages; OSError: [Errno 28] No space left on device");
        assert!(say_no_space(trace) && !say_no_space(messages));
        let long = format!("ERROR: {}", "1.0, ".repeat(1000));
        assert_eq!(summarize(&long).chars().count(), LINE_CHARS_MAX + 3);
        assert_eq!(summarize(""), "");
    }

    #[test]
    fn a_version_that_the_index_lacks_differs_from_an_unreachable_index() {
        let found = "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0, 2.0)\n\
                     ERROR: No matching distribution found for a==9";
        assert_eq!(classify(found), InstallFailure::NoVersion);
        assert_eq!(classify("ERROR: Could not build wheels"), InstallFailure::Other);
    }
}
