//! Checks the state directory and the port of a server.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use saggar_rest::server::{PROGRAM_NAME, VersionDocument};
use saggar_store::state_dir::{PRIVATE_DIRECTORY_MODE, RELOCATABLE_DIRECTORIES};

use super::{DoctorFinding, FindingState};
use crate::exit;
use crate::project::non_empty_env_var;
use crate::units;

/// Free space, in bytes, below which a training may fail to save its state.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Maximum time for a listener on the port to identify itself.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Checks that the state directory exists, is writable and has free space.
pub(super) fn check_state_dir(home: &Path, fix: bool) -> DoctorFinding {
    let (name, path_text) = ("state", home.display());
    if !home.exists() {
        if !fix {
            let what = format!("{path_text} is not there yet");
            return DoctorFinding::new(name, FindingState::Missing, what)
                .with_hint("`saggar serve` or --fix creates it");
        }
        let result = std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY_MODE).create(home);
        return match result {
            Ok(()) => DoctorFinding::new(name, FindingState::Fixed, format!("{path_text} was created")),
            Err(error) => unwritable_finding(home, &error),
        };
    }
    let found = check_writable(name, home, &path_text.to_string());
    if found.state == FindingState::Failed {
        return found;
    }
    check_permissions(name, home, fix).unwrap_or(found)
}

/// Checks the permissions of the state directory: only its owner may access logs, outputs and keys.
fn check_permissions(name: &str, home: &Path, fix: bool) -> Option<DoctorFinding> {
    let mode = std::fs::metadata(home).ok()?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return None;
    }
    let path_text = home.display();
    if fix && std::fs::set_permissions(home, std::fs::Permissions::from_mode(PRIVATE_DIRECTORY_MODE)).is_ok() {
        return Some(DoctorFinding::new(
            name,
            FindingState::Fixed,
            format!("{path_text} is now accessible to its owner only (mode 700)"),
        ));
    }
    let what =
        format!("{path_text} has mode {mode:o}: other users of this machine can read logs, outputs and models in it");
    let hint = format!("chmod 700 {path_text}; `saggar serve` and --fix do it too");
    // Work can continue, so the exit code is 0.
    Some(DoctorFinding::new(name, FindingState::Failed, what).with_hint(hint).with_exit_code(0))
}

/// Lists other state directories that this user's servers were started with. Returns `None` if no other one is known.
pub(super) fn list_other_state_dirs(known: &[std::path::PathBuf]) -> Option<DoctorFinding> {
    let path_text: Vec<String> = known.iter().map(|home| home.display().to_string()).collect();
    let first = path_text.first()?;
    let hint = format!("`saggar serve --home {first}` serves its content");
    Some(DoctorFinding::new("state/others", FindingState::Ok, path_text.join(", ")).with_hint(hint))
}

/// Checks that the parts of the state directory that are links exist, are writable and have free space.
pub(super) fn check_linked_dirs(home: &Path) -> Vec<DoctorFinding> {
    let linked = RELOCATABLE_DIRECTORIES.iter().filter_map(|place| {
        let target = std::fs::read_link(home.join(place)).ok()?;
        Some((format!("state/{place}"), home.join(place), target))
    });
    let look = |(name, place, target): (String, PathBuf, PathBuf)| {
        let path_text = format!("{} (at {})", place.display(), target.display());
        if place.is_dir() {
            return check_writable(&name, &place, &path_text);
        }
        let what = format!("{path_text} is a link whose target is not a directory");
        DoctorFinding::new(name, FindingState::Failed, what).with_hint("create the directory, or mount its disk again")
    };
    linked.map(look).collect()
}

