//! Templates for new plugins: sources that are compiled into the program.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use include_dir::{Dir, include_dir};

use super::pipeline_project;

static CLASSIFIER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/classifier/src");
static TRAINER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/trainer/src");
static STEP: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/step/src");
static ECHO: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/echo/src");
static INPUT_OPT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/input-opt/src");
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/python/src");
static JAVASCRIPT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/templates/javascript/src");
static LENET: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/lenet/src");
/// The network that the template `input-opt` shares with `lenet`.
const LENET_MODEL: &str = include_str!("../../../../../plugins/lenet/src/model.rs");
const LENET_MODEL_PATH: &str = "#[path = \"../../lenet/src/model.rs\"]\n";

/// The language of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateLanguage {
    Rust,
    Python,
    JavaScript,
}

/// A template of a plugin.
pub(crate) struct PluginTemplate {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    pub(super) language: TemplateLanguage,
    /// A short description for a list.
    pub(super) about: &'static str,
    /// The description and usage for the plugin's README; `NAME` stands for the plugin's name.
    pub(super) readme: &'static str,
    /// The command that shows the plugin at work, with `NAME` as in `readme`.
    pub(super) run: &'static str,
    /// The rest of `[task.train]` in the project file.
    pub(super) task: &'static str,
    source: &'static Dir<'static>,
    /// The manifest of the package that the template is made from.
    pub(super) manifest: &'static str,
}

/// All templates, the default first.
pub(crate) static TEMPLATES: [PluginTemplate; 8] = [
    PluginTemplate {
        name: "classifier",
        language: TemplateLanguage::Rust,
        about: "trains on any dataset of pictures or features, and predicts",
        readme: "A saggar plugin that classifies pictures or features, in one file: the network, its inputs and outputs, and\n\
                 its training. Parameters: `input` (the field that it learns from, `image` by default), `units`, `classes`\n\
                 (how many, if the dataset does not name them), `batch`, `epochs`, `lr`, `model` (the name to publish\n\
                 under, NAME by default).",
        run: "saggar run NAME --data DATASET -f",
        task: "data = [\"digits\"] # `saggar data push FOLDER --name digits` stores it\n",
        source: &CLASSIFIER,
        manifest: include_str!("../../../../../plugins/templates/classifier/Cargo.toml"),
    },
    PluginTemplate {
        name: "trainer",
        language: TemplateLanguage::Rust,
        about: "a custom training loop whose result is a file",
        readme: "A saggar plugin that only trains, with a custom loop: steps, checkpoints and resuming are written out in\n\
                 `src/lib.rs`. The learned weights become the file `weights.csv`, which `saggar output get JOB` fetches.\n\
                 Parameters: `steps`, `batch`, `lr`, `input` (the field that it learns from, `image` by default), `classes`\n\
                 (how many, if the dataset does not name them).",
        run: "saggar run NAME --data DATASET -f -- steps=200",
        task: "data = [\"digits\"] # `saggar data push FOLDER --name digits` stores it\nargs = { steps = 200 }\n",
        source: &TRAINER,
        manifest: include_str!("../../../../../plugins/templates/trainer/Cargo.toml"),
    },
    PluginTemplate {
        name: "input-opt",
        language: TemplateLanguage::Rust,
        about: "a picture that a trained classifier is sure of",
        readme: "A saggar plugin that trains a picture instead of a network: a published version of `lenet` stays fixed, and\n\
                 the picture moves until the classifier is sure that it shows the class `target`. Parameters: `target`,\n\
                 `classifier` and `version` (the model), `steps`, `lr`, `item` (begin with that item of a dataset). The\n\
                 picture becomes the file `target-NNN.png`, which `saggar output get JOB` fetches.",
        run: "saggar run NAME -f -- target=3",
        task: "args = { target = 3 }\n",
        source: &INPUT_OPT,
        manifest: include_str!("../../../../../plugins/input-opt/Cargo.toml"),
    },
    PluginTemplate {
        name: "lenet-mnist",
        language: TemplateLanguage::Rust,
        about: "two convolutions that learn MNIST and other small pictures",
        readme: "A saggar plugin that classifies small pictures, grey or RGB: the network is in `src/model.rs`, its training in\n\
                 `src/train.rs`. Parameters: `epochs`, `batch`, `optimizer` (`sgd` or `adam`), `lr`, `momentum`, `channels`,\n\
                 `hidden`, `classes`, `model` (the name to publish under).",
        run: "saggar run NAME --data mnist -f -- epochs=3 model=mnist",
        task: "data = [\"mnist\"] # `saggar data push FOLDER --name mnist` stores it\nargs = { epochs = 3, model = \"mnist\" }\n",
        source: &LENET,
        manifest: include_str!("../../../../../plugins/lenet/Cargo.toml"),
    },
    PluginTemplate {
        name: "python",
        language: TemplateLanguage::Python,
        about: "two convolutions that learn small pictures, in Python",
        readme: "A saggar plugin in Python that classifies small pictures, grey or RGB: the network and its training are in\n\
                 `src/plugin.py`. Parameters: `epochs`, `batch`, `lr`, `units`, `classes` (how many, if the dataset does not\n\
                 name them), `model` (the name to publish under, NAME by default). `vendor/python` is for editors and type\n\
                 checkers too: `mypy src` reads `pyproject.toml`.",
        run: "saggar run NAME --data DATASET -f",
        task: "data = [\"digits\"] # `saggar data push FOLDER --name digits` stores it\n",
        source: &PYTHON,
        manifest: include_str!("../../../../../plugins/templates/python/pyproject.toml"),
    },
    PluginTemplate {
        name: "javascript",
        language: TemplateLanguage::JavaScript,
        about: "the same in JavaScript",
        readme: "A saggar plugin in JavaScript that classifies small pictures, grey or RGB: the network and its training are in\n\
                 `src/plugin.js`. Parameters: `epochs`, `batch`, `lr`, `units`, `classes` (how many, if the dataset does not\n\
                 name them), `model` (the name to publish under, NAME by default).",
        run: "saggar run NAME --data DATASET -f",
        task: "data = [\"digits\"] # `saggar data push FOLDER --name digits` stores it\n",
        source: &JAVASCRIPT,
        manifest: include_str!("../../../../../plugins/templates/javascript/package.json"),
    },
    PluginTemplate {
        name: "echo",
        language: TemplateLanguage::Rust,
        about: "a model that returns its input",
        readme: "A saggar plugin that predicts and learns nothing: `y` is `x`. Its training only publishes it.\n\
                 Parameters: `size` (how many numbers), `model` (the name to publish under, NAME by default).",
        run: "saggar run NAME -f && saggar predict NAME -i 'x=[1,2,3,4]'",
        task: "",
        source: &ECHO,
        manifest: include_str!("../../../../../plugins/templates/echo/Cargo.toml"),
    },
    PluginTemplate {
        name: "step",
        language: TemplateLanguage::Rust,
        about: "a function from typed inputs to typed outputs, run as a job",
        readme: "A saggar plugin that is a step: it chooses the threshold with which most items of a dataset are classified\n\
                 correctly. `Cargo.toml` declares its inputs and outputs with their types, and `saggar plugins show NAME`\n\
                 lists them. `saggar output ls JOB --kind value` shows what it returned.",
        run: "saggar run NAME --wait -- table=DATASET",
        task: "args = { table = \"digits\", score = \"score\" } # `saggar data push FOLDER --name digits` stores it\n",
        source: &STEP,
        manifest: include_str!("../../../../../plugins/templates/step/Cargo.toml"),
    },
];

