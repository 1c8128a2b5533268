//! `saggar doctor`: checks this machine and shows how to fix what is missing. Devices are checked in child processes,
//! so that a driver that hangs or crashes becomes a finding.

mod database;
mod deprecations;
mod device;
mod drivers;
mod object_storage;
mod state_dir_check;

use saggar_project::{Diagnostics, PROJECT_FILE, ProjectManifest};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::exit;
use crate::exit::CliError;
use crate::known_state_dirs::KnownStateDirs;
use crate::output::CliOutput;
use crate::project;
use crate::server::ServerAddress;

/// The result of one check.
#[derive(Debug)]
pub(crate) struct DoctorFinding {
    name: String,
    state: FindingState,
    what: String,
    hint: Option<String>,
    /// Further details, in one line.
    details: Option<String>,
    /// The exit code of the finding; 0 if work can continue.
    exit: i32,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FindingState {
    Ok,
    /// It does not exist, and is not required.
    Missing,
    /// It was fixed by this run.
    Fixed,
    /// It works, and will not in a later version.
    Deprecated,
    Failed,
}

impl FindingState {
    fn name(self) -> &'static str {
        match self {
            FindingState::Ok => "OK",
            FindingState::Missing => "none",
            FindingState::Fixed => "FIXED",
            FindingState::Deprecated => "OLD",
            FindingState::Failed => "FAILED",
        }
    }
}

impl DoctorFinding {
    fn new(name: impl Into<String>, state: FindingState, what: impl Into<String>) -> DoctorFinding {
        let exit = if state == FindingState::Failed { exit::UNEXPECTED } else { 0 };
        DoctorFinding { name: name.into(), state, what: what.into(), hint: None, details: None, exit }
    }

    fn with_details(mut self, details: Option<String>) -> DoctorFinding {
        self.details = details;
        self
    }

    fn with_hint(mut self, hint: impl Into<String>) -> DoctorFinding {
        self.hint = Some(hint.into());
        self
    }

    fn with_exit_code(mut self, exit: i32) -> DoctorFinding {
        self.exit = exit;
        self
    }
}

pub(crate) fn doctor(args: &DoctorArgs, server: &ServerAddress, output: CliOutput) -> Result<i32, CliError> {
    if let Some(device) = &args.probe {
        return Ok(device::probe_device(device, output));
    }
    let mut findings = device::check_devices();
    findings.extend(drivers::check_drivers());
    findings.push(device::check_selection("auto"));
    findings.extend(check_plugin_tools());
    findings.push(state_dir_check::check_state_dir(&args.home, args.fix));
    findings.extend(state_dir_check::check_linked_dirs(&args.home));
    findings.extend(state_dir_check::list_other_state_dirs(&KnownStateDirs::for_current_user().others(&args.home)));
    findings.extend(args.database.iter().filter(|url| !url.is_empty()).flat_map(database::check_database));
    findings.extend(args.objects.iter().flat_map(|address| object_storage::check_object_storage(address)));
    findings.push(state_dir_check::check_port());
    findings.push(check_open_files());
    findings.push(check_user_config(args.fix));
    findings.extend(check_project_file());
    findings.extend(deprecations::check_project_file());
    findings.extend(deprecations::check_models(&args.home));
    findings.extend(deprecations::check_server(server));
    if let Some(device) = &args.device {
        findings.push(device::check_selection(device).with_exit_code_if_failed(exit::NO_DEVICE));
    }
    print_findings(&findings, output);
    // The requested device is checked last, and its exit code takes precedence.
    Ok(findings.iter().rev().map(|finding| finding.exit).find(|code| *code != 0).unwrap_or(0))
}

impl DoctorFinding {
    fn with_exit_code_if_failed(self, code: i32) -> DoctorFinding {
        let failed = self.state == FindingState::Failed;
        if failed { self.with_exit_code(code) } else { self }
    }
}

/// A finding as JSON.
#[derive(Serialize)]
struct FindingDocument<'a> {
    name: &'a str,
    state: &'a str,
    what: &'a str,
    hint: Option<&'a str>,
    details: Option<&'a str>,
}

impl FindingDocument<'_> {
    fn new(finding: &DoctorFinding) -> FindingDocument<'_> {
        FindingDocument {
            name: &finding.name,
            state: finding.state.name(),
            what: &finding.what,
            hint: finding.hint.as_deref(),
            details: finding.details.as_deref(),
        }
    }
}

