//! Backups of a database and a bucket, taken while two servers use them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::process::{Command, Output};
use std::time::Instant;

use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::{HttpPayload, PostgresServer, ServerProcess, SteadyJob, binary, guest, lenet};
use serde_json::json;

/// The key that seals secrets in the database.
const SECRETS_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Backups of busy servers.
const BACKUPS: u32 = 4;

fn check_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Adds what a program needs to reach the stores.
fn with_stores(mut command: Command, database: &PostgresServer, store: &MotoServer) -> Command {
    command.env("SAGGAR_DATABASE_URL", database.url()).env("SAGGAR_OBJECTS", s3_address("lab"));
    command.env("SAGGAR_SECRETS_KEY", SECRETS_KEY).envs(s3_variables(store.port()));
    command.env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE").env_remove("SAGGAR_HOME");
    command
}

fn predict(server: &ServerProcess) -> String {
    server.saggar_ok(&["predict", "digits", "-i", "image=@examples/digits/held-out/3.png", "--json"])
}

/// Checks that a server with a restored state serves the same, and continues the jobs from intact checkpoints.
fn check_restored(server: &ServerProcess, jobs: &[String], answer: &str) {
    server.wait_for_version("digits", 1);
    assert_eq!(predict(server), answer);
    assert!(server.get("/api/v1/secrets").to_string().contains("token"));
    for job in jobs {
        let printed = server.saggar_ok(&["output", "checkpoints", job, "--verify", "--json"]);
        assert!(!printed.contains("damaged") && printed.contains("step"), "{printed}");
        server.wait_for("the checkpoint", |it| {
            it.saggar_ok(&["logs", job]).contains("resumed from checkpoint @").then_some(())
        });
        assert!(server.job(job)["attempt"].as_u64() >= Some(2), "{}", server.job(job));
    }
}

#[test]
fn every_backup_of_busy_servers_continues_their_jobs_in_a_state_directory() {
    let (Some(database), Some(store)) = (PostgresServer::start(), MotoServer::start()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let with_stores = |command: Command| with_stores(command, &database, &store);
    let servers = ["a", "b"].map(|name| {
        let home = directory.path().join(name);
        std::fs::create_dir(&home).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]).arg(&home);
        ServerProcess::from_command(with_stores(command), &home)
    });
    servers[0].push_digits();
    let plugin = lenet();
    let train = ["run", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--wait", "--", "epochs=1"];
    servers[0].saggar_ok(&[&train[..], &["model=digits"]].concat());
    servers[1].wait_for_version("digits", 1);
    let secret = json!({ "value": "correct horse battery" });
    assert!(servers[0].request("PUT", "/api/v1/secrets/token", HttpPayload::Json(&secret)).status < 300);
    let answer = predict(&servers[0]);
    // Every few steps a checkpoint is saved and one is pruned, while versions appear and vanish.
    let job = |at: usize| {
        let job = SteadyJob::with_steps(100_000_000).with_field("checkpoint_every", json!({ "steps": 2 }));
        job.with_field("checkpoint_keep_last", 1).submit(&servers[at])
    };
    let jobs = [0, 1].map(job);
    jobs.iter().for_each(|job| drop(servers[0].wait_for_step(job, 20)));
    for number in 1..=BACKUPS {
        let (file, restored) =
            (directory.path().join(format!("{number}.tar")), directory.path().join(format!("restored-{number}")));
        let echo = guest("echo");
        let config = directory.path().join("config.json");
        std::fs::write(&config, format!(r#"{{"size": {number}}}"#)).unwrap();
        let push = ["models", "push", "echo", echo.to_str().unwrap(), "--config", config.to_str().unwrap()];
        servers[0].saggar_ok(&push);
        let began = Instant::now();
        let mut backup = Command::new(binary());
        backup.args(["backup", "--json"]).arg(&file);
        check_success(&with_stores(backup).output().unwrap());
        println!("backup {number} in {:.1} s", began.elapsed().as_secs_f64());
        assert!(!file.with_added_extension("state").exists(), "nothing is left beside it");
        if number > 1 {
            servers[1].wait_for_version("echo", number.into());
            servers[1].saggar_ok(&["models", "rm", &format!("echo@{}", number - 1), "--yes"]);
        }
        let mut restore = Command::new(binary());
        restore.arg("restore").arg(&file).arg("--home").arg(&restored);
        check_success(&restore.output().unwrap());
    }
    for job in &jobs {
        assert_eq!(servers[0].job(job)["state"], "RUNNING", "it trains throughout");
    }
    drop(servers);
    for number in 1..=BACKUPS {
        let server = ServerProcess::start_with(&directory.path().join(format!("restored-{number}")), &["--jobs", "2"]);
        server.wait_for_version("echo", number.into());
        check_restored(&server, &jobs, &answer);
        server.kill_and_wait();
    }
}

#[test]
fn a_backup_of_a_database_names_the_bucket_that_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command
        .arg("backup")
        .arg(directory.path().join("x.tar"))
        .args(["--database", "postgres://ci:hunter2@127.0.0.1:1/x"]);
    let output = command.env_remove("SAGGAR_OBJECTS").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--objects") && said.contains("pg_dump") && !said.contains("hunter2"), "{said}");
}
