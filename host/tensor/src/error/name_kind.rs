//! The kinds of names in a graph.

/// The kind of a name in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// An input: a tensor provided to each dispatch.
    Input,
    /// A variable: state that persists between dispatches.
    Variable,
    /// An output: a tensor returned by a dispatch.
    Output,
    /// A label: the plugin's name of a node.
    Label,
}

impl std::fmt::Display for NameKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NameKind::Input => "input",
            NameKind::Variable => "variable",
            NameKind::Output => "output",
            NameKind::Label => "label",
        })
    }
}
