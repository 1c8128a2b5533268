//! `--json` on every command: standard output is JSON and nothing else.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use saggar_store::digest::Digest;
use saggar_tests::onnx::small_model::{external_model, external_weights};
use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::workers::link_shared_directories;
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, guest, plugin, root};
use serde_json::Value;

/// Commands without a JSON document, and why.
const EXEMPT: [(&str, &str); 4] = [
    ("completion", "what it prints is a shell's script"),
    ("dev", "it goes on until it is interrupted"),
    ("serve", "it goes on until it is interrupted"),
    ("worker join", "it goes on until it is interrupted"),
];

/// Returns the commands that a help text lists, before its options.
fn listed_commands(help: &str) -> Vec<String> {
    let commands = help.split("\nGlobal options:").next().unwrap().split("\nOptions:").next().unwrap();
    let name = |line: &str| {
        let line = line.strip_prefix("  ")?;
        let (name, about) = line.split_once("  ")?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !name.starts_with('-');
        // Descriptions of arguments are indented further.
        (!name.is_empty() && !about.is_empty() && is_name).then(|| name.to_owned())
    };
    commands.lines().filter_map(name).collect()
}

fn help(words: &[&str]) -> String {
    let output = Command::new(binary()).args(words).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns every command, with its subcommand if it has any, such as `models ls`.
fn commands() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for command in listed_commands(&help(&[])) {
        let text = help(&[&command]);
        let beneath = if text.contains("\nCommands:\n") { listed_commands(&text) } else { Vec::new() };
        match beneath.is_empty() {
            true => drop(all.insert(command)),
            false => all.extend(beneath.iter().map(|it| format!("{command} {it}"))),
        }
    }
    all
}

/// Runs commands with `--json` in a project's directory, and records which.
struct JsonSession<'s> {
    server: &'s ServerProcess,
    place: &'s Path,
    done: BTreeSet<String>,
    variables: Vec<(&'static str, String)>,
}

impl JsonSession<'_> {
    /// Returns the documents that a command prints. Words are separated by a space each; a `+` is a space in a word.
    fn documents(&mut self, line: &str, input: &str) -> Vec<Value> {
        let mut arguments: Vec<String> = line.split(' ').map(|word| word.replace('+', " ")).collect();
        let words = if help(&[&arguments[0]]).contains("\nCommands:\n") { 2 } else { 1 };
        self.done.insert(arguments[..words].join(" "));
        // Parameters of a plugin are last.
        let at = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
        arguments.insert(at, "--json".to_owned());
        let mut command = self.server.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.current_dir(self.place).env("XDG_CACHE_HOME", self.place).env("XDG_CONFIG_HOME", self.place);
        command.env("SAGGAR_ADDR", "127.0.0.1:0").envs(self.variables.clone());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input can have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let [out, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{line}: {}\n{out}\n{errors}", output.status);
        let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&out).into_iter().collect();
        let documents = documents.unwrap_or_else(|error| panic!("{line}: {error}: {out}"));
        assert!(!documents.is_empty(), "{line} prints nothing");
        documents
    }

    /// Returns the only document that a command prints.
    fn json(&mut self, line: &str) -> Value {
        let mut documents = self.documents(line, "");
        assert_eq!(documents.len(), 1, "{line}: {documents:?}");
        documents.remove(0)
    }

    fn run_all(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| drop(self.json(line)));
    }
}

fn project(place: &Path) {
    let text = format!(
        "manifest = 1\n[project]\nname = \"steady\"\n[plugin.steady]\nsource = {:?}\n\
         [task.train]\nplugin = \"steady\"\nargs = {{ steps = 3 }}\ndevice = \"cpu\"\nschedule = \"15 23 29 2 *\"\n\
         [pipeline.p]\n[[pipeline.p.step]]\nname = \"train\"\ntask = \"train\"\n\
         [[pipeline.p.step]]\nname = \"ask\"\nkind = \"approve\"\nafter = [\"train\"]\n",
        guest("steady")
    );
    std::fs::write(place.join("saggar.toml"), text).unwrap();
    std::fs::write(place.join("sums.onnx"), external_model("sums.onnx.data", 0)).unwrap();
    std::fs::write(place.join("sums.onnx.data"), external_weights(0)).unwrap();
    for (link, to) in [("digits", root().join("examples/digits")), ("echo", root().join("tests/guests/echo"))] {
        std::os::unix::fs::symlink(to, place.join(link)).unwrap();
    }
}

