//! The binary's requirements on a machine: a C library, a user, a directory and a port.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say SKIP")]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use saggar_tests::{HttpPayload, ServerProcess, binary, child_processes, command_as_user, lenet, root};
use serde_json::{Value, json};

/// The libraries of a C library and of the compiler's runtime.
const C_LIBRARY: [&str; 8] = [
    "linux-vdso.so.1",
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
];

/// Returns the names and paths of the shared objects that the binary is linked with.
fn linked_libraries() -> Vec<(String, Option<PathBuf>)> {
    let output = Command::new("ldd").arg(binary()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let object = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let place = line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
        (name.rsplit('/').next().unwrap().to_owned(), place)
    };
    text.lines().map(object).collect()
}

fn copy_into(place: &Path, file: &Path) {
    let to = place.join(file.strip_prefix("/").unwrap());
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(file, to).unwrap();
}

fn digits_are_learnt(server: &ServerProcess, ask: impl Fn(&[&str]) -> Output, plugin: &str, digits: &str) {
    let ok = |arguments: &[&str]| {
        let output = ask(arguments);
        assert!(output.status.success(), "saggar {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    ok(&["data", "push", digits, "--name", "digits"]);
    ok(&["run", plugin, "--data", "digits", "--device", "cpu", "--wait", "--", "epochs=1"]);
    server.wait_for_version("digits", 1);
    let answer: Value =
        serde_json::from_str(&ok(&["predict", "digits", "-i", &format!("image=@{digits}/held-out/7.png"), "--json"]))
            .unwrap();
    assert!(answer["label"].is_u64(), "{answer}");
}

#[test]
fn the_binary_links_only_the_c_library() {
    let names: BTreeSet<String> = linked_libraries().into_iter().map(|(name, _)| name).collect();
    let others: Vec<&String> = names.iter().filter(|name| !C_LIBRARY.contains(&name.as_str())).collect();
    assert!(others.is_empty(), "it needs {others:?} as well");
    assert!(names.contains("libc.so.6"), "{names:?}");
}

/// A file system with only the binary and its C library. Drivers are optional and loaded at run time if they exist.
#[test]
fn the_binary_runs_with_only_the_c_library_installed() {
    let place = tempfile::tempdir().unwrap();
    for (_, object) in linked_libraries() {
        object.iter().for_each(|object| copy_into(place.path(), object));
    }
    std::fs::copy(binary(), place.path().join("saggar")).unwrap();
    for folder in ["proc", "dev", "tmp", "state"] {
        std::fs::create_dir(place.path().join(folder)).unwrap();
    }
    // The kernel's file systems, which every machine has.
    let script = "mount --rbind /proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; exec chroot \"$0\" /saggar \"$@\"";
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", script]).arg(place.path());
        command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command
    };
    let tried = inside(&["--version"]).output().unwrap();
    if !tried.status.success() {
        return println!("SKIP: this machine lets nobody mount: {}", String::from_utf8_lossy(&tried.stderr));
    }
    let doctor = inside(&["doctor", "--json", "--device", "cpu", "--home", "/state"]).output().unwrap();
    let findings: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(0), "{findings:#}");
    let cpu = findings.as_array().unwrap().iter().find(|finding| finding["name"] == "cpu").unwrap();
    assert_eq!(cpu["state"], "OK", "{findings:#}");

    let logs = tempfile::tempdir().unwrap();
    let serve = inside(&["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home", "/state"]);
    let server = ServerProcess::from_command(serve, logs.path());
    digits_are_learnt(&server, |arguments| server.saggar(arguments), lenet().to_str().unwrap(), "examples/digits");
}

/// A user other than root, for whom no other process runs here.
const USER: u32 = 54_322;

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Collects the files of `user` below a directory, except those below `place`.
fn files_of(user: u32, directory: &Path, place: &Path, found: &mut Vec<PathBuf>) {
    // Other processes can remove their files meanwhile.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if path == place {
            continue;
        }
        if metadata.is_dir() {
            files_of(user, &path, place, found);
        }
        if metadata.uid() == user {
            found.push(path);
        }
    }
}

