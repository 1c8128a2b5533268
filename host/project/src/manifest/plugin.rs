//! `[plugin.NAME]`: a component, its build command and its grants.

use crate::glob::Glob;
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;

/// A plugin of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSection {
    /// Path of the component, relative to the project's directory.
    pub source: String,
    /// The interfaces that it exports.
    pub world: PluginWorldKind,
    /// How it is built; `None` if the component exists already.
    pub build: Option<PluginBuildCommand>,
    /// Its access rights in addition to its data.
    pub grants: PluginGrants,
}

/// The interfaces that a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PluginWorldKind {
    /// Trains and predicts.
    #[default]
    Model,
    /// Predicts.
    Predict,
    /// Trains.
    Train,
}

/// How a component is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginBuildCommand {
    /// A shell command, run in the project's directory. In it, `saggar` is the program that reads this file.
    pub command: String,
    /// Patterns of the source files.
    pub watch: Vec<Glob>,
}

/// Access rights of a plugin. Empty by default; this release grants no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginGrants {
    /// Paths of files.
    pub files: Vec<String>,
    /// Prefixes of addresses.
    pub http: Vec<String>,
    /// Names of secrets.
    pub secrets: Vec<String>,
}

pub(super) fn read_plugin(table: &ManifestTable<'_>) -> Option<PluginSection> {
    let source = table.required("source", "source = \"target/saggar/NAME.wasm\"", read_source);
    let worlds = [
        ("model-plugin", PluginWorldKind::Model),
        ("predict-plugin", PluginWorldKind::Predict),
        ("train-plugin", PluginWorldKind::Train),
    ];
    let world = table.optional("world", |item| item.choice(&worlds)).unwrap_or_default();
    let build = table.optional("build", |item| read_build_command(&item.table()?));
    let grants = table.optional("grants", |item| read_grants(&item.table()?)).unwrap_or_default();
    table.report_unknown_keys();
    Some(PluginSection { source: source?, world, build, grants })
}

fn read_source(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        path if path.ends_with(".wasm") => Some(path.to_owned()),
        _ => item.report_expected("the path of a component, NAME.wasm"),
    }
}

fn read_build_command(table: &ManifestTable<'_>) -> Option<PluginBuildCommand> {
    let command = table.required("command", "command = \"saggar build\"", |item| match item.text()?.trim() {
        "" => item.report_expected("a command such as \"saggar build\""),
        command => Some(command.to_owned()),
    });
    let pattern = |item: &ManifestValue<'_>| {
        item.parse_text_or_report(Glob::parse, "a file pattern below the project such as \"src/**/*.rs\"")
    };
    let watch = table.optional("watch", |item| item.list(pattern)).unwrap_or_default();
    table.report_unknown_keys();
    Some(PluginBuildCommand { command: command?, watch })
}

fn read_grants(table: &ManifestTable<'_>) -> Option<PluginGrants> {
    let list = |key| {
        let item = table.get(key)?;
        let list = item.list(ManifestValue::string)?;
        if !list.is_empty() {
            let message = format!(
                "{}: the grant is checked but not applied: this release gives plugins no such access",
                item.path
            );
            item.report.add_remark(&item.span, message);
        }
        Some(list)
    };
    let list = |key| list(key).unwrap_or_default();
    let grants = PluginGrants { files: list("files"), http: list("http"), secrets: list("secrets") };
    table.report_unknown_keys();
    Some(grants)
}