fn jobs(session: &mut JsonSession<'_>) {
    let run = "run --task train --experiment lr --wait -- steps=5";
    assert_eq!(session.json(run)["name"], "steady-1");
    assert_eq!(session.json(&format!("{run} items=true write=a.txt=3"))["name"], "steady-2");
    assert_eq!(session.json("status steady-1")["state"], "SUCCEEDED");
    assert_eq!(session.json("ps -a").as_array().unwrap().len(), 2);
    let lines = session.documents("logs steady-1", "");
    assert!(lines.iter().any(|line| line["line"] == "step 5"), "{lines:?}");
    let refreshes = session.documents("top -n 2", "");
    assert_eq!((refreshes.len(), &refreshes[1]["hosts"][0]["jobs"][0]["name"]), (2, &"steady-2".into()));
    session.run_all(&[
        "wait steady-1",
        "metrics steady-1",
        "diff steady-1 steady-2",
        "compare steady-1 steady-2",
        "cost steady-1 --rate 1/h",
        "queues",
        "quota",
        "output ls steady-2",
        "output tail steady-2 a.txt",
        "output get steady-2 a.txt -o out",
        "output checkpoints steady-1",
        "logged steady-2 -o pictures",
        "schedule set often 15+23+29+2+* --like steady-1",
        "schedule apply",
        "schedule ls",
        "schedule rm often",
    ]);
    session.documents("secret set token", "a value of it");
    session.run_all(&["secret ls", "secret rm token"]);
    let long = session.json("run --task train -- steps=1000000")["name"].as_str().unwrap().to_owned();
    session.server.wait_for_step(&long, 5);
    assert_eq!(session.json(&format!("pause {long} --at-step 100000000"))["pause_step"], 100_000_000);
    session.json(&format!("resume {long}"));
    session.json(&format!("preempt {long}"));
    session.json(&format!("stop {long}"));
    session.server.wait_for_job(&long);
    session.json(&format!("restart {long} --from-scratch -- steps=3"));
    session.server.wait_for_job("steady-4");
    sweeps(session);
    session.run_all(&[
        "tag steady-1 kind=baseline",
        "note steady-1 the+first+run",
        "experiment ls",
        "experiment show lr",
        "data recipe ls",
        "run --task train --experiment short --wait -- steps=3",
        "experiment rm short --yes",
    ]);
    assert_eq!(session.json("replay steady-1 --to 2")["different"], 0);
    let notebook = session.json("run --mode notebook --project lab");
    assert_eq!(session.json("notebook lab-1"), notebook);
    session.json("stop lab-1");
    session.json("plugins ls");
    let documents = session
        .documents(&format!("plugins test {} --device cpu -- steps=6000 model=made", guest("steady").display()), "");
    assert!(documents.last().unwrap().is_object(), "{documents:?}");
}

fn sweeps(session: &mut JsonSession<'_>) {
    let start = "sweep --task train --grid work=1,2 --metric accuracy --max-parallel 1 -- steps=1000000";
    let name = session.json(start)["name"].as_str().unwrap().to_owned();
    assert_eq!(session.json("sweep ls").as_array().unwrap().len(), 1);
    assert_eq!(session.json(&format!("sweep status {name}"))["state"], "RUNNING");
    session.json(&format!("sweep stop {name}"));
    session.json(&format!("sweep resume {name}"));
    assert_eq!(session.json(&format!("sweep stop {name}"))["state"], "STOPPED");
    assert_eq!(session.json(&format!("sweep results {name}"))["trials_target"], 2);
}

