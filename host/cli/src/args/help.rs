//! Additions to `--help`: headings for the commands, and examples. A test checks both against the existing commands.

use clap::builder::Styles;
use clap::{Command, CommandFactory as _};

use super::Cli;

/// Headings of `saggar --help`, each with its commands. Every visible command is under one of them.
pub(super) const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["serve", "predict", "verify"]),
    (
        "Train",
        &[
            "run",
            "ps",
            "status",
            "top",
            "logs",
            "wait",
            "stop",
            "restart",
            "replay",
            "preempt",
            "pause",
            "resume",
            "metrics",
            "logged",
            "compare",
            "diff",
            "experiment",
            "tag",
            "note",
            "output",
            "rm",
            "gc",
            "queues",
            "pipeline",
            "schedule",
            "sweep",
            "notebook",
            "worker",
        ],
    ),
    ("Data", &["data"]),
    ("Models", &["models", "import", "plugins"]),
    ("Access", &["key", "secret", "audit", "quota"]),
    ("Maintain", &["backup", "restore", "migrate", "upgrade-check", "deploy"]),
    ("Inspect and measure", &["inspect", "bench", "cost", "doctor", "health", "version"]),
    ("Project", &["init", "dev", "build", "check", "config", "completion"]),
];

/// Example command lines by the path of the command that they show. A test parses each.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["saggar serve", "saggar run lenet --data digits -f", "saggar predict digits -i image=@seven.png"]),
    ("serve", &["saggar serve --addr 5000 --home /var/lib/saggar", "saggar serve --addr 0.0.0.0:5000 --require-keys"]),
    ("predict", &["saggar predict digits -i image=@seven.png --top-k 3", "saggar predict digits --in digits/1 --wait"]),
    (
        "run",
        &[
            "saggar run lenet --data digits -f -- epochs=3 lr=0.01",
            "saggar run --task train --gpu=0.5",
            "saggar run lenet --help",
            "saggar run --mode notebook --data digits --idle-timeout 30m",
        ],
    ),
    ("notebook", &["saggar notebook digits-7"]),
    ("ps", &["saggar ps", "saggar ps --all --experiment lr", "saggar ps --watch --spark loss", "saggar ps --workers"]),
    ("status", &["saggar status digits-7", "saggar status digits-7 --field metrics.loss"]),
    (
        "top",
        &[
            "saggar top",
            "saggar top --series loss,validation/loss,busy --window 10m",
            "saggar top --host http://a:5000 --host http://b:5000",
            "saggar top --json -n 1",
            "saggar top --record today.jsonl",
            "saggar top today.jsonl",
        ],
    ),
    ("logs", &["saggar logs -f digits-7", "saggar logs digits-7 --tail 100 --timestamps"]),
    ("wait", &["saggar wait digits-7 --timeout 10m"]),
    ("stop", &["saggar stop digits-7 digits-8"]),
    ("restart", &["saggar restart digits-7 --set device=cpu -- lr=0.001"]),
    (
        "replay",
        &["saggar replay digits-7 --from-step 1200 --to 1210", "saggar replay digits-7 --from-step 1200 --print loss"],
    ),
    ("preempt", &["saggar preempt digits-7"]),
    ("pause", &["saggar pause digits-7", "saggar pause digits-7 --at-step 1000"]),
    ("resume", &["saggar resume digits-7"]),
    (
        "metrics",
        &[
            "saggar metrics digits-7 --series loss,accuracy --csv",
            "saggar metrics digits-7 digits-8 --series loss --png loss.png --log --smooth 0.6",
        ],
    ),
    (
        "logged",
        &[
            "saggar logged digits-7",
            "saggar logged digits-7 --kind image -o pictures",
            "saggar logged digits-7 --name weights/conv1 --step 1200",
        ],
    ),
    (
        "compare",
        &[
            "saggar compare digits-7 digits-8",
            "saggar compare nightly-1 nightly-2",
            "saggar compare digits-sweep-1 digits-sweep-2 --json",
            "saggar compare --experiment lr --columns lr,validation/accuracy --sort -validation/accuracy",
            "saggar compare --experiment lr --filter 'lr<0.1' --filter state=SUCCEEDED",
            "saggar compare --experiment lr --metric validation/accuracy --png accuracy.png",
        ],
    ),
    ("experiment", &["saggar experiment ls", "saggar experiment show lr"]),
    ("experiment ls", &["saggar experiment ls"]),
    ("experiment show", &["saggar experiment show lr"]),
    ("experiment rm", &["saggar experiment rm lr", "saggar experiment rm lr --yes"]),
    ("tag", &["saggar tag digits-7 kind=baseline data=clean", "saggar tag digits-7 --rm kind"]),
    ("note", &["saggar note digits-7 augmented"]),
    ("diff", &["saggar diff digits-7 digits-8"]),
    ("output", &["saggar output ls digits-7", "saggar output get digits-7 -o results"]),
    ("output ls", &["saggar output ls digits-7 --kind model"]),
    ("output tail", &["saggar output tail digits-7 samples.txt -f"]),
    ("output get", &["saggar output get digits-7 -o results", "saggar output get digits-7 --checkpoint best"]),
    ("output checkpoints", &["saggar output checkpoints digits-7 --verify"]),
    ("rm", &["saggar rm digits-7 digits-8 --yes"]),
    ("gc", &["saggar gc --keep-last 10 --dry-run", "saggar gc --failed-older-than 7d --yes"]),
    ("queues", &["saggar queues"]),
    ("pipeline", &["saggar pipeline run nightly -p train_steps=100 -f", "saggar pipeline status nightly-7"]),
    ("pipeline check", &["saggar pipeline check"]),
    ("pipeline graph", &["saggar pipeline graph nightly", "saggar pipeline graph nightly --format mermaid"]),
    ("pipeline run", &["saggar pipeline run nightly -p train_steps=100 -p deploy=false -f"]),
    ("pipeline ls", &["saggar pipeline ls nightly"]),
    ("pipeline status", &["saggar pipeline status nightly-7"]),
    ("pipeline logs", &["saggar pipeline logs nightly-7 train -f"]),
    ("pipeline stop", &["saggar pipeline stop nightly-7"]),
    ("pipeline approve", &["saggar pipeline approve nightly-7 ask", "saggar pipeline approve nightly-7 ask --reject"]),
    ("pipeline restart", &["saggar pipeline restart nightly-7", "saggar pipeline restart nightly-7 --from train"]),
    ("pipeline rm", &["saggar pipeline rm nightly-7"]),
    ("pipeline schedule", &["saggar pipeline schedule nightly --cron '0 3 * * *'", "saggar pipeline schedule"]),
    (
        "sweep",
        &[
            "saggar sweep lenet --data digits --grid lr=0.1,0.01 --grid channels=8,16 --metric validation/accuracy -f",
            "saggar sweep --task train --space 'lr=log(1e-4,1e-1)' --random 64 --method asha --metric min:validation/loss",
            "saggar sweep --task train --space 'lr=log(1e-4,1e-1)' --trials 40 --method tpe --metric validation/accuracy",
        ],
    ),
    ("sweep ls", &["saggar sweep ls"]),
    ("sweep status", &["saggar sweep status digits-sweep-1"]),
    ("sweep stop", &["saggar sweep stop digits-sweep-1"]),
    ("sweep resume", &["saggar sweep resume digits-sweep-1"]),
    ("sweep publish", &["saggar sweep publish digits-sweep-1", "saggar sweep publish digits-sweep-1 --model digits"]),
    (
        "sweep results",
        &[
            "saggar sweep results digits-sweep-1 --limit 10",
            "saggar sweep results digits-sweep-1 --save-task best",
            "saggar sweep results digits-sweep-1 --png sweep.png",
        ],
    ),
    ("schedule", &["saggar schedule set nightly '0 3 * * *' --like digits-7", "saggar schedule ls"]),
    ("schedule set", &["saggar schedule set nightly '0 3 * * *' --like digits-7"]),
    ("schedule apply", &["saggar schedule apply train"]),
    ("schedule ls", &["saggar schedule ls"]),
    ("schedule rm", &["saggar schedule rm nightly"]),
    ("data", &["saggar data push examples/digits --name digits", "saggar data ls"]),
    (
        "data push",
        &[
            "saggar data push examples/digits --name digits",
            "saggar data push wine.csv --target quality --split 0.2 --missing drop",
            "saggar data push photos --resize 64x64",
        ],
    ),
    ("data schema", &["saggar data schema > dataset.schema.json"]),
    ("data fetch", &["saggar data fetch https://example.com/digits.tar.gz --name digits --sha256 9f86d081884c7d65"]),
    ("data ls", &["saggar data ls digits"]),
    ("data show", &["saggar data show digits/1"]),
    ("data export", &["saggar data export digits/1 -o digits-copy"]),
    ("data add", &["saggar data add prepare-3/features --as features"]),
    ("data recipe", &["saggar data recipe ls", "saggar data recipe add digits"]),
    ("data recipe ls", &["saggar data recipe ls"]),
    ("data recipe add", &["saggar data recipe add digits", "saggar data recipe add mnist --from ~/mnist"]),
    ("data rm", &["saggar data rm digits/1 --yes"]),
    ("data projects", &["saggar data projects digits --project vision"]),
    ("models", &["saggar models ls", "saggar models promote digits 3"]),
    ("models ls", &["saggar models ls"]),
    ("models show", &["saggar models show digits", "saggar models show digits@3 --verify"]),
    ("models push", &["saggar models push digits plugin.wasm --weights w.safetensors --config c.json --card card.md"]),
    ("models export", &["saggar models export digits@3 digits.saggar"]),
    ("models import-bundle", &["saggar models import-bundle digits.saggar --public-key release.pub"]),
    ("models promote", &["saggar models promote digits 3", "saggar models promote digits newest"]),
    ("models rollback", &["saggar models rollback digits"]),
    ("models canary", &["saggar models canary digits 4 10%", "saggar models canary digits 4 0%"]),
    ("models alias", &["saggar models alias digits stable 3", "saggar models alias digits stable --remove"]),
    ("models shadow", &["saggar models shadow digits 4 10%", "saggar models shadow digits --remove"]),
    ("models projects", &["saggar models projects digits --project vision"]),
    ("models load", &["saggar models load digits 3"]),
    ("models unload", &["saggar models unload digits"]),
    ("models warm", &["saggar models warm digits"]),
    ("models rm", &["saggar models rm digits@2", "saggar models rm digits --yes"]),
    ("import", &["saggar import resnet.onnx --batch 1,8", "saggar import net.onnx --shape image=1x3x224x224"]),
    ("plugins", &["saggar plugins ls", "saggar plugins show lenet"]),
    ("plugins ls", &["saggar plugins ls"]),
    ("plugins show", &["saggar plugins show lenet", "saggar plugins show plugins/mlp"]),
    ("plugins test", &["saggar plugins test lenet --data digits -- epochs=1"]),
    ("key", &["saggar key create web --scope predict --rate 100/s", "saggar key ls"]),
    ("key create", &["saggar key create web --scope predict --rate 100/s --expires 30d"]),
    ("key ls", &["saggar key ls"]),
    ("key revoke", &["saggar key revoke web"]),
    ("key pair", &["saggar key pair release"]),
    ("key sign", &["saggar key sign digits.saggar --secret-key release.key"]),
    ("verify", &["saggar verify answer.http", "saggar verify answer.http --recompute -i image=@seven.png"]),
    (
        "backup",
        &[
            "saggar backup saggar-backup.tar --home /var/lib/saggar",
            "saggar backup saggar-backup.tar --database postgres://saggar_server@db.example.com/saggar --objects s3://my-bucket/saggar",
        ],
    ),
    ("restore", &["saggar restore saggar-backup.tar --home /var/lib/saggar"]),
    (
        "migrate",
        &[
            "saggar migrate --from /var/lib/saggar --to postgres://saggar_server@db.example.com/saggar s3://my-bucket/saggar",
            "saggar migrate --from postgres://saggar_server@db.example.com/saggar s3://my-bucket/saggar --to /var/lib/saggar",
        ],
    ),
    ("deploy", &["saggar deploy kubernetes --image registry.example.com/saggar:0.1.0 --objects s3://models/saggar"]),
    (
        "deploy kubernetes",
        &[
            "saggar deploy kubernetes --image registry.example.com/saggar:0.1.0 --objects s3://models/saggar",
            "saggar deploy kubernetes --namespace ml --image registry.example.com/saggar:0.1.0 --objects s3://models/saggar \
             --workers 4 --gpu nvidia --ingress saggar.example.com",
        ],
    ),
    (
        "deploy helm",
        &["saggar deploy helm chart --image registry.example.com/saggar:0.1.0 --objects s3://models/saggar"],
    ),
    ("upgrade-check", &["saggar upgrade-check --home /var/lib/saggar"]),
    ("audit", &["saggar audit --action model --since 7d", "saggar audit --who key:ci --result refused"]),
    ("secret", &["saggar secret set hub-token --project vision < token.txt", "saggar secret ls"]),
    ("secret set", &["saggar secret set hub-token --project vision < token.txt"]),
    ("secret ls", &["saggar secret ls"]),
    ("secret rm", &["saggar secret rm hub-token"]),
    ("quota", &["saggar quota"]),
    ("inspect", &["saggar inspect lenet", "saggar inspect digits@2 --stage wgsl"]),
    ("bench", &["saggar bench train lenet --data examples/digits", "saggar bench infer digits --batch 1,8,32"]),
    ("bench train", &["saggar bench train lenet --data examples/digits --devices cpu,gpu"]),
    ("bench infer", &["saggar bench infer digits@3 --batch 1,8,32"]),
    (
        "bench serve",
        &[
            "saggar bench serve --model digits --connections 1,8,64 --save before.json",
            "saggar bench serve --model digits --protocol grpc --rate 200",
        ],
    ),
    ("bench diff", &["saggar bench diff before.json after.json --threshold 5%"]),
    ("bench data", &["saggar bench data digits/1 --batch 64"]),
    ("bench scale", &["saggar bench scale lenet --data digits --workers 1,2,4 --png speed-up.png -- epochs=3"]),
    ("cost", &["saggar cost digits-7 digits-8 --rate 0.65/h"]),
    (
        "worker",
        &[
            "saggar worker join https://server.example.com:5000 --key sgr_... --label gpu=a100",
            "saggar worker drain gpu-1",
        ],
    ),
    (
        "worker join",
        &[
            "saggar worker join https://server.example.com:5000 --key sgr_... --name gpu-1 --label gpu=a100",
            "saggar worker join http://10.0.0.5:5000 --preemptible --slots 2",
        ],
    ),
    ("worker run", &["saggar worker run digits-7"]),
    ("worker drain", &["saggar worker drain gpu-1 --finish", "saggar worker drain gpu-1 --resume"]),
    ("doctor", &["saggar doctor", "saggar doctor --device gpu"]),
    ("health", &["saggar health"]),
    ("version", &["saggar version"]),
    ("init", &["saggar init my-plugin --template trainer"]),
    ("dev", &["saggar dev", "saggar dev --addr 5111 --device cpu"]),
    ("build", &["saggar build plugins/lenet"]),
    ("check", &["saggar check", "saggar check --schema"]),
    ("config", &["saggar config ls --task train"]),
    ("config ls", &["saggar config ls --task train"]),
    ("plugins worlds", &["saggar plugins worlds"]),
    ("completion", &["saggar completion bash > ~/.local/share/bash-completion/completions/saggar"]),
];