/// Checks that an existing directory is writable and has free space.
fn check_writable(name: &str, directory: &Path, path_text: &str) -> DoctorFinding {
    // Checked by writing a file, not by permissions: file systems can be read-only, and root passes every permission
    // check.
    let trial = directory.join(format!(".doctor-{}", std::process::id()));
    let written = std::fs::write(&trial, b"x");
    let _ = std::fs::remove_file(&trial);
    if let Err(error) = written {
        return unwritable_finding(directory, &error);
    }
    let free = rustix::fs::statvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    match free {
        Ok(free) if free < FREE_BYTES_MIN => {
            let what = format!("{path_text} has only {} of free space", units::format_bytes(free));
            DoctorFinding::new(name, FindingState::Failed, what)
                .with_hint("remove what is no longer needed, or choose another directory with --home")
        }
        Ok(free) => DoctorFinding::new(
            name,
            FindingState::Ok,
            format!("{path_text} is writable, {} free", units::format_bytes(free)),
        ),
        Err(error) => DoctorFinding::new(
            name,
            FindingState::Ok,
            format!("{path_text} is writable; its free space is unknown: {error}"),
        ),
    }
}

fn unwritable_finding(home: &Path, error: &std::io::Error) -> DoctorFinding {
    let what = format!("{} cannot be written: {error}", home.display());
    DoctorFinding::new("state", FindingState::Failed, what)
        .with_hint("make yourself its owner, or choose another with --home or SAGGAR_HOME")
}

/// Checks that the port is free, or finds what listens on it.
pub(super) fn check_port() -> DoctorFinding {
    let address = non_empty_env_var("SAGGAR_ADDR").unwrap_or_else(|| "127.0.0.1:5000".to_owned());
    let Ok(socket) = address.parse::<SocketAddr>() else {
        return DoctorFinding::new(
            "port",
            FindingState::Ok,
            format!("{address} is not a port of this machine; not checked"),
        );
    };
    match TcpListener::bind(socket) {
        Ok(_) => DoctorFinding::new("port", FindingState::Ok, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match saggar_version_at(&address) {
            Some(version) => {
                DoctorFinding::new("port", FindingState::Ok, format!("saggar {version} answers at {address}"))
            }
            None => DoctorFinding::new("port", FindingState::Failed, format!("another program listens on {address}"))
                .with_hint(
                    "choose another: `saggar serve --addr 127.0.0.1:5001`, and SAGGAR_HOST for the other commands",
                )
                .with_exit_code(exit::CONFLICT),
        },
        Err(error) => DoctorFinding::new("port", FindingState::Failed, format!("{address}: {error}"))
            .with_hint("choose another: `saggar serve --addr 127.0.0.1:5001`"),
    }
}

/// Returns the version of the saggar server at an address, or `None` if another program listens there.
fn saggar_version_at(address: &str) -> Option<String> {
    let agent =
        ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIME_MAX)).build());
    let mut answer = agent.get(format!("http://{address}/version")).call().ok()?;
    let answer: VersionDocument = serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()?;
    (answer.name == PROGRAM_NAME).then_some(answer.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_dir_is_created_only_with_fix() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("state");
        assert_eq!(check_state_dir(&home, false).state, FindingState::Missing);
        assert!(!home.exists());
        assert_eq!(check_state_dir(&home, true).state, FindingState::Fixed);
        assert_ne!(check_state_dir(&home, false).state, FindingState::Missing);
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o755)).unwrap();
        let public = check_state_dir(&home, false);
        assert!(public.what.contains("mode 755") && public.exit == 0, "{public:?}");
        assert!(public.hint.as_ref().is_some_and(|hint| hint.starts_with("chmod 700 ")), "{public:?}");
        assert_eq!(check_state_dir(&home, true).state, FindingState::Fixed);
        assert_eq!(check_state_dir(&home, false).state, FindingState::Ok);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0, "the trial is gone");
        std::os::unix::fs::symlink(dir.path().join("disk"), home.join("jobs")).unwrap();
        let found =
            |home: &Path| check_linked_dirs(home).iter().map(|it| (it.name.clone(), it.state)).collect::<Vec<_>>();
        assert_eq!(found(&home), [("state/jobs".to_owned(), FindingState::Failed)]);
        std::fs::create_dir(dir.path().join("disk")).unwrap();
        assert_ne!(check_linked_dirs(&home)[0].what.find("writable"), None, "{:?}", check_linked_dirs(&home));
        std::fs::remove_file(home.join("jobs")).unwrap();
        assert!(found(&home).is_empty());
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(check_state_dir(&file, true).state, FindingState::Failed);
    }
}
