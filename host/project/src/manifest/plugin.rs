//! `[plugin.NAME]`: a component, its world and its build command.

use crate::glob::Glob;
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;

/// The WIT worlds that a plugin can implement.
const WORLDS: [&str; 4] = ["model-plugin", "predict-plugin", "train-plugin", "step-plugin"];

/// The names of the plugins that the program contains.
pub const REFERENCE_PLUGINS: [&str; 7] = ["lenet", "mlp", "tabular", "char-lm", "transformer", "input-opt", "onnx"];

/// A plugin of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSection {
    /// Path of the component, relative to the project's directory; the name of a reference plugin, optionally with `@`
    /// and its version; or a URL, from which the server fetches it.
    pub source: String,
    /// The SHA-256 that the component must have, as hexadecimal digits. Always given for a URL.
    pub sha256: Option<String>,
    /// The WIT world that it must implement, such as `train-plugin`; `None` if any will do.
    pub world: Option<&'static str>,
    /// How it is built; `None` if the component exists already.
    pub build: Option<PluginBuildCommand>,
}

/// How a component is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginBuildCommand {
    /// A shell command, run in the project's directory. In it, `saggar` is the program that reads this file.
    pub command: String,
    /// Patterns of the source files.
    pub watch: Vec<Glob>,
}

pub(super) fn read_plugin(table: &ManifestTable<'_>) -> Option<PluginSection> {
    let source = table.required("source", "source = \"target/saggar/NAME.wasm\"", read_source);
    let is_remote = source.as_deref().is_some_and(is_url);
    let sha256 = match is_remote {
        true => table.required("sha256", "sha256 = \"...\", as `sha256sum FILE` prints it", read_sha256),
        false => table.optional("sha256", read_sha256),
    };
    let world = table.optional("world", |item| item.choice(&WORLDS.map(|world| (world, world))));
    let build = table.optional("build", |item| read_build_command(&item.table()?));
    table.report_unsupported(
        "grants",
        "a plugin has no access to files or networks; `secrets` of a task names its secrets",
    );
    table.report_unknown_keys();
    if is_remote {
        for item in ["world", "build"].into_iter().filter_map(|key| table.get(key)) {
            let _: Option<()> = item.report_error(
                "not for a URL, whose component the server fetches as it is",
                "remove the line, or set `source` to a file",
            );
        }
    }
    Some(PluginSection { source: source?, sha256, world, build })
}

fn is_url(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

fn read_sha256(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        text if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(text.to_ascii_lowercase())
        }
        _ => item.report_expected("64 hexadecimal digits, as `sha256sum FILE` prints them"),
    }
}

fn read_source(item: &ManifestValue<'_>) -> Option<String> {
    match item.text()? {
        path if path.ends_with(".wasm") => Some(path.to_owned()),
        url if is_url(url) => Some(url.to_owned()),
        name if REFERENCE_PLUGINS.contains(&name.split('@').next().unwrap_or_default()) => Some(name.to_owned()),
        _ => item.report_expected(format_args!(
            "the path of a component, NAME.wasm, its URL, or a reference plugin ({})",
            REFERENCE_PLUGINS.join(", ")
        )),
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
