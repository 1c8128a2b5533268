//! `saggar doctor`: what this machine has, what is missing, and how to mend it. Devices are looked at by processes of their
//! own: a driver that hangs or dies is a finding, not the end.

mod device;
mod drivers;
mod place;

use saggar_project::{Diagnostics, Manifest, PROJECT_FILE};
use serde_json::{Value, json};

use crate::args::Doctor;
use crate::exit;
use crate::exit::Failure;
use crate::known_homes::KnownHomes;
use crate::output::Output;
use crate::project;

/// One thing that was looked at.
#[derive(Debug)]
pub(crate) struct Finding {
    name: String,
    state: State,
    what: String,
    hint: Option<String>,
    /// What else is known of it, in a line.
    details: Option<String>,
    /// The exit code that it is worth; 0 where work can go on.
    exit: i32,
}

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// It is not there, and need not be.
    Missing,
    /// It was mended now.
    Fixed,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Missing => "none",
            State::Fixed => "FIXED",
            State::Failed => "FAILED",
        }
    }
}

impl Finding {
    fn new(name: impl Into<String>, state: State, what: impl Into<String>) -> Finding {
        let exit = if state == State::Failed { exit::UNEXPECTED } else { 0 };
        Finding { name: name.into(), state, what: what.into(), hint: None, details: None, exit }
    }

    fn details(mut self, details: Option<String>) -> Finding {
        self.details = details;
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }

    fn exit(mut self, exit: i32) -> Finding {
        self.exit = exit;
        self
    }
}

pub(crate) fn doctor(args: &Doctor, output: Output) -> Result<i32, Failure> {
    if let Some(device) = &args.probe {
        return Ok(device::probe(device, output));
    }
    let mut findings = device::devices();
    findings.extend(drivers::drivers());
    findings.push(device::chosen("auto"));
    findings.push(guest_toolchain());
    findings.push(place::state_directory(&args.home, args.fix));
    findings.extend(place::elsewhere(&args.home));
    findings.extend(place::others(&KnownHomes::of_user().others(&args.home)));
    findings.push(place::port());
    findings.push(open_files());
    findings.push(configuration(args.fix));
    findings.extend(project_file());
    if let Some(device) = &args.device {
        findings.push(device::chosen(device).exit_if_failed(exit::NO_DEVICE));
    }
    show(&findings, output);
    // What was asked for comes last, and goes first.
    Ok(findings.iter().rev().map(|finding| finding.exit).find(|code| *code != 0).unwrap_or(0))
}

impl Finding {
    fn exit_if_failed(self, code: i32) -> Finding {
        let failed = self.state == State::Failed;
        if failed { self.exit(code) } else { self }
    }
}

fn show(findings: &[Finding], output: Output) {
    if output.json {
        let list: Vec<Value> = findings
            .iter()
            .map(|f| json!({ "name": f.name, "state": f.state.name(), "what": f.what, "hint": f.hint, "details": f.details }))
            .collect();
        output.json(&Value::Array(list));
        return;
    }
    for finding in findings {
        let state = format!("{:<6}", finding.state.name());
        let state = state.replace(finding.state.name(), &output.state(finding.state.name()));
        output.line(&format!("{state} {:<12} {}", finding.name, finding.what));
        for line in finding.details.iter().chain(&finding.hint) {
            output.line(&format!("       {:<12} {line}", ""));
        }
    }
}

/// How many connections a server here may have at once, which the limit of open files allows.
fn open_files() -> Finding {
    let most = saggar_serve::connections_max();
    let found = Finding::new("files", State::Ok, format!("enough may be open for {most} connections at once"));
    if most == saggar_serve::limits::CONNECTIONS_MAX {
        return found;
    }
    found.hint("`ulimit -n 4096` before `saggar serve`, or LimitNOFILE=4096 of its systemd service, allows more")
}

fn guest_toolchain() -> Finding {
    match saggar_plugin::build::find_toolchain() {
        Ok(toolchain) => Finding::new("plugins", State::Ok, format!("are built by {toolchain}")),
        Err(error) => {
            let what = "cannot be built here (running them needs no compiler)";
            Finding::new("plugins", State::Missing, what).hint(error.to_string())
        }
    }
}

/// The user's own configuration.
fn configuration(fix: bool) -> Finding {
    let name = "config";
    let Some(path) = project::user_config_file() else {
        return Finding::new(name, State::Missing, "no home directory, so none is read");
    };
    let shown = path.display();
    if path.is_file() {
        return match project::user_config() {
            Ok(_) => Finding::new(name, State::Ok, format!("{shown}")),
            Err(failure) => Finding::new(name, State::Failed, failure.message)
                .hint(failure.hint.unwrap_or_else(|| "mend the file, or remove it".to_owned()))
                .exit(exit::INVALID),
        };
    }
    if !fix {
        return Finding::new(name, State::Missing, format!("{shown} is not there, and need not be"));
    }
    let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    match parent.and_then(|()| std::fs::write(&path, CONFIGURATION)) {
        Ok(()) => Finding::new(name, State::Fixed, format!("{shown} is written; it says nothing yet")),
        Err(error) => Finding::new(name, State::Failed, format!("{shown}: {error}")).hint("make the directory yours"),
    }
}

/// A configuration that says nothing, and shows what it could say.
const CONFIGURATION: &str = "# What saggar's commands take where neither flag, environment nor saggar.toml says anything.\n\
     # host = \"http://127.0.0.1:5000\"\n# ca = \"ca.pem\"\n# device = \"cpu\"\n# project = \"mine\"\n";

/// The project's file, where there is one.
fn project_file() -> Option<Finding> {
    let path = project::find_file()?;
    let shown = path.display();
    let read = project::read(&path).map_err(|failure| failure.message);
    let manifest = read.and_then(|text| {
        let first = |found: Diagnostics| found.0.first().map_or_else(String::new, |it| format!("{shown}:{it}"));
        Manifest::parse(&text).map_err(first)
    });
    Some(match manifest {
        Ok(manifest) => Finding::new("project", State::Ok, format!("{shown} is {}", manifest.project.name)),
        Err(first) => {
            let what = format!("{PROJECT_FILE} is not valid: {first}");
            Finding::new("project", State::Failed, what).hint("`saggar check` shows every mistake").exit(exit::INVALID)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_that_is_written_is_valid_with_and_without_its_signs() {
        saggar_project::UserConfig::parse(CONFIGURATION).unwrap();
        let said: Vec<&str> = CONFIGURATION.lines().skip(1).map(|line| line.trim_start_matches("# ")).collect();
        assert_eq!(saggar_project::UserConfig::parse(&said.join("\n")).unwrap().project.as_deref(), Some("mine"));
    }
}
