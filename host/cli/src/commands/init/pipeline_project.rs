//! The template `pipeline`: a project without code, whose steps use a reference plugin.

use std::path::Path;

use saggar_project::PROJECT_FILE;

/// The template's name on the command line.
pub(crate) const NAME: &str = "pipeline";
/// Its description for a list.
pub(super) const ABOUT: &str = "a retraining in steps, from data to a guarded deployment, without code";

const PROJECT: &str = r#"# `saggar check` checks this file; `saggar check --schema` describes every key.
manifest = 1

[project]
name = "NAME"

# A reference plugin of the program. `saggar init mine` creates one of your own.
[plugin.lenet]
source = "lenet"

# The template of the training jobs. `saggar data push FOLDER --name digits` stores the dataset.
[task.train]
plugin = "lenet"
data = ["digits:/data"]
checkpoint = { every = "30s" }

# A search for parameters of the training. Its trials publish versions of NAME-search, so the pipeline's models stay as
# they are.
[task.search]
plugin = "lenet"
data = ["digits:/data"]
args = { epochs = 1, model = "NAME-search" }

[sweep.rate]
task = "search"
space = { lr = "log(1e-3,1e-1)", batch = "16,32,64" }
trials = 4
metric = "validation/accuracy"
max_parallel = 2

# A version serves only if it is good enough.
[model.NAME]
promote = "validation/accuracy >= serving - 0.005"

[pipeline.nightly]
params = { base_epochs = 2, epochs = 4, deploy = true }
# When it starts by itself, in UTC, once `saggar pipeline schedule nightly` was run:
schedule = "15 1 * * *"

# Computed once: with the same plugin, parameters and data, the earlier result is used.
[[pipeline.nightly.step]]
name = "base"
task = "train"
args = { epochs = "${params.base_epochs}", model = "NAME-base" }
cache = true

[[pipeline.nightly.step]]
name = "train"
task = "train"
init_from = "${steps.base.outputs.model}"
args = { epochs = "${params.epochs}", model = "NAME" }
preemptible = true
retry = 5

[[pipeline.nightly.step]]
name = "serve"
kind = "deploy"
model = "NAME"
from = "${steps.train.outputs.model}"
when = "${params.deploy}"
"#;

const README: &str = "# NAME

A pipeline: a base that is computed once, a short training that continues from it, and a deployment if the new version
is good enough. The steps are in `saggar.toml`.

```
saggar serve                            # in another terminal
saggar data push FOLDER --name digits
saggar pipeline check
saggar pipeline graph nightly
saggar pipeline run nightly -p epochs=3 --follow
saggar pipeline schedule nightly        # starts it every night
saggar sweep --sweep rate --follow      # searches for a learning rate and a batch size
saggar sweep results NAME-sweep-1 --save-task best
```
";

/// Writes the project into a directory, which is created.
pub(super) fn write_pipeline_project(root: &Path, name: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(root)?;
    std::fs::write(root.join(PROJECT_FILE), PROJECT.replace("NAME", name))?;
    std::fs::write(root.join(".gitignore"), "/.saggar\n")?;
    std::fs::write(root.join("README.md"), README.replace("NAME", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_of_the_template_has_no_mistakes() {
        let dir = tempfile::tempdir().unwrap();
        write_pipeline_project(&dir.path().join("mine"), "mine").unwrap();
        let text = std::fs::read_to_string(dir.path().join("mine").join(PROJECT_FILE)).unwrap();
        let manifest = saggar_project::ProjectManifest::parse(&text).map_err(|found| found.render(PROJECT_FILE));
        let manifest = manifest.unwrap_or_else(|found| panic!("{found}"));
        let steps: Vec<&str> = manifest.pipelines["nightly"].expanded.iter().map(|it| it.step.name.as_str()).collect();
        assert_eq!(steps, ["base", "train", "serve"]);
        assert_eq!(manifest.sweeps["rate"].task, "search");
    }
}
