//! Notebooks, with the real binary, JupyterLab and bubblewrap.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::notebooks::{RunningNotebook, processes_with_variable, sandbox_processes};
use saggar_tests::{HttpPayload, MemoryGroup, ServerProcess, SteadyJob, binary, create_key, publish_echo, root};
use serde_json::Value;

const NOTEBOOKS: [&str; 2] = ["--notebooks", "2"];

fn get(server: &ServerProcess, path: &str) -> (u16, String) {
    let response = server.request("GET", path, HttpPayload::Nothing);
    (response.status, response.text)
}

/// Waits until no process of the notebooks of a state directory runs.
fn wait_for_no_processes(server: &ServerProcess, home: &Path, variables: &[String]) {
    server.wait_for("the end of the notebook's processes", |_| {
        let left = variables.iter().flat_map(|variable| processes_with_variable(variable)).count();
        (sandbox_processes(home).is_empty() && left == 0).then_some(())
    });
}

#[test]
fn a_notebook_uses_the_server_and_its_files_become_outputs() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    server.push_digits();
    server.wait_for_version("echo", 1);
    let trained = SteadyJob::with_steps(30).submit(&server);
    assert_eq!(server.wait_for_job(&trained)["state"], "SUCCEEDED");
    let notebook = RunningNotebook::start(&server, &["--data", "digits:/data", "--project", "lab"]);
    assert_eq!(notebook.job, "lab-1");
    let path = notebook.url.strip_prefix(server.url()).expect("an address of the server's port");
    assert!(path.starts_with("/notebooks/lab-1/lab?token="), "{path}");
    let listed = server.saggar_ok(&["ps"]);
    assert!(listed.contains("lab-1") && listed.contains("RUNNING"), "{listed}");
    // The client is imported and configured, models answer, the metrics of a job are drawn, and data are files.
    let code = "import saggar, numpy, os, matplotlib\n\
                matplotlib.use('Agg')\n\
                client = saggar.Client()\n\
                print([model.name for model in client.models.list()])\n\
                answer = client.predict('echo', [1, 2, 3, 4])\n\
                print(answer['y'].tolist())\n\
                print(numpy.load('/data/image.npy', mmap_mode='r').shape, sorted(os.listdir('/data'))[0])\n\
                axes = client.jobs.get('steady-1').curves('loss').plot(); axes.figure.savefig('/output/loss.png')\n\
                print(len(axes.lines[0].get_xdata()))\n\
                os.makedirs('/output/notes'); open('/output/notes/result.txt', 'w').write('forty-two')\n\
                state = 41";
    let first = notebook.execute(None, code);
    assert_eq!(first.title, "JupyterLab");
    let lines: Vec<&str> = first.printed.lines().collect();
    assert_eq!(lines[0], "['echo']", "{first:?}");
    assert_eq!(lines[1], "[1.0, 2.0, 3.0, 4.0]", "{first:?}");
    assert_eq!(lines[2], "(1797, 8, 8) dataset.json", "{first:?}");
    assert_eq!(lines[3], "30", "{first:?}");
    // The connection has ended; the kernel has not.
    let again = notebook.execute(Some(&first.kernel), "print(state + 1)");
    assert_eq!((again.printed.as_str(), &again.kernel), ("42\n", &first.kernel));
    let outputs = server.wait_for("the outputs", |server| {
        let outputs = server.get("/api/v1/jobs/lab-1/output").to_string();
        (outputs.contains("notes/result.txt") && outputs.contains("loss.png")).then_some(outputs)
    });
    assert!(outputs.contains("start.ipynb"), "{outputs}");
    assert_eq!(server.saggar_ok(&["output", "tail", "lab-1", "notes/result.txt"]), "forty-two");
    // What was written last is an output as well.
    notebook.execute(Some(&first.kernel), "open('/output/last.txt', 'w').write('bye')");
    server.saggar_ok(&["stop", "lab-1"]);
    let ended = server.wait_for_job("lab-1");
    assert_eq!(ended["state"], "CANCELLED", "{ended}");
    assert_eq!(server.saggar_ok(&["output", "tail", "lab-1", "last.txt"]), "bye");
    assert_eq!(get(&server, path).0, 404);
    wait_for_no_processes(&server, home.path(), &["SAGGAR_JOB=lab-1".to_owned()]);
}

