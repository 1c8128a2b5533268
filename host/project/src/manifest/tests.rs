use expect_test::{Expect, expect};

use super::*;

const MANIFEST_HEAD: &str = "manifest = 1\n[project]\nname = \"p\"\n[plugin.a]\nsource = \"a.wasm\"\n";

/// Checks the result of parsing a file that begins with a project and a plugin `a`.
fn check_manifest(rest: &str, expected: Expect) {
    let text = format!("{MANIFEST_HEAD}{rest}");
    let said = ProjectManifest::parse(&text).map_or_else(|found| found.render("saggar.toml"), |_| "taken".to_owned());
    expected.assert_eq(&said);
}

#[test]
fn every_manifest_key_is_read() {
    let manifest = ProjectManifest::parse(include_str!("../../examples/full.toml")).unwrap();
    assert_eq!(manifest.project.name, "mnist");
    let sweep = &manifest.sweeps["lr"];
    assert_eq!((sweep.task.as_str(), sweep.trials, sweep.method.as_deref()), ("train", Some(64), Some("asha")));
    assert_eq!((sweep.space["channels"].as_str(), sweep.budget.map(|time| time.as_secs())), ("8,16", Some(7200)));
    let train = &manifest.tasks["train"];
    assert_eq!(train.args["epochs"], 20);
    assert_eq!((train.data.len(), train.data[1].at.as_str()), (2, "/before"));
    assert_eq!(train.run.device, Some(DeviceRequest::Gpu(GpuRequest::Preferred)));
    assert_eq!(train.run.memory, Some(2 << 30));
    assert_eq!(train.run.retry_on.as_deref().unwrap(), ["preempted", "device-lost", "host-restart"]);
    let checkpoint = train.run.checkpoint.as_ref().unwrap();
    assert_eq!(checkpoint.keep_best, Some("max:validation/main/accuracy".to_owned()));
    assert_eq!(train.schedule.as_ref().unwrap().as_str(), "15 23 * * *");
    assert_eq!(manifest.queues["gpu"].pools, ["gpu0", "cpu"]);
    assert_eq!(manifest.pools["gpu0"].slots, 2.0);
    assert_eq!(manifest.quota.storage, Some(100 << 30));
    assert_eq!(manifest.models["lenet"].keep_alive, Some(ModelKeepAlive::For(std::time::Duration::from_secs(300))));
    assert_eq!(manifest.plugins["lenet"].world, Some("model-plugin"));
    assert!(ProjectManifest::parse(include_str!("../../examples/minimal.toml")).is_ok());
}