fn data(session: &mut JsonSession<'_>) {
    // A job's output is fetched from the server by its URL.
    let url = format!("{}/api/v1/jobs/steady-2/output/a.txt", session.server.url());
    let pull = format!("data fetch {url} --sha256 {} --name pulled", Digest::of(b"xxx").hex());
    session.run_all(&[
        "data push digits --name digits",
        &pull,
        "data add steady-2/a.txt --as added",
        "data ls",
        "data show digits",
        "data export pulled -o fetched",
        "data projects added --project steady",
        "data rm added --yes",
    ]);
}

fn pipelines(session: &mut JsonSession<'_>) {
    session.run_all(&["pipeline check", "pipeline graph p"]);
    assert_eq!(session.json("pipeline run p")["name"], "p-1");
    let server = session.server;
    let wait_for_run = |words: &str| {
        server.wait_for(words, |server| {
            let run = server.get("/api/v1/pipeline-runs/p-1").to_string();
            run.contains(words).then_some(())
        });
    };
    wait_for_run("\"WAITING\"");
    session.run_all(&["pipeline approve p-1 ask", "pipeline ls"]);
    assert_eq!(session.json("pipeline status p-1")["steps"][0]["state"], "SUCCEEDED");
    let lines = session.documents("pipeline logs p-1 train", "");
    assert!(lines.iter().any(|line| line["line"].as_str().unwrap().ends_with("/1 step 3")), "{lines:?}");
    wait_for_run("\"state\":\"SUCCEEDED\",\"reason\":\"\",\"message\":\"\",\"owner\"");
    session.run_all(&["pipeline restart p-1 --from ask", "pipeline stop p-1"]);
    wait_for_run("\"state\":\"CANCELLED\",\"reason\":\"STOPPED\"");
    session.run_all(&["pipeline rm p-1", "pipeline schedule p --cron 15+23+29+2+*"]);
}

fn models(session: &mut JsonSession<'_>) {
    let lenet = plugin("lenet");
    let sweep = format!("sweep {} --device cpu --data digits --grid lr=0.05 --metric epoch/loss", lenet.display());
    let sweep = session.json(&format!("{sweep} --wait -- epochs=1 model=found"))["name"].as_str().unwrap().to_owned();
    let published = session.json(&format!("sweep publish {sweep} --model best"));
    assert_eq!((&published["model"], &published["version"]), (&"best".into(), &1.into()), "{published}");
    for seed in [1, 2] {
        session.json(&format!("run {} --device cpu --data digits --seed {seed} --wait -- epochs=1", lenet.display()));
        session.server.wait_for_version("digits", seed);
    }
    plugin("onnx");
    session.run_all(&[
        "models ls",
        "models show digits",
        "models promote digits 1",
        "models rollback digits",
        "models canary digits 1 10%",
        "models alias digits first 1",
        "models shadow digits first 10%",
        "models projects digits --project steady",
        "models unload digits",
        "models load digits",
        "models warm digits",
        "predict digits -i image=@digits/held-out/7.png --save seven.http",
        "verify seven.http",
        "import sums.onnx",
        "models export digits@1 digits.saggar",
        "key pair release",
        "key sign digits.saggar --secret-key release.key",
        "models import-bundle digits.saggar --public-key release.pub",
        "bench infer digits --devices cpu --requests 3 --home state",
        "bench serve --model digits --connections 1 --duration 100ms --warm-up 0s --save serve.json",
        "bench diff serve.json serve.json",
        "bench data digits --home state",
        "bench scale lenet --data digits --device cpu --workers 1,2 --repetitions 1 -- epochs=3",
        "models rm digits --yes",
    ]);
}

