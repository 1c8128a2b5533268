//! Pages for people: the console and the documentation, which are files of this program.

pub(crate) mod console;
mod docs;
pub(crate) mod protocol;
mod static_content;