#[test]
fn unknown_keys_are_errors() {
    check_manifest(
        "[task.t]\nplugin = \"a\"\npriorty = 3\ncolour = \"red\"\n[tsak.x]\n",
        expect![[r#"
            saggar.toml:8:1: unknown key "priorty" in [task.t]
              hint: did you mean "priority"?
            saggar.toml:9:1: unknown key "colour" in [task.t]
              hint: known keys: args, auto_extend, checkpoint, data, device, experiment, gpu, gpu_memory, hosts, idle_timeout, init_from, labels, max_attempt_runtime, max_runtime, memory, message, mode, non_finite, plugin, precision, preemptible, priority, queue, record, replicas, retry, retry_on, schedule, secrets, seed, shards, utilization, without
            saggar.toml:10:2: unknown key "tsak" in the file
              hint: did you mean "task"?"#]],
    );
}

#[test]
fn a_notebook_has_no_keys_of_a_training() {
    let text =
        "[task.explore]\nmode = \"notebook\"\nidle_timeout = \"30m\"\nmemory = \"8GiB\"\ndata = [\"mnist:/data\"]\n";
    let manifest = ProjectManifest::parse(&format!("manifest = 1\n[project]\nname = \"p\"\n{text}")).unwrap();
    let task = &manifest.tasks["explore"];
    assert_eq!((task.mode, task.plugin.as_ref(), task.run.memory), (TaskMode::Notebook, None, Some(8 << 30)));
    assert_eq!(task.idle_timeout, Some(std::time::Duration::from_secs(1800)));
    check_manifest(
        "[task.n]\nmode = \"notebook\"\nplugin = \"a\"\nreplicas = 2\nidle_timeout = \"0s\"\n\
         [task.t]\nplugin = \"a\"\nidle_timeout = \"1h\"\n[sweep.s]\ntask = \"n\"\nspace = { lr = \"1,2\" }\nmetric = \"loss\"\n\
         [pipeline.p]\n[[pipeline.p.step]]\nname = \"n\"\ntask = \"n\"\n[task.u]\nmode = \"lab\"\n",
        expect![[r#"
            saggar.toml:8:1: task.n.plugin: a notebook runs no plugin and trains nothing
              hint: remove plugin, or the line with mode
            saggar.toml:9:1: task.n.replicas: a notebook runs no plugin and trains nothing
              hint: remove replicas, or the line with mode
            saggar.toml:10:16: task.n.idle_timeout: expected a time above 0 with its unit, such as 90s, 10m or 1h, got "0s"
              hint: such as idle_timeout = "90s"
            saggar.toml:13:1: task.t.idle_timeout: only notebooks stop when they are idle
              hint: add mode = "notebook", or remove idle_timeout; max_runtime limits the time of a job
            saggar.toml:15:8: the task "n" is a notebook, which runs no plugin
              hint: name a task with a plugin
            saggar.toml:21:8: the task "n" is a notebook, which runs no plugin
              hint: name a task with a plugin
            saggar.toml:22:1: [task.u] has no plugin
              hint: add a line such as plugin = "NAME"
            saggar.toml:23:8: task.u.mode: expected "job" or "serve" or "notebook", got "lab"
              hint: such as mode = "job""#]],
    );
}

#[test]
fn limits_must_be_positive_and_have_units() {
    check_manifest(
        "[task.t]\nplugin = \"a\"\nmax_runtime = \"90\"\nmemory = \"0MiB\"\ngpu_memory = 5\nretry = -1\npriority = 101\n\
         checkpoint = { every = \"0s\", keep_last = 0 }\ngpu = -0.5\nreplicas = 0\n\
         [quota]\ngpu_seconds = 0\nstorage = \"-1GiB\"\nmax_running_jobs = 0\n",
        expect![[r#"
            saggar.toml:8:15: task.t.max_runtime: expected a time above 0 with its unit, such as 90s, 10m or 1h, got "90"
              hint: such as max_runtime = "90s"
            saggar.toml:9:10: task.t.memory: expected a size above 0 with its unit, such as 512MiB or 4GiB, got "0MiB"
              hint: such as memory = "4GiB"
            saggar.toml:10:14: task.t.gpu_memory: expected a size above 0 with its unit, such as 512MiB or 4GiB, got 5
              hint: such as gpu_memory = "5GiB"
            saggar.toml:11:9: task.t.retry: expected a whole number from 0 to 1000, got -1
              hint: such as retry = 0
            saggar.toml:12:12: task.t.priority: expected a whole number from 0 to 100, got 101
              hint: such as priority = 100
            saggar.toml:13:24: task.t.checkpoint.every: expected an interval above 0, got "0s"
              hint: `saggar check --schema` shows what every key takes
            saggar.toml:13:42: task.t.checkpoint.keep_last: expected a whole number from 1 to 10000, got 0
              hint: such as keep_last = 1
            saggar.toml:14:7: task.t.gpu: expected a number above 0 and at most 64, got -0.5
              hint: such as gpu = 1
            saggar.toml:15:12: task.t.replicas: expected a whole number from 1 to 64, got 0
              hint: such as replicas = 1
            saggar.toml:17:15: quota.gpu_seconds: expected a number above 0, got 0
              hint: such as gpu_seconds = 3600
            saggar.toml:18:11: quota.storage: expected a size above 0 with its unit, such as 512MiB or 4GiB, got "-1GiB"
              hint: such as storage = "4GiB"
            saggar.toml:19:20: quota.max_running_jobs: expected a whole number from 1 to 1024, got 0
              hint: such as max_running_jobs = 1"#]],
    );
}

#[test]
fn renamed_instance_limits_are_read_with_a_warning() {
    let text = "manifest = 1\n[project]\nname = \"p\"\n[model.m]\n";
    let now = ProjectManifest::parse(&format!("{text}instances = {{ min = 1, max = 3 }}\n")).unwrap();
    let before = ProjectManifest::parse(&format!("{text}min_instances = 1\ninstances_max = 3\n")).unwrap();
    assert_eq!(now.models["m"], before.models["m"]);
    assert_eq!(now.warnings, []);
    let warnings: Vec<String> = before.warnings.iter().map(ToString::to_string).collect();
    expect![[r#"
        5:17: model.m.min_instances: now `instances = { min = 1 }`; the old key will not work in the next version
        6:17: model.m.instances_max: now `instances = { max = 3 }`; the old key will not work in the next version"#]]
    .assert_eq(&warnings.join("\n"));
    check_manifest(
        "[model.m]\ninstances = { min = 4, max = 3 }\n",
        expect![[r#"
            saggar.toml:7:13: model.m.instances: min is 4 and max is 3
              hint: such as { min = 1, max = 4 }"#]],
    );
}

#[test]
fn references_to_missing_tables_are_errors() {
    check_manifest(
        "[task.t]\nplugin = \"b\"\nqueue = \"gpus\"\n[queue.gpu]\npools = [\"gpu0\", \"cpu\"]\n",
        expect![[r#"
            saggar.toml:7:10: no plugin is called "b"
              hint: there are: a; or add a table [plugin.b]
            saggar.toml:8:9: no queue is called "gpus"
              hint: did you mean "gpu"?
            saggar.toml:10:10: no pool is called "gpu0"
              hint: there are: any; or add a table [pool.gpu0]"#]],
    );
    check_manifest("[task.t]\nplugin = \"a\"\nqueue = \"default\"\n", expect!["taken"]);
    check_manifest(
        "[queue.q]\npools = [\"cpu\", \"cpu\"]\n[queue.r]\npools = []\n",
        expect![[r#"
        saggar.toml:7:17: queue.q.pools[1]: "cpu" is listed twice
          hint: name each pool once, the first choice first
        saggar.toml:9:9: queue.r.pools: a queue without pools runs nothing
          hint: such as pools = ["vulkan:0", "cpu"]"#]],
    );
}

#[test]
fn bad_cron_lines_show_the_field() {
    check_manifest(
        "[task.t]\nplugin = \"a\"\nschedule = \"15 25 * * *\"\n",
        expect![[r#"
        saggar.toml:8:16: task.t.schedule: invalid cron line "15 25 * * *": hour "25": value must be in range 0..=23; found 25
          hint: write minute hour day-of-month month day-of-week in UTC, such as "15 23 * * *""#]],
    );
    check_manifest(
        "[task.t]\nplugin = \"a\"\nschedule = \"@daily\"\n",
        expect![[r#"
        saggar.toml:8:13: task.t.schedule: invalid cron line "@daily": 1 fields: expected 5, minute hour day-of-month month day-of-week
          hint: write minute hour day-of-month month day-of-week in UTC, such as "15 23 * * *""#]],
    );
    check_manifest(
        "[task.t]\nplugin = \"a\"\nschedule = \"0 0 30 2 *\"\n",
        expect![[r#"
        saggar.toml:8:13: task.t.schedule: invalid cron line "0 0 30 2 *": this date never occurs
          hint: write minute hour day-of-month month day-of-week in UTC, such as "15 23 * * *""#]],
    );
}

#[test]
fn unsupported_keys_are_errors_that_say_what_to_do() {
    check_manifest(
        "[plugin.a.grants]\nhttp = [\"https://api.example.com\"]\n[model.m]\nroutes = [\"/m\"]\n\
         traffic = { stable = 90, canary = 10 }\n",
        expect![[r#"
            saggar.toml:6:11: plugin.a.grants: not supported by this release
              hint: a plugin has no access to files or networks; `secrets` of a task names its secrets
            saggar.toml:9:1: model.m.routes: not supported by this release
              hint: leave it out: the plugin declares the paths of its model
            saggar.toml:10:1: model.m.traffic: not supported by this release
              hint: set the shares of existing versions with PUT /api/v1/models/NAME/traffic"#]],
    );
}

#[test]
fn a_file_that_is_not_toml_is_reported() {
    check_manifest(
        "[task.t\nplugin = a\n",
        expect![[r#"
        saggar.toml:6:8: unclosed table, expected `]`
          hint: TOML is written as in: [task.train] and name = "value""#]],
    );
    check_manifest(
        "[task.t]\nplugin = \"a\"\nplugin = \"a\"\n",
        expect![[r#"
        saggar.toml:8:1: duplicate key
          hint: TOML is written as in: [task.train] and name = "value""#]],
    );
    let empty = ProjectManifest::parse("").unwrap_err().render("saggar.toml");
    expect![[r#"
        saggar.toml:1:1: the file has no manifest
          hint: add a line such as manifest = 1
        saggar.toml:1:1: the file has no project
          hint: add a line such as name = "mnist" below [project]"#]]
    .assert_eq(&empty);
    let newer =
        ProjectManifest::parse("manifest = 2\n[project]\nname = \"Bad Name\"\n").unwrap_err().render("saggar.toml");
    expect![[r#"
        saggar.toml:1:12: manifest: expected 1, the version of the format that this release reads, got 2
          hint: `saggar check --schema` shows what every key takes
        saggar.toml:3:8: project.name: expected a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, got "Bad Name"
          hint: such as name = "bad-name""#]].assert_eq(&newer);
}

#[test]
fn values_of_the_wrong_type_are_reported() {
    check_manifest(
        "[task.t]\nplugin = 3\nargs = 4\ndata = \"mnist\"\ngpu = \"yes\"\nprecision = \"half\"\nretry_on = [\"moon\"]\nsecrets = [1]\n\
         device = \"cpu\"\n[model.m]\nkeep_alive = \"5\"\n",
        expect![[r#"
            saggar.toml:7:10: task.t.plugin: expected a text in quotes, got 3
              hint: such as plugin = "3"
            saggar.toml:8:8: task.t.args: expected a table in { }, got 4
              hint: such as args = { KEY = VALUE }
            saggar.toml:9:8: task.t.data: expected a list in [ ], got "mnist"
              hint: such as data = ["mnist"]
            saggar.toml:10:7: task.t.gpu: expected "required", "preferred", "none", or a number of slots such as 1 or 0.25, got "yes"
              hint: `saggar check --schema` shows what every key takes
            saggar.toml:11:13: task.t.precision: expected "float32" or "mixed", got "half"
              hint: such as precision = "float32"
            saggar.toml:12:13: task.t.retry_on[0]: expected "preempted" or "device-lost" or "worker-lost" or "host-restart" or "non-finite" or "error", got "moon"
              hint: such as "preempted"
            saggar.toml:13:12: task.t.secrets[0]: expected a text in quotes, got 1
              hint: such as "1"
            saggar.toml:16:14: model.m.keep_alive: expected a time such as "5m" or "0s", or "forever", got "5"
              hint: `saggar check --schema` shows what every key takes"#]],
    );
    check_manifest(
        "[task.t]\nplugin = \"a\"\ndata = [\"mnist/x\", { from = \"m\" }, { from = \"n\", to = \"data\" }, \"o:/data\"]\n\
         init_from = \"mnist\"\n[plugin.b]\nsource = \"b\"\nbuild = { command = \"\", watch = [\"../x\"] }\n",
        expect![[r#"
            saggar.toml:8:9: task.t.data[0]: invalid data "mnist/x": expected a dataset or a job's output, such as mnist, mnist/1 or job:mnist-7/output
              hint: write such as "mnist/1:/data"
            saggar.toml:8:36: task.t.data[2]: invalid mount point "data": expected an absolute path such as /data
              hint: write such as { from = "mnist/1", to = "/data" }
            saggar.toml:8:65: task.t.data[3]: two datasets are mounted at /data
              hint: give each a different mount point: { from = "other/1", to = "/other" }
            saggar.toml:9:13: task.t.init_from: expected job:NAME-N, job:NAME-N/checkpoint@STEP or model:NAME@VERSION, got "mnist"
              hint: `saggar check --schema` shows what every key takes
            saggar.toml:11:10: plugin.b.source: expected the path of a component, NAME.wasm, its URL, or a reference plugin (lenet, mlp, tabular, char-lm, transformer, input-opt, onnx), got "b"
              hint: `saggar check --schema` shows what every key takes
            saggar.toml:12:21: plugin.b.build.command: expected a command such as "saggar build", got ""
              hint: `saggar check --schema` shows what every key takes
            saggar.toml:12:34: plugin.b.build.watch[0]: expected a file pattern below the project such as "src/**/*.rs", got "../x"
              hint: `saggar check --schema` shows what every key takes"#]],
    );
}

#[test]
fn a_promotion_condition_is_checked_with_its_position() {
    let text =
        |condition: &str| format!("manifest = 1\n[project]\nname = \"p\"\n[model.digits]\npromote = {condition}\n");
    let manifest = ProjectManifest::parse(&text("\"validation/accuracy >= serving - 0.005\"")).unwrap();
    let condition = manifest.models["digits"].promote.as_ref().unwrap();
    assert_eq!(condition.to_string(), "validation/accuracy >= serving - 0.005");
    let error = ProjectManifest::parse(&text("\"accuracy >= best\"")).unwrap_err().to_string();
    assert!(
        error.contains("5:11: model.digits.promote: character 13: expected a number") && error.contains("`best`"),
        "{error}"
    );
    assert!(ProjectManifest::parse(&text("0.9")).is_err());
}

#[test]
fn a_component_at_a_url_needs_its_digest_and_is_not_built() {
    let parse = |plugin: &str| {
        let text = format!("manifest = 1\n[project]\nname = \"p\"\n[plugin.net]\n{plugin}\n");
        ProjectManifest::parse(&text).map_err(|found| found.render("saggar.toml"))
    };
    let (url, digest) = ("source = \"https://a.b/net.wasm\"", "0123456789ABCDEF".repeat(4));
    let plugin = parse(&format!("{url}\nsha256 = \"{digest}\"")).unwrap().plugins["net"].clone();
    assert_eq!((plugin.source.as_str(), plugin.sha256), ("https://a.b/net.wasm", Some(digest.to_lowercase())));
    let refusal = |plugin: &str, says: &str| {
        let found = parse(plugin).unwrap_err();
        assert!(found.contains(says), "{found}");
    };
    refusal(url, "[plugin.net] has no sha256");
    refusal(&format!("{url}\nsha256 = \"12\""), "plugin.net.sha256: expected 64 hexadecimal digits");
    refusal(&format!("{url}\nsha256 = \"{digest}\"\nworld = \"step-plugin\""), "plugin.net.world: not for a URL");
    refusal(
        &format!("{url}\nsha256 = \"{digest}\"\n[plugin.net.build]\ncommand = \"make\""),
        "plugin.net.build: not for",
    );
    assert_eq!(parse("source = \"lenet@0.1.0\"").unwrap().plugins["net"].source, "lenet@0.1.0");
    assert!(parse("source = \"leenet@0.1.0\"").is_err());
}