#[test]
fn a_notebook_is_reached_only_with_its_token() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let (one, two) = (RunningNotebook::start(&server, &[]), RunningNotebook::start(&server, &[]));
    assert_eq!((one.job.as_str(), two.job.as_str()), ("notebook-1", "notebook-2"));
    let token = |notebook: &RunningNotebook| notebook.url.split_once("token=").unwrap().1.to_owned();
    for path in [one.page(), format!("{}?token=wrong", one.page()), format!("{}?token={}", one.page(), token(&two))] {
        let (status, text) = get(&server, &path);
        assert_eq!(status, 403, "{path}: {text}");
        assert!(text.contains("notebook_token") && text.contains("saggar notebook notebook-1"), "{text}");
    }
    assert_eq!(get(&server, "/notebooks/notebook-1/api/kernels").0, 403);
    assert_eq!(get(&server, &format!("/notebooks/notebook-1/api/status?token={}", token(&one))).0, 200);
    let (status, text) = get(&server, "/notebooks/notebook-9/lab?token=x");
    assert_eq!((status, text.contains("saggar run --mode notebook")), (404, true), "{text}");
    // The address is printed again.
    assert_eq!(server.saggar_ok(&["notebook", "notebook-2"]).trim(), two.url);
    // Two run at once, and each has its own state.
    let set = one.execute(None, "name = 'one'; import os; print(os.environ['SAGGAR_JOB'])");
    assert_eq!(set.printed, "notebook-1\n");
    assert_eq!(two.execute(None, "print('name' in globals())").printed, "False\n");
    // The sandbox has neither the state directory, nor other directories of its user, nor the server's variables.
    let code = format!(
        "import os\nprint(os.path.exists({:?}), os.path.exists({:?}), 'SAGGAR_API_KEY' in os.environ)\n\
         print(len([name for name in os.listdir('/proc') if name.isdigit()]) < 20)\n\
         try:\n    open('/usr/x', 'w')\nexcept OSError as error:\n    print(type(error).__name__)",
        home.path().to_str().unwrap(),
        root().join("Cargo.toml").to_str().unwrap()
    );
    assert_eq!(one.execute(Some(&set.kernel), &code).printed, "False False False\nTrue\nOSError\n");
    for log in ["notebook-1", "notebook-2"] {
        let text = server.saggar_ok(&["logs", log]);
        assert!(!text.contains(&token(&one)) && !text.contains(&token(&two)), "{text}");
    }
}

#[test]
fn an_idle_notebook_is_warned_about_and_stops() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let notebook = RunningNotebook::start(&server, &["--idle-timeout", "5s"]);
    let ended = server.wait_for_job(&notebook.job);
    assert_eq!((ended["state"].as_str(), ended["reason"].as_str()), (Some("CANCELLED"), Some("IDLE")), "{ended}");
    let log = server.saggar_ok(&["logs", &notebook.job]);
    let warned = log.find("it stops in").unwrap_or_else(|| panic!("{log}"));
    let stopped = log.find("; it stops\n").unwrap_or_else(|| panic!("{log}"));
    assert!(warned < stopped, "{log}");
    wait_for_no_processes(&server, home.path(), &[format!("SAGGAR_JOB={}", notebook.job)]);
}

#[test]
fn a_notebook_ends_with_a_killed_server_and_starts_again_with_its_files() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let notebook = RunningNotebook::start(&server, &[]);
    // A process that outlives its kernel and ignores hangups.
    let code = "import subprocess\nopen('/output/kept.txt', 'w').write('kept')\n\
                subprocess.Popen(['nohup', 'setsid', 'sleep', '600'])";
    notebook.execute(None, code);
    let variable = format!("SAGGAR_JOB={}", notebook.job);
    assert!(processes_with_variable(&variable).len() >= 3);
    server.kill_and_wait();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let job = &notebook.job;
    let again = server.wait_for("the second attempt", |server| {
        let output = server.saggar(&["--json", "notebook", job]);
        let found: Value = serde_json::from_slice(&output.stdout).ok()?;
        (server.job(job)["attempt"] == 2).then(|| found["url"].as_str().map(str::to_owned)).flatten()
    });
    let token = |url: &str| url.split_once("/lab?").unwrap().1.to_owned();
    assert_eq!(token(&again), token(&notebook.url), "the address without the port stays");
    let attempts = server.get(&format!("/api/v1/jobs/{job}/attempts"));
    assert_eq!(attempts["attempts"][0]["reason"], "HOST_RESTART", "{attempts}");
    let notebook = RunningNotebook { job: job.clone(), url: again };
    assert_eq!(notebook.execute(None, "print(open('/output/kept.txt').read())").printed, "kept\n");
    // Only the processes of the second attempt run.
    let sleeping = notebook.execute(None, "import subprocess\nprint(subprocess.run(['pgrep', 'sleep']).returncode)");
    assert_eq!(sleeping.printed, "1\n");
    let outside = sandbox_processes(home.path());
    assert_eq!(outside.len(), 2, "bubblewrap and its first process: {outside:?}");
    server.saggar_ok(&["stop", job]);
    server.wait_for_job(job);
    wait_for_no_processes(&server, home.path(), &[variable]);
}