#[test]
fn an_unprivileged_user_needs_only_one_directory() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::copy(binary(), at("saggar")).unwrap();
    std::fs::copy(lenet(), at("lenet.wasm")).unwrap();
    copy_folder(&root().join("examples/digits"), &at("digits"));
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(place.path(), Some(USER), Some(USER)).unwrap();
    }
    let command = |arguments: &[&str]| {
        // The user of the tests, unless that is root.
        let mut command = if is_root { command_as_user(USER) } else { Command::new("env") };
        if is_root {
            command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
        }
        command.arg(at("saggar")).args(arguments).current_dir(place.path()).env_clear();
        command.env("HOME", place.path()).env("TMPDIR", place.path());
        command
    };
    let server =
        ServerProcess::from_command(command(&["serve", "--addr", "127.0.0.1:0", "--device", "cpu"]), place.path());
    let ask = |arguments: &[&str]| command(arguments).env("SAGGAR_HOST", server.url()).output().unwrap();
    let long = ask(&["run", "lenet.wasm", "--data", "nothing"]);
    assert_eq!(long.status.code(), Some(3), "there is no dataset yet");
    digits_are_learnt(&server, ask, "lenet.wasm", "digits");

    // Nothing runs as root.
    let ids = |pid: u32| -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        line.split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    let processes = [vec![server.pid()], child_processes(server.pid())].concat();
    assert!(processes.iter().all(|pid| !ids(*pid).contains(&0)), "{processes:?}");
    assert!(at(".saggar/saggar.db").exists() || at(".saggar").is_dir(), "its state is in the directory");
    if is_root {
        let mut found = Vec::new();
        for directory in ["/tmp", "/var/tmp", "/dev/shm", "/run"] {
            files_of(USER, Path::new(directory), place.path(), &mut found);
        }
        assert_eq!(found, Vec::<PathBuf>::new(), "files outside of the directory");
    }
}

#[test]
fn the_default_address_is_port_5000_on_localhost() {
    let home = tempfile::tempdir().unwrap();
    drop(ServerProcess::start_with_digits(home.path(), &[]));
    let default = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(home.path()).env_remove("SAGGAR_ADDR").env_remove("SAGGAR_HOST");
        command
    };
    let mut serve = default(&["serve", "--device", "cpu", "--home"]);
    serve.arg(home.path());
    if TcpListener::bind("127.0.0.1:5000").is_err() {
        // If the port is in use, the error says so.
        let refused = serve.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(5) && said.contains("127.0.0.1:5000"), "{said}");
        return println!("SKIP: port 5000 is in use");
    }
    let server = ServerProcess::from_command(serve, home.path());
    assert_eq!(server.url(), "http://127.0.0.1:5000");
    server.wait_for_version("digits", 1);
    let digit = json!({ "image": vec![[0; 8]; 8] });
    let [first, second] = ["/", "/predict"].map(|path| server.request("POST", path, HttpPayload::Json(&digit)));
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
    assert_eq!(first.json()["label"], second.json()["label"]);
    // Commands without an explicit address use the same default.
    let listed = default(&["models", "ls"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("digits"), "{text}{}", String::from_utf8_lossy(&listed.stderr));
}

#[test]
fn a_server_starts_without_any_configuration() {
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join("first-steps");
    std::fs::create_dir_all(project.join(".git")).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(&project).env_remove("SAGGAR_HOME").env_remove("SAGGAR_HOST");
        command
    };
    let output = command(&["init"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "first-steps\n");
    let check = command(&["check"]).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let again = command(&["init"]).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(5) && said.contains("this directory is not empty"), "{said}");
    let mut nameless = command(&["init"]);
    let unnamed = place.path().join("My Steps");
    std::fs::create_dir(&unnamed).unwrap();
    let refused = nameless.current_dir(&unnamed).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(7) && said.contains("\"My Steps\" is no plugin's name"), "{said}");
    // The test passes an address, because the default port can be in use.
    let server = ServerProcess::from_command(command(&["serve", "--addr", "127.0.0.1:0"]), &project);
    assert_eq!(server.request("GET", "/healthz", HttpPayload::Nothing).status, 200);
    assert!(project.join(".saggar").is_dir(), "its state is there");
}