fn print_findings(findings: &[DoctorFinding], output: CliOutput) {
    if output.json {
        output.print_json(&findings.iter().map(FindingDocument::new).collect::<Vec<_>>());
        return;
    }
    for finding in findings {
        let state = format!("{:<6}", finding.state.name());
        let state = state.replace(finding.state.name(), &output.format_state(finding.state.name()));
        output.print_line(&format!("{state} {:<12} {}", finding.name, finding.what));
        for line in finding.details.iter().chain(&finding.hint) {
            output.print_line(&format!("       {:<12} {line}", ""));
        }
    }
}

/// Checks how many connections a server can have at once under the limit of open files.
fn check_open_files() -> DoctorFinding {
    let most = saggar_serve::connections_max();
    let found =
        DoctorFinding::new("files", FindingState::Ok, format!("enough may be open for {most} connections at once"));
    if most == saggar_serve::limits::CONNECTIONS_MAX {
        return found;
    }
    found.with_hint("`ulimit -n 4096` before `saggar serve`, or LimitNOFILE=4096 of its systemd service, allows more")
}

/// Checks for each language whether plugins can be built here.
fn check_plugin_tools() -> impl Iterator<Item = DoctorFinding> {
    crate::plugin_build::find_tools().map(|(language, tools)| match tools {
        Ok(tools) => DoctorFinding::new("plugins", FindingState::Ok, format!("in {language} are built by {tools}")),
        Err(error) => {
            let what = format!("in {language} cannot be built here (running them needs no tools)");
            DoctorFinding::new("plugins", FindingState::Missing, what).with_hint(error.to_string())
        }
    })
}

/// Checks the user's configuration.
fn check_user_config(fix: bool) -> DoctorFinding {
    let name = "config";
    let Some(path) = project::user_config_file() else {
        return DoctorFinding::new(name, FindingState::Missing, "no home directory, so none is read");
    };
    let path_text = path.display();
    if path.is_file() {
        return match project::user_config() {
            Ok(_) => DoctorFinding::new(name, FindingState::Ok, format!("{path_text}")),
            Err(failure) => DoctorFinding::new(name, FindingState::Failed, failure.message)
                .with_hint(failure.hint.unwrap_or_else(|| "fix the file, or remove it".to_owned()))
                .with_exit_code(exit::INVALID),
        };
    }
    if !fix {
        return DoctorFinding::new(name, FindingState::Missing, format!("{path_text} is not there, and need not be"));
    }
    let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    match parent.and_then(|()| std::fs::write(&path, CONFIG_TEMPLATE)) {
        Ok(()) => DoctorFinding::new(name, FindingState::Fixed, format!("{path_text} is written, without settings")),
        Err(error) => DoctorFinding::new(name, FindingState::Failed, format!("{path_text}: {error}"))
            .with_hint("make yourself the owner of the directory"),
    }
}

/// A configuration without settings that shows the possible ones as comments.
const CONFIG_TEMPLATE: &str = "# Defaults of saggar's commands. Flags, the environment and saggar.toml override them.\n\
     # host = \"http://127.0.0.1:5000\"\n# ca = \"ca.pem\"\n# device = \"cpu\"\n# project = \"mine\"\n\
     # [top]\n# interval = \"2s\"\n# window = \"60m\"\n";

/// Checks the project file. Returns `None` if there is no such file.
fn check_project_file() -> Option<DoctorFinding> {
    let path = project::find_file()?;
    let path_text = path.display();
    let read = project::read_manifest_text(&path).map_err(|failure| failure.message);
    let manifest = read.and_then(|text| {
        let first = |found: Diagnostics| found.0.first().map_or_else(String::new, |it| format!("{path_text}:{it}"));
        ProjectManifest::parse(&text).map_err(first)
    });
    Some(match manifest {
        Ok(manifest) => {
            DoctorFinding::new("project", FindingState::Ok, format!("{path_text} is {}", manifest.project.name))
        }
        Err(first) => {
            let what = format!("{PROJECT_FILE} is not valid: {first}");
            DoctorFinding::new("project", FindingState::Failed, what)
                .with_hint("`saggar check` shows every mistake")
                .with_exit_code(exit::INVALID)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_template_is_valid_with_and_without_comments() {
        saggar_project::UserConfig::parse(CONFIG_TEMPLATE).unwrap();
        let said: Vec<&str> = CONFIG_TEMPLATE.lines().skip(1).map(|line| line.trim_start_matches("# ")).collect();
        assert_eq!(saggar_project::UserConfig::parse(&said.join("\n")).unwrap().project.as_deref(), Some("mine"));
    }
}