#[test]
fn notebooks_need_the_operators_and_the_keys_permission() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let refused = server.saggar(&["run", "--mode", "notebook"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("saggar serve --notebooks 2"), "{text}");
    drop(server);
    let writes = ["--scope", "jobs:read", "--scope", "jobs:write"];
    let reads = create_key(home.path(), &["reads", "--scope", "jobs:read"]);
    let other = create_key(home.path(), &[&["other"][..], &writes, &["--project", "faces"]].concat());
    let owner = create_key(home.path(), &[&["owner"][..], &writes, &["--project", "lab"]].concat());
    let server = ServerProcess::start_with(home.path(), &[&NOTEBOOKS[..], &["--require-keys"]].concat());
    let run = |key: &str, arguments: &[&str]| {
        let output = server.command(arguments).env("SAGGAR_API_KEY", key).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let start = ["run", "--mode", "notebook", "--project", "lab"];
    for (key, words) in [(&reads, "jobs:write"), (&other, "lab")] {
        let (is_done, _, errors) = run(key, &start);
        assert!(!is_done && errors.contains(words), "{errors}");
    }
    let (is_done, url, errors) = run(&owner, &start);
    assert!(is_done, "{errors}");
    // Those who only read jobs do not get the token.
    let ask = |key: &str| server.request_as(Some(key), "GET", "/api/v1/jobs/lab-1/notebook", HttpPayload::Nothing);
    assert_eq!((ask(&reads).status, ask(&other).status, ask(&owner).status), (403, 404, 200));
    let notebook = RunningNotebook { job: "lab-1".to_owned(), url: url.trim().to_owned() };
    // The notebook has no key unless it is given one as a secret.
    let code = "import os, saggar\nprint('SAGGAR_API_KEY' in os.environ)\n\
                try:\n    saggar.Client().jobs.list()\nexcept saggar.SaggarError as error:\n    print('refused')";
    assert_eq!(notebook.execute(None, code).printed, "False\nrefused\n");
    let audit = std::fs::read_to_string(home.path().join("audit.log")).unwrap();
    assert!(audit.contains("notebook.open") && audit.contains("job.submit"), "{audit}");
    // A notebook ends with its key.
    let revoked = Command::new(binary()).args(["key", "revoke", "owner"]).env("SAGGAR_HOME", home.path()).output();
    assert!(revoked.unwrap().status.success());
    let admin = create_key(home.path(), &["boss", "--scope", "admin"]);
    let server = server.with_key(&admin);
    let ended = server.wait_for("the end of the notebook", |server| {
        let job = server.request("GET", "/api/v1/jobs/lab-1", HttpPayload::Nothing);
        (job.status == 200 && job.json()["state"] == "FAILED").then(|| job.json())
    });
    assert_eq!(ended["reason"], "FORBIDDEN", "{ended}");
}

#[test]
fn a_secret_configures_the_client_of_a_notebook() {
    let home = tempfile::tempdir().unwrap();
    let admin = create_key(home.path(), &["boss", "--scope", "admin"]);
    let server = ServerProcess::start_with(home.path(), &[&NOTEBOOKS[..], &["--require-keys"]].concat());
    let server = server.with_key(&admin);
    let key = create_key(home.path(), &["lab", "--scope", "jobs:read", "--project", "lab"]);
    let secret = server.request(
        "PUT",
        "/api/v1/secrets/saggar-api-key",
        HttpPayload::Json(&serde_json::json!({ "value": key, "projects": ["lab"] })),
    );
    assert!((200..300).contains(&secret.status), "{}", secret.text);
    let notebook = RunningNotebook::start(&server, &["--project", "lab", "--secret", "saggar-api-key"]);
    let code = "import saggar\nprint([job.name for job in saggar.Client().jobs.list()])";
    assert_eq!(notebook.execute(None, code).printed, "['lab-1']\n");
}

/// Returns the control group of the notebook of the job with this identifier, if there is one.
fn memory_group(id: &str) -> Option<PathBuf> {
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(&format!("saggar-notebook-{id}-")) {
                return Some(path);
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    None
}

/// Uses more memory than a notebook with 700 MiB has, and would never be done.
const USE_800_MIB: &str =
    "import time\nblock = bytearray(800 << 20)\nblock[::4096] = b'x' * (len(block) // 4096)\ntime.sleep(600)";

/// Uses more memory than the notebook has, and checks that it ends for that reason.
fn exceed_memory(server: &ServerProcess, notebook: &RunningNotebook) {
    let outcome = std::panic::catch_unwind(|| notebook.execute(None, USE_800_MIB));
    assert!(outcome.is_err(), "the connection ends with the notebook");
    let ended = server.wait_for_job(&notebook.job);
    assert_eq!((&ended["state"], &ended["reason"]), (&"FAILED".into(), &"OUT_OF_MEMORY".into()), "{ended}");
    assert!(ended["message"].as_str().unwrap().contains("--memory"), "{ended}");
}

#[test]
fn the_kernel_limits_the_memory_of_a_notebook() {
    let is_required = std::env::var_os("REQUIRE_CGROUP").is_some();
    // The group of the tests ends here: it only shows that groups can be created.
    let can_create = MemoryGroup::new(1 << 30).is_some();
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let notebook = RunningNotebook::start(&server, &["--memory", "700MiB"]);
    let log = server.saggar_ok(&["logs", &notebook.job]);
    if !log.contains("memory is limited to 734003200 bytes, by a control group") {
        assert!(!(is_required && can_create), "{log}");
        return;
    }
    let group = memory_group(server.job(&notebook.job)["id"].as_str().unwrap()).unwrap();
    let limits = ["memory.limit_in_bytes", "memory.max"].map(|name| std::fs::read_to_string(group.join(name)));
    assert_eq!(limits.iter().flatten().next().unwrap().trim(), "734003200");
    let processes = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    let sandbox = sandbox_processes(home.path());
    assert!(!sandbox.is_empty());
    for process in sandbox {
        assert!(processes.lines().any(|line| line == process.to_string()), "{process}: {processes}");
    }
    exceed_memory(&server, &notebook);
    server.wait_for("the end of the group", |_| (!group.exists()).then_some(()));
}

#[test]
fn without_control_groups_the_memory_of_a_notebook_is_measured() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("bwrap");
    command.args(["--die-with-parent", "--dev-bind", "/", "/", "--ro-bind", "/sys/fs/cgroup", "/sys/fs/cgroup"]);
    command.arg(binary()).args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]);
    command.arg(home.path()).args(NOTEBOOKS);
    let server = ServerProcess::from_command(command, home.path());
    let notebook = RunningNotebook::start(&server, &["--memory", "700MiB"]);
    let log = server.saggar_ok(&["logs", &notebook.job]);
    assert!(log.contains("measured twice a second, because no control group can be created"), "{log}");
    exceed_memory(&server, &notebook);
}