fn machine(session: &mut JsonSession<'_>) {
    session.run_all(&[
        "key create reader --scope predict --home keys",
        "key ls --home keys",
        "key revoke reader --home keys",
        "inspect sums.onnx",
        "doctor --device cpu --home state",
        "version",
        "init mine",
        "build echo",
        "check",
        "config ls",
        "plugins worlds",
        "plugins show lenet",
        "data schema",
        "backup state.backup --home state",
        "restore state.backup --home restored",
        "upgrade-check --home restored",
        "deploy kubernetes --image saggar:1 --objects s3://models/saggar",
        "deploy helm chart --image saggar:1 --objects s3://models/saggar",
    ]);
    let removed = session.json("audit --action model.remove");
    assert_eq!(removed[0]["subject"], "digits", "{removed}");
    let echo = guest("echo");
    session.json(&format!("models push echo {}", echo.display()));
    let bench = format!("bench train {} --devices cpu --steps 5 --home bench -- steps=50", guest("steady").display());
    session.documents(&bench, "");
    session.run_all(&["rm steady-1 --yes", "gc --keep-last 1 --yes"]);
}

/// Commands that need a server whose records are in a database.
fn workers(session: &mut JsonSession<'_>) {
    let names = ["worker run", "worker drain"].map(str::to_owned);
    let Some(database) = PostgresServer::start() else { return session.done.extend(names) };
    let home = session.place.join("shared");
    std::fs::create_dir(&home).unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--jobs", "0", "--name", "s", "--home"]);
    command.arg(&home).env("SAGGAR_DATABASE_URL", database.url());
    let server = ServerProcess::from_command(command, &home);
    server.wait_for("the row of its host", |server| server.get("/api/v1/workers")["workers"].get(0).cloned());
    let mut shared =
        JsonSession { server: &server, place: session.place, done: BTreeSet::new(), variables: Vec::new() };
    // It registers while it starts to serve.
    server.wait_for("the row of the server", |it| it.saggar_ok(&["ps", "--workers"]).contains("server").then_some(()));
    assert_eq!(shared.json("ps --workers")[0]["kind"], "server");
    assert_eq!(shared.json("worker drain s")[0]["state"], "DRAINING");
    let job = SteadyJob::with_steps(3).submit(&server);
    let run = format!("worker run {job} --device cpu --home shared-worker --database {}", database.url());
    link_shared_directories(&session.place.join("shared-worker"), Some(&home));
    let ran = shared.json(&run);
    assert_eq!((&ran["job"], &ran["state"]), (&job.into(), &"SUCCEEDED".into()));
    session.done.extend(shared.done);
}

/// Commands that need a database and a bucket.
fn shared_stores(session: &mut JsonSession<'_>) {
    let (Some(database), Some(store)) = (PostgresServer::start(), MotoServer::start()) else {
        return session.done.extend(["migrate".to_owned()]);
    };
    std::fs::create_dir(session.place.join("alone")).unwrap();
    drop(ServerProcess::start(&session.place.join("alone")));
    session.variables = s3_variables(store.port()).to_vec();
    let stores = format!("{} {}", database.url(), s3_address("json"));
    let moved = session.json(&format!("migrate --from alone --to {stores}"));
    assert_eq!((&moved["from"], &moved["tables"][1]["table"]), (&"alone".into(), &"jobs".into()), "{moved}");
    assert_eq!(session.json(&format!("migrate --from {stores} --to moved"))["tables"], moved["tables"]);
    session.variables.clear();
}

#[test]
fn every_command_prints_json_with_the_json_flag() {
    let place = tempfile::tempdir().unwrap();
    project(place.path());
    let state = place.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let server = ServerProcess::start_with(&state, &["--notebooks", "1"]);
    let mut session =
        JsonSession { server: &server, place: place.path(), done: BTreeSet::new(), variables: Vec::new() };
    session.json("health");
    jobs(&mut session);
    data(&mut session);
    models(&mut session);
    pipelines(&mut session);
    machine(&mut session);
    workers(&mut session);
    shared_stores(&mut session);
    let (expected, exempt) = (commands(), EXEMPT.map(|(name, _)| name));
    assert!(expected.len() > 60 && exempt.iter().all(|name| expected.contains(*name)), "{expected:?}");
    let is_missing = |name: &&String| !session.done.contains(*name) && !exempt.contains(&name.as_str());
    let missing: Vec<_> = expected.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "commands that are not tried: {missing:?}");
}
