//! The Python client: its wheel, installed into a new environment, against the real binary with keys and with TLS; the
//! programs of its guide, and the example notebook.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::{ServerProcess, binary, guest, plugin, root};

/// The sources of the client, from the root.
const CLIENT: &str = "host/clients/python";

/// Runs a command in the root of the project and returns its output. It writes nothing beside the sources.
fn output_of(command: &mut Command) -> String {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(root()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{errors}", output.status);
    printed
}

/// A Python environment with the client's wheel. The packages that it depends on are in another environment, which
/// lasts.
struct ClientEnvironment {
    python: PathBuf,
    folder: tempfile::TempDir,
}

impl ClientEnvironment {
    /// Builds the wheel and installs the file, with all of its extras.
    fn create() -> ClientEnvironment {
        let folder = tempfile::tempdir().unwrap();
        let requirements = format!("{CLIENT}/tests/requirements.txt");
        let packages = output_of(Command::new(root().join(".ci/clients")).arg(requirements));
        let packages = Path::new(packages.trim());
        let python = |arguments: &[&str]| output_of(Command::new(packages).args(arguments));
        let (wheels, venv) = (folder.path().join("wheels"), folder.path().join("venv"));
        let (wheels, venv) = (wheels.to_str().unwrap(), venv.to_str().unwrap());
        let offline = ["--no-index", "--disable-pip-version-check", "--quiet"];
        let build = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", wheels, CLIENT];
        python(&[&build[..], &offline].concat());
        let wheel = std::fs::read_dir(wheels).unwrap().next().unwrap().unwrap().path();
        let name = wheel.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("saggar-") && name.ends_with("-py3-none-any.whl"), "{name}");
        python(&["-m", "venv", "--without-pip", venv]);
        let paths = python(&["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
        let own = output_of(
            Command::new(Path::new(venv).join("bin/python"))
                .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
        );
        std::fs::write(Path::new(own.trim()).join("packages.pth"), paths).unwrap();
        let file = format!("{}[pandas,plot,progress]", wheel.display());
        let own_python = format!("{venv}/bin/python");
        python(&[&["-m", "pip", "--python", &own_python, "install", &file][..], &offline].concat());
        ClientEnvironment { python: own_python.into(), folder }
    }

    /// Returns a command that runs Python with these arguments.
    fn python(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.args(arguments).env("HOME", self.folder.path()).env("MPLBACKEND", "Agg");
        command
    }
}

/// A server that requires keys, and an admin key.
struct KeyedServer {
    server: ServerProcess,
    key: String,
}

impl KeyedServer {
    fn start(home: &Path) -> KeyedServer {
        let mut create = Command::new(binary());
        create.args(["key", "create", "boss", "--scope", "admin", "--home"]).arg(home);
        let key = output_of(&mut create).trim().to_owned();
        let importer = plugin("onnx");
        let arguments = ["--require-keys", "--onnx-plugin", importer.to_str().unwrap()];
        KeyedServer { server: ServerProcess::start_with(home, &arguments).with_key(&key), key }
    }

    /// Sets the variables that the client reads.
    fn set_variables<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SAGGAR_HOST", self.server.url()).env("SAGGAR_API_KEY", &self.key)
    }
}

/// Returns the Python programs of the client's guide as one program.
fn guide_program() -> String {
    let page = std::fs::read_to_string(root().join("host/docs/guides/python-client.md")).unwrap();
    let blocks: Vec<&str> = page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 5, "the guide has {} programs", blocks.len());
    blocks.join("\n")
}

#[test]
fn the_python_client_works_with_a_server_that_requires_keys() {
    let environment = ClientEnvironment::create();
    let (home, tls_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keyed = KeyedServer::start(home.path());
    let certificate = |name: &str| root().join("host/serve/src/tests/certificates").join(name);
    let (own, key) = (certificate("first.crt.pem"), certificate("first.key.pem"));
    let tls = ["--tls-cert", own.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let tls = ServerProcess::start_with(tls_home.path(), &tls);
    let mut tests = environment.python(&["-m", "pytest", "--quiet", "-p", "no:cacheprovider", CLIENT]);
    tests.env("TEST_LENET", plugin("lenet")).env("TEST_TELLER", guest("teller"));
    tests.env("TEST_DIGITS", root().join("examples/digits"));
    tests.env("TEST_TLS_HOST", tls.url()).env("TEST_TLS_CA", &own).env("TEST_OTHER_CA", certificate("second.crt.pem"));
    let printed = output_of(keyed.set_variables(&mut tests));
    assert!(printed.contains(" passed") && !printed.contains("skipped"), "{printed}");
}

#[test]
fn the_python_client_is_typed_and_has_the_version_of_the_server() {
    let environment = ClientEnvironment::create();
    let version = output_of(&mut environment.python(&["-c", "import saggar; print(saggar.__version__)"]));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let place = output_of(&mut environment.python(&["-c", "import saggar; print(saggar.__file__)"]));
    assert!(place.starts_with(environment.folder.path().to_str().unwrap()), "{place}");
    let configuration = format!("{CLIENT}/pyproject.toml");
    let cache = root().join("target/clients/mypy");
    // The uses are checked against the wheel, so that the marker `py.typed` must be in it.
    for sources in ["src", "tests/typing_of_methods.py"] {
        let sources = format!("{CLIENT}/{sources}");
        let mut mypy = environment.python(&["-m", "mypy", "--config-file", &configuration, "--cache-dir"]);
        output_of(mypy.arg(&cache).arg(sources));
    }
}

#[test]
fn the_example_notebook_and_the_programs_of_the_python_guide_run() {
    let environment = ClientEnvironment::create();
    let home = tempfile::tempdir().unwrap();
    let keyed = KeyedServer::start(home.path());
    plugin("lenet");
    let mut guide = environment.python(&["-c", &guide_program()]);
    let printed = output_of(keyed.set_variables(&mut guide));
    assert!(printed.contains("SUCCEEDED") && printed.contains("bad_input"), "{printed}");
    let notebook = ["tests/clients/notebook.py", "examples/notebook/saggar.ipynb", "examples/notebook"];
    let printed = output_of(keyed.set_variables(&mut environment.python(&notebook)));
    for part in ["digits-notebook/1 {'train': 1438, 'test': 359}", "hint: ", "{1: 90, 2: 10}", "digits-notebook@2"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(
        keyed.server.get("/api/v1/datasets")["datasets"].as_array().unwrap().len(),
        1,
        "the digits of the guide"
    );
}
