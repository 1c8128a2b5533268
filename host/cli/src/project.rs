//! The project of the current directory: the nearest saggar.toml in it or above, and the user's configuration.

use std::path::{Path, PathBuf};

use saggar_project::{Diagnostics, PROJECT_FILE, ProjectManifest, TaskSection, UserConfig};

use crate::exit::{self, CliError};

/// Maximum bytes of a project file.
const PROJECT_BYTES_MAX: u64 = 1 << 20;

/// A valid project file.
#[derive(Debug)]
pub(crate) struct ProjectContext {
    /// The file's directory, to which its paths are relative.
    pub(crate) root: PathBuf,
    pub(crate) manifest: ProjectManifest,
}

impl ProjectContext {
    /// Finds the project of the current directory. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Returns every error of the file, with its position.
    pub(crate) fn find() -> Result<Option<ProjectContext>, CliError> {
        find_file().map(|path| ProjectContext::read(&path)).transpose()
    }

    /// Finds the project of the current directory, which is required if a task is given.
    pub(crate) fn for_task(task: Option<&str>) -> Result<Option<ProjectContext>, CliError> {
        if task.is_some() { ProjectContext::require().map(Some) } else { ProjectContext::find() }
    }

    /// Finds the project of the current directory, which is required.
    pub(crate) fn require() -> Result<ProjectContext, CliError> {
        ProjectContext::find()?.ok_or_else(|| {
            CliError::new(exit::NOT_FOUND, "no_project", format!("no {PROJECT_FILE} here or above"))
                .with_hint("`saggar init NAME` creates a project; or change to a project's directory")
        })
    }

    /// Reads a project file.
    ///
    /// # Errors
    /// Returns the errors of [`ProjectContext::find`].
    pub(crate) fn read(path: &Path) -> Result<ProjectContext, CliError> {
        let text = read_manifest_text(path)?;
        let manifest = ProjectManifest::parse(&text).map_err(|found| invalid_manifest_error(path, &found))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(ProjectContext { root: parent.unwrap_or(Path::new(".")).to_owned(), manifest })
    }

    /// Returns a task and its name.
    ///
    /// # Errors
    /// Fails if there is no task of that name.
    pub(crate) fn task<'a>(&'a self, name: &'a str) -> Result<(&'a str, &'a TaskSection), CliError> {
        self.manifest.tasks.get(name).map(|task| (name, task)).ok_or_else(|| {
            let known: Vec<&str> = self.manifest.tasks.keys().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => format!("add a table [task.{name}] to {PROJECT_FILE}"),
                false => format!("its tasks are: {}", known.join(", ")),
            };
            let message = format!("{PROJECT_FILE} has no task {name:?}");
            CliError::new(exit::NOT_FOUND, "no_task", message).with_hint(hint)
        })
    }

    /// Returns the plugin that a task runs.
    ///
    /// # Errors
    /// Fails if the task is a notebook.
    pub(crate) fn plugin_of_task<'a>((name, task): (&str, &'a TaskSection)) -> Result<&'a str, CliError> {
        task.plugin.as_deref().ok_or_else(|| {
            CliError::invalid(format!("the task {name} of {PROJECT_FILE} is a notebook, which runs no plugin"))
                .with_hint(format!("`saggar run --task {name}` starts it; name a task with a plugin here"))
        })
    }

    /// Resolves a path of the file relative to the current directory.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// Reads the text of a project file.
pub(crate) fn read_manifest_text(path: &Path) -> Result<String, CliError> {
    let bytes = saggar_store::regular_file::read(path, PROJECT_BYTES_MAX).map_err(|error| {
        CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display()))
            .with_hint(format!("name a {PROJECT_FILE}; `saggar init NAME` creates one"))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default());
        let place = format!("{}:{line}:{}", path.display(), column.chars().count() + 1);
        CliError::invalid(format!("{place}: expected text in UTF-8")).with_hint("save the file as UTF-8")
    })
}

/// Finds the nearest project file, in the current directory or above, and returns its shortest path from here.
pub(crate) fn find_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let mut up = PathBuf::new();
    for directory in here.ancestors() {
        if directory.join(PROJECT_FILE).is_file() {
            return Some(up.join(PROJECT_FILE));
        }
        up.push("..");
    }
    None
}

/// Returns all errors of a file as one failure, one line each.
pub(crate) fn invalid_manifest_error(path: &Path, found: &Diagnostics) -> CliError {
    let path = path.display().to_string();
    CliError::invalid(format!("{path} is not valid\n{}", found.render(&path)))
}

/// Resolves a job name. In a project's directory `3` is the project's job 3; `digits/3` is `digits-3` everywhere.
pub(crate) fn resolve_job_name(text: &str) -> String {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut segments = text.rsplit('/');
    let last = segments.next().unwrap_or(text);
    if !number(last) {
        return text.to_owned();
    }
    let project = match segments.next() {
        Some(project) => Some(project.to_owned()),
        None => non_empty_env_var("SAGGAR_PROJECT").or_else(|| {
            let text = std::fs::read_to_string(find_file()?).ok()?;
            saggar_project::project_name(&text)
        }),
    };
    project.map_or_else(|| text.to_owned(), |project| format!("{project}-{last}"))
}

/// Returns an environment variable unless it is empty.
pub(crate) fn non_empty_env_var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the path of the user's configuration file.
pub(crate) fn user_config_file() -> Option<PathBuf> {
    let config = non_empty_env_var("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| non_empty_env_var("HOME").map(|home| Path::new(&home).join(".config")));
    config.map(|config| config.join("saggar/config.toml"))
}

/// Reads the user's configuration. It is empty if there is no file.
///
/// # Errors
/// Returns every error of the file, with its position.
pub(crate) fn user_config() -> Result<UserConfig, CliError> {
    let Some(path) = user_config_file().filter(|path| path.is_file()) else { return Ok(UserConfig::default()) };
    UserConfig::parse(&read_manifest_text(&path)?).map_err(|found| invalid_manifest_error(&path, &found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_are_resolved_from_names_and_numbers() {
        assert_eq!(resolve_job_name("digits-3"), "digits-3");
        assert_eq!(resolve_job_name("digits/3"), "digits-3");
        assert_eq!(resolve_job_name("me/projects/digits/3"), "digits-3");
        assert_eq!(resolve_job_name("a/b"), "a/b");
        assert_eq!(resolve_job_name(""), "");
    }
}
