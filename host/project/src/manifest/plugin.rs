//! `[plugin.NAME]`: a component, how it is built, what it may reach.

use crate::glob::Glob;
use crate::reading::Item;
use crate::table::Table;

/// A component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The component's file, relative to the project's directory.
    pub source: String,
    /// What it exports.
    pub world: World,
    /// How it is made; none means that it is there.
    pub build: Option<Build>,
    /// What it may reach besides its data.
    pub grants: Grants,
}

/// What a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// Trains and predicts.
    #[default]
    Model,
    /// Predicts.
    Predict,
    /// Trains.
    Train,
}

/// How a component is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// A command of the shell, run in the project's directory. `saggar` is the program that reads this.
    pub command: String,
    /// The files that it is made of.
    pub watch: Vec<Glob>,
}

/// What a plugin may reach. Nothing is the default, and all that this release gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Paths.
    pub files: Vec<String>,
    /// Beginnings of addresses.
    pub http: Vec<String>,
    /// Names of secrets.
    pub secrets: Vec<String>,
}

pub(super) fn read(table: &Table<'_>) -> Option<Plugin> {
    let source = table.required("source", "source = \"target/saggar/NAME.wasm\"", source);
    let worlds = [("model-plugin", World::Model), ("predict-plugin", World::Predict), ("train-plugin", World::Train)];
    let world = table.optional("world", |item| item.choice(&worlds)).unwrap_or_default();
    let build = table.optional("build", |item| build(&item.table()?));
    let grants = table.optional("grants", |item| grants(&item.table()?)).unwrap_or_default();
    table.finish();
    Some(Plugin { source: source?, world, build, grants })
}

fn source(item: &Item<'_>) -> Option<String> {
    match item.text()? {
        path if path.ends_with(".wasm") => Some(path.to_owned()),
        _ => item.refuse("the path of a component, NAME.wasm"),
    }
}

fn build(table: &Table<'_>) -> Option<Build> {
    let command = table.required("command", "command = \"saggar build\"", |item| match item.text()?.trim() {
        "" => item.refuse("a command such as \"saggar build\""),
        command => Some(command.to_owned()),
    });
    let pattern = |item: &Item<'_>| item.unit(Glob::parse, "a file pattern below the project such as \"src/**/*.rs\"");
    let watch = table.optional("watch", |item| item.list(pattern)).unwrap_or_default();
    table.finish();
    Some(Build { command: command?, watch })
}

fn grants(table: &Table<'_>) -> Option<Grants> {
    let list = |key| {
        let item = table.item(key)?;
        let list = item.list(Item::string)?;
        if !list.is_empty() {
            let message =
                format!("{}: plugins of this release reach nothing; the grant is checked, not given", item.path);
            item.report.remark(&item.span, message);
        }
        Some(list)
    };
    let list = |key| list(key).unwrap_or_default();
    let grants = Grants { files: list("files"), http: list("http"), secrets: list("secrets") };
    table.finish();
    Some(grants)
}