#[test]
fn a_notebook_that_exceeds_its_time_ends() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    let short = RunningNotebook::start(&server, &["--max-runtime", "2s"]);
    let ended = server.wait_for_job(&short.job);
    assert_eq!(ended["state"], "TIMED_OUT", "{ended}");
}

#[test]
fn a_task_of_the_project_file_starts_a_notebook() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with(home.path(), &NOTEBOOKS);
    server.push_digits();
    let folder = tempfile::tempdir().unwrap();
    let file = "manifest = 1\n[project]\nname = \"lab\"\n[project.defaults]\nseed = 3\nreplicas = 2\n\
                [task.explore]\nmode = \"notebook\"\ndata = [\"digits:/data\"]\nidle_timeout = \"4s\"\nmemory = \"2GiB\"\n";
    std::fs::write(folder.path().join("saggar.toml"), file).unwrap();
    let run = |arguments: &[&str]| {
        let output = server.command(arguments).current_dir(folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    for (arguments, words) in [
        (&["run", "--task", "explore", "--mode", "job"][..], "leave --mode out"),
        (&["run", "--task", "explore", "--estimate"][..], "--estimate has no meaning for a notebook"),
        (&["dev", "--task", "explore"][..], "which runs no plugin"),
    ] {
        let (is_done, _, errors) = run(arguments);
        assert!(!is_done && errors.contains(words), "{errors}");
    }
    let (is_done, url, errors) = run(&["run", "--task", "explore"]);
    assert!(is_done && url.contains("/notebooks/lab-1/lab?token="), "{url}{errors}");
    let spec: Value = serde_json::from_str(&server.saggar_ok(&["status", "lab-1", "--field", "spec"])).unwrap();
    assert_eq!(spec["notebook"]["idle_timeout_seconds"], 4.0, "{spec}");
    assert_eq!((&spec["task"], &spec["memory_bytes"]), (&"explore".into(), &(2_u64 << 30).into()), "{spec}");
    assert_eq!(spec["data"][0]["mount"], "/data", "{spec}");
    assert_eq!(server.wait_for_job("lab-1")["reason"], "IDLE");
    // A mistake is reported with its line and what to do.
    std::fs::write(folder.path().join("saggar.toml"), format!("{file}replicas = 2\n")).unwrap();
    let (is_done, _, errors) = run(&["run", "--task", "explore"]);
    assert!(
        !is_done && errors.contains("saggar.toml:12:1: task.explore.replicas: a notebook runs no plugin"),
        "{errors}"
    );
    assert!(errors.contains("hint: remove replicas"), "{errors}");
}