/// Returns the names of all templates with their descriptions, as values of the command line.
pub(crate) fn possible_values() -> impl Iterator<Item = PossibleValue> {
    let plugins = TEMPLATES.iter().map(|template| PossibleValue::new(template.name).help(template.about));
    plugins.chain([PossibleValue::new(pipeline_project::NAME).help(pipeline_project::ABOUT)])
}

/// Returns the template of this name.
pub(super) fn find_template(name: &str) -> Option<&'static PluginTemplate> {
    TEMPLATES.iter().find(|template| template.name == name)
}

impl PluginTemplate {
    /// Returns the plugin's declared parameters and data as tables for its manifest, or an empty text if it declares
    /// nothing.
    pub(super) fn declarations(&self) -> &'static str {
        let begin = self.manifest.find("[package.metadata.saggar");
        let tables = begin.map_or("", |begin| &self.manifest[begin..]);
        tables.find("[lints]").map_or(tables, |end| &tables[..end])
    }

    /// Returns the files of the plugin's `src` by their relative paths.
    pub(super) fn files(&self) -> Vec<(PathBuf, Cow<'static, [u8]>)> {
        let files = self.source.files();
        let mut files: Vec<_> = files.map(|file| (file.path().to_owned(), Cow::Borrowed(file.contents()))).collect();
        if self.name == "input-opt" {
            for (_, contents) in &mut files {
                let text = String::from_utf8_lossy(contents).replace(LENET_MODEL_PATH, "");
                *contents = Cow::Owned(text.into_bytes());
            }
            files.push((PathBuf::from("network.rs"), Cow::Borrowed(LENET_MODEL.as_bytes())));
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_template_is_short() {
        let default = &TEMPLATES[0];
        assert_eq!(default.name, "classifier");
        let files = default.files();
        assert_eq!(files.len(), 1);
        let lines = String::from_utf8(files[0].1.to_vec()).unwrap().lines().count();
        assert!(lines <= 60, "{lines} lines");
    }

    #[test]
    fn no_template_refers_to_files_outside_its_source() {
        for template in &TEMPLATES {
            let files = template.files();
            let main = match template.language {
                TemplateLanguage::Rust => "lib.rs",
                TemplateLanguage::Python => "plugin.py",
                TemplateLanguage::JavaScript => "plugin.js",
            };
            assert!(files.iter().any(|(path, _)| path.as_os_str() == main), "{}", template.name);
            for (path, contents) in files {
                let text = String::from_utf8(contents.to_vec()).unwrap();
                assert!(!text.contains("#[path"), "{}: {}", template.name, path.display());
            }
        }
    }
}
