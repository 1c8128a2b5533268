//! The packages that `make dist` writes: what is in them, and how one behaves in a bare Debian.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; a skip is printed")]

use std::path::Path;
use std::process::{Command, Output};

use saggar_tests::{binary, root};

/// Runs a command in the project's root and returns its output.
fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&Path]) -> Output {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}

fn is_installed(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_package_serves_and_trains_in_a_bare_debian_and_leaves_only_the_state_directory() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can install a package");
        return;
    }
    let is_missing = !is_installed("cargo", &["deb", "--version"]) || !is_installed("mmdebstrap", &["--version"]);
    if is_missing {
        println!("SKIP: cargo-deb or mmdebstrap is not installed; `.ci/setup dist` installs both");
        return;
    }
    let packaged = run(root().join("host/dist/package"), &[&binary()]);
    assert!(packaged.status.success());
    let names = String::from_utf8(packaged.stdout).unwrap();
    let tarball = names.split_whitespace().find(|word| word.ends_with(".tar.gz")).unwrap().to_owned();
    let listed = Command::new("tar").arg("-tzf").arg(root().join("target/dist").join(&tarball)).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for file in [
        "/bin/saggar",
        "/share/man/man1/saggar-serve.1",
        "/lib/systemd/system/saggar.service",
        "/share/doc/saggar/notebooks.conf",
        "/LICENSE-MIT",
        "/LICENSE-DejaVu",
    ] {
        assert!(listed.lines().any(|line| line.ends_with(file)), "{tarball} has no {file}: {listed}");
    }
    let wheel = names.split_whitespace().find(|word| word.ends_with(".whl")).unwrap();
    let listed = run(
        "python3",
        &[Path::new("-m"), Path::new("zipfile"), Path::new("-l"), &root().join("target/dist").join(wheel)],
    );
    assert!(String::from_utf8_lossy(&listed.stdout).contains("saggar/py.typed"));
    let checked = run(root().join("host/dist/check"), &[Path::new("target/dist/saggar.deb")]);
    assert!(checked.status.success());
}

#[test]
fn the_units_are_valid_for_systemd() {
    if !is_installed("systemd-analyze", &["--version"]) {
        println!("SKIP: systemd-analyze is not here");
        return;
    }
    // The program is not installed here, so the unit names the one that was built.
    let directory = tempfile::tempdir().unwrap();
    for name in ["saggar.service", "saggar.socket"] {
        let text = std::fs::read_to_string(root().join("host/dist").join(name)).unwrap();
        let text = text.replace("/usr/bin/saggar", &binary().display().to_string());
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let unit = directory.path().join("saggar.service");
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!messages.contains("saggar.service:") && !messages.contains("saggar.socket:"), "{messages}");
}

/// Namespaces are allowed by the drop-in alone, and only those of the sandbox.
#[test]
fn the_drop_in_for_notebooks_allows_the_namespaces_of_the_sandbox() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (unit, drop_in) = (read("host/dist/saggar.service"), read("host/dist/notebooks.conf"));
    assert!(unit.lines().any(|line| line == "RestrictNamespaces=yes"));
    let allowed = drop_in.lines().find_map(|line| line.strip_prefix("RestrictNamespaces=")).unwrap();
    let allowed: std::collections::BTreeSet<&str> = allowed.split(' ').collect();
    // The names of the sandbox's options; namespaces of users and mounts are always made.
    let sandbox = read("host/notebook/src/sandbox.rs");
    let options = sandbox.split("\"--unshare-").skip(1).map(|rest| rest.split('"').next().unwrap());
    let used = options.map(|option| option.trim_end_matches("-try")).chain(["user", "mnt"]).collect();
    assert_eq!(allowed, used);
    if !is_installed("systemd-analyze", &["--version"]) {
        println!("SKIP: systemd-analyze is not here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("saggar.service.d")).unwrap();
    std::fs::write(path("saggar.socket"), read("host/dist/saggar.socket")).unwrap();
    std::fs::write(path("saggar.service"), unit.replace("/usr/bin/saggar", &binary().display().to_string())).unwrap();
    std::fs::write(path("saggar.service.d/notebooks.conf"), drop_in).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path("saggar.service")).output();
    let messages = String::from_utf8(output.unwrap().stderr).unwrap();
    // systemd before 254 does not know this key, and ignores it.
    let of_ours = messages.lines().filter(|line| line.contains("saggar.service") || line.contains("notebooks.conf"));
    let of_ours: Vec<&str> = of_ours.filter(|line| !line.contains("'DelegateSubgroup'")).collect();
    assert_eq!(of_ours, [""; 0], "{messages}");
}

/// `systemd-socket-activate` passes sockets as systemd does.
#[test]
fn a_server_accepts_connections_of_sockets_that_systemd_passes() {
    if !is_installed("systemd-socket-activate", &["--version"]) {
        println!("SKIP: systemd-socket-activate is not here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut activated = Command::new("systemd-socket-activate")
        .arg(format!("--listen=127.0.0.1:{port}"))
        .arg(binary())
        .args(["serve", "--addr", "systemd", "--device", "cpu", "--home"])
        .arg(directory.path().join("home"))
        .spawn()
        .unwrap();
    // The first connection starts the server, and waits in the socket until the server accepts it.
    let url = format!("http://127.0.0.1:{port}/livez");
    let answer = (0..50).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ureq::get(&url).call().ok()
    });
    let status = answer.map(|answer| answer.status().as_u16());
    rustix::process::kill_process(rustix::process::Pid::from_child(&activated), rustix::process::Signal::TERM).unwrap();
    let ended = activated.wait().unwrap();
    assert_eq!(status, Some(200));
    assert_eq!(ended.code(), Some(0), "the server ends in order");
}

#[test]
fn a_server_without_passed_sockets_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["serve", "--addr", "systemd", "--device", "cpu", "--home"])
        .arg(directory.path().join("home"))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{message}");
    assert!(message.contains("systemd passed no socket") && message.contains("saggar.socket"), "{message}");
}
