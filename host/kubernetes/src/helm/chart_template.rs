//! Templates: the text of an object, with placeholders replaced by what Helm evaluates.
//!
//! Only a few constructs are used: values, `quote`, `if`, `with`, and `tpl (toYaml ...)` with an indentation.

use serde_json::Value;

use super::lifted_values::{LIFTED_VALUES, LiftedForm, LiftedValue, SWITCHES, set_field};
use crate::manifests::DeployedObject;
use crate::yaml::to_yaml;

/// Stands for the release's name. A valid name, because the objects are made with it.
pub(super) const RELEASE_PLACEHOLDER: &str = "zz-release-zz";
/// Stands for the release's namespace.
pub(super) const NAMESPACE_PLACEHOLDER: &str = "zz-namespace-zz";
/// Begins a placeholder of a value, whose index follows.
const VALUE_PLACEHOLDER: &str = "%%value-";

/// Returns the template of an object.
pub(super) fn template_text(manifest: &DeployedObject) -> String {
    let mut object = manifest.object.clone();
    for (index, lifted) in LIFTED_VALUES.iter().enumerate() {
        if lifted.file == manifest.file {
            set_field(&mut object, lifted.pointer, Value::String(format!("{VALUE_PLACEHOLDER}{index}%%")));
        }
    }
    let text: String = to_yaml(&object).lines().map(template_lines).collect();
    match condition(manifest.file) {
        Some(condition) => format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"),
        None => text,
    }
}

/// Replaces the placeholders of the release in a text that is not YAML, or in whose YAML they need no quotes.
pub(super) fn insert_release(text: &str) -> String {
    text.replace(RELEASE_PLACEHOLDER, "{{ .Release.Name }}").replace(NAMESPACE_PLACEHOLDER, "{{ .Release.Namespace }}")
}

/// Returns the condition under which an object is there.
fn condition(file: &str) -> Option<String> {
    let switch = |file: &str| SWITCHES.iter().find(|(_, of)| *of == file).map(|(path, _)| format!(".Values.{path}"));
    match file {
        "role-binding" => switch("role"),
        "worker-network-policy" => Some("or .Values.worker.enabled .Values.jobPool.enabled".to_owned()),
        file => switch(file),
    }
}

/// Returns the line of a template for a line of an object, which can become several lines.
fn template_lines(line: &str) -> String {
    let lifted = line.split_once(VALUE_PLACEHOLDER).and_then(|(_, rest)| {
        let index: usize = rest.split_once("%%")?.0.parse().ok()?;
        LIFTED_VALUES.get(index)
    });
    match lifted {
        Some(lifted) => lifted_lines(line, lifted),
        None => format!("{}\n", insert_release(&quote_release(line))),
    }
}

/// Returns the lines of a field whose value is lifted.
fn lifted_lines(line: &str, lifted: &LiftedValue) -> String {
    let (field, _) = line.split_once(':').unwrap_or((line, ""));
    let indent = field.len() - field.trim_start_matches([' ', '-']).len();
    let (spaces, path) = (" ".repeat(indent), lifted.path);
    match lifted.form {
        LiftedForm::Scalar => {
            let is_text = matches!(path, "server.image" | "worker.image" | "ingress.host");
            format!("{field}: {{{{ .Values.{path}{} }}}}\n", if is_text { " | quote" } else { "" })
        }
        LiftedForm::OptionalScalar => {
            format!("{spaces}{{{{- with .Values.{path} }}}}\n{field}: {{{{ . }}}}\n{spaces}{{{{- end }}}}\n")
        }
        LiftedForm::List | LiftedForm::Mapping => format!(
            "{spaces}{{{{- with .Values.{path} }}}}\n{field}:\n{spaces}  {{{{- tpl (toYaml .) $ | nindent {} }}}}\n\
             {spaces}{{{{- end }}}}\n",
            indent + 2
        ),
        LiftedForm::Text => {
            format!("{field}: |\n{spaces}  {{{{- tpl .Values.{path} . | trim | nindent {} }}}}\n", indent + 2)
        }
    }
}

/// Puts the value of a line into quotes if it has a placeholder of the release, so that no name is read as a number.
fn quote_release(line: &str) -> String {
    if !line.contains(RELEASE_PLACEHOLDER) && !line.contains(NAMESPACE_PLACEHOLDER) {
        return line.to_owned();
    }
    let start = line.find(": ").map_or_else(|| line.find("- ").map_or(0, |at| at + 2), |at| at + 2);
    let (before, value) = line.split_at(start);
    if value.starts_with(['"', '\'']) { line.to_owned() } else { format!("{before}\"{value}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_release_are_quoted_where_they_are_not() {
        let check = |line: &str, expected: &str| assert_eq!(template_lines(line), format!("{expected}\n"));
        check("  name: zz-release-zz-worker", "  name: \"{{ .Release.Name }}-worker\"");
        check("  - http://zz-release-zz:5000", "  - \"http://{{ .Release.Name }}:5000\"");
        check("  namespace: \"zz-namespace-zz\"", "  namespace: \"{{ .Release.Namespace }}\"");
        check("  kind: Job", "  kind: Job");
    }
}