/// Returns the command line with headings and examples in its help.
pub(crate) fn command() -> Command {
    let command = with_examples(Cli::command(), "");
    let template = help_template(&command);
    command.help_template(template)
}

/// Returns the example command lines of the command at this path.
pub(super) fn examples(path: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(of, _)| *of == path).map_or(&[], |(_, lines)| lines)
}

fn with_examples(command: Command, path: &str) -> Command {
    let command = command.mut_subcommands(|subcommand| {
        let path = format!("{path} {}", subcommand.get_name());
        with_examples(subcommand, path.trim_start())
    });
    let lines = examples(path);
    if lines.is_empty() {
        return command;
    }
    let header = *Styles::default().get_header();
    let title = if lines.len() == 1 { "Example" } else { "Examples" };
    command.after_help(format!("{header}{title}:{header:#}\n  {}", lines.join("\n  ")))
}

/// Returns the help template of `saggar` itself, with the commands under their headings.
fn help_template(command: &Command) -> String {
    let styles = Styles::default();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let width =
        command.get_subcommands().filter(|it| !it.is_hide_set()).map(|it| it.get_name().len()).max().unwrap_or(0);
    let line = |name: &&str| {
        let subcommand = command.find_subcommand(name)?;
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        let aliases = subcommand.get_visible_aliases().collect::<Vec<&str>>().join(", ");
        let aliases = if aliases.is_empty() { aliases } else { format!(" [aliases: {aliases}]") };
        let space = width - name.len();
        Some(format!("  {literal}{name}{literal:#}{:space$}  {about}{aliases}\n", ""))
    };
    let group = |(title, names): &(&str, &[&str])| {
        format!("{header}{title}:{header:#}\n{}\n", names.iter().filter_map(line).collect::<String>())
    };
    let groups: String = COMMAND_GROUPS.iter().map(group).collect();
    let footer = "`saggar COMMAND --help` shows a command's options and examples.";
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Global options:{header:#}\n{{options}}\n\n\
         {footer}{{after-help}}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the paths of all visible commands.
    fn command_paths(command: &Command, above: &str) -> Vec<String> {
        let mut found = Vec::new();
        for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let path = format!("{above} {}", subcommand.get_name()).trim_start().to_owned();
            found.extend(command_paths(subcommand, &path));
            found.push(path);
        }
        found
    }

    #[test]
    fn every_visible_command_is_in_one_help_group() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let mut visible: Vec<&str> =
            command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let there: BTreeSet<String> = command_paths(&Cli::command(), "").into_iter().chain([String::new()]).collect();
        let documented_paths: Vec<String> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(documented_paths.iter().cloned().collect::<BTreeSet<String>>(), there);
        assert_eq!(documented_paths.len(), there.len(), "a command is there twice");
        for (path, lines) in EXAMPLES {
            for line in *lines {
                assert!(line.starts_with(&format!("saggar {path}")), "{line} is no example of {path}");
                // Split the line as a shell would.
                let words = line.split(['<', '>']).next().unwrap_or_default().replace("'0 3 * * *'", "0_3_*_*_*");
                let parsed = Cli::command().try_get_matches_from(words.split_whitespace());
                let is_good =
                    parsed.as_ref().map_or_else(|error| error.kind() == clap::error::ErrorKind::DisplayHelp, |_| true);
                assert!(is_good, "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn help_lists_commands_under_headings_and_global_options_apart() {
        let help = command().render_long_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} is missing from\n{help}"));
        assert!(at("\nServe:\n") < at("\nTrain:\n") && at("\nTrain:\n") < at("\nProject:\n"), "{help}");
        assert!(at("\nProject:\n") < at("\nGlobal options:\n") && at("--host <URL>") > at("\nGlobal options:\n"));
        assert!(at("[aliases: jobs]") < at("\nData:\n") && help.contains("\nExamples:\n  saggar serve\n"), "{help}");
        assert!(!help.contains("compile-child") && !help.contains("\nOptions:\n"), "{help}");
        let mut command = command();
        let help = command.find_subcommand_mut("stop").unwrap().render_help().to_string();
        assert!(help.contains("Example:\n  saggar stop digits-7 digits-8"), "{help}");
        command.build();
        let help = command.find_subcommand_mut("serve").unwrap().render_help().to_string();
        let (local, global) = help.split_once("\nGlobal options:\n").unwrap_or_else(|| panic!("{help}"));
        assert!(local.contains("--addr") && !local.contains("--host"), "{help}");
        let global = global.split("\nExamples:\n").next().unwrap_or_default();
        assert!(global.contains("--host") && !global.contains("--addr"), "{help}");
    }
}
