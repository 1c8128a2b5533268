//! `saggar plugins show`: shows a plugin's digest, parameters and data.

use std::path::Path;

use saggar_plugin::PluginDeclarations;
use saggar_reference_plugins::ReferencePlugin;
use saggar_rest::plugins::ListedPluginDocument;
use saggar_serve::PluginFacts;

use super::describe_resume_test;
use crate::client::ApiClient;
use crate::commands::run;
use crate::component_source::{ComponentSource, named_reference};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

pub(super) fn show_plugin(name: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let path = Path::new(name);
    let listed = if path.exists() {
        plugin_of_file(path, output)?
    } else if let Some(plugin) = named_reference(path) {
        // With a server, the list also says whether the plugin is known to resume. It needs none.
        run::find_listed_plugin(&plugin.digest().hex(), client).unwrap_or_else(|_| reference_document(plugin))
    } else {
        run::find_listed_plugin(name, client)?
    };
    if output.json {
        output.print_json(&listed);
        return Ok(());
    }
    let ListedPluginDocument { plugin, resume_test } = &listed;
    output.print_line(&format!("{}  {}", plugin.declared_name().unwrap_or(name), plugin.digest));
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    output.print_line(&format!("  trains    {}", yes(plugin.trains)));
    output.print_line(&format!("  predicts  {}", yes(plugin.predicts)));
    output.print_line(&format!("  step      {}", yes(plugin.is_step)));
    output.print_line(&format!("  size      {}", units::format_bytes(plugin.bytes)));
    output
        .print_line(&format!("  from      {}", if plugin.reference { "this program" } else { "an upload or a file" }));
    output.print_line(&format!("  resumes   {}", describe_resume_test(resume_test.as_ref())));
    output.print_line("");
    let declares = match &plugin.declares {
        None => PluginDeclarations::default(),
        Some(declares) => {
            serde_json::from_value(declares.clone()).map_err(|error| CliError::invalid(error.to_string()))?
        }
    };
    run::help::print_parameters(name, &declares, output);
    Ok(())
}

fn plugin_of_file(path: &Path, output: CliOutput) -> Result<ListedPluginDocument, CliError> {
    let component = ComponentSource::find_or_build(path, output)?;
    let facts = PluginFacts::of_component(&component.read()?)
        .map_err(|error| CliError::invalid(format!("{component}: {error}")))?;
    Ok(ListedPluginDocument { plugin: facts.document(), resume_test: None })
}

fn reference_document(plugin: &'static ReferencePlugin) -> ListedPluginDocument {
    ListedPluginDocument { plugin: PluginFacts::of_reference(plugin).document(), resume_test: None }
}
