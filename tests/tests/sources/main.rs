//! The source tree itself: its layers, names, documents' figures and dependencies.

mod dependencies;
mod documented_figures;
mod features;
mod module_circles;
mod names;
mod source_tree;
