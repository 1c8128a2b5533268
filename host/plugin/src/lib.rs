//! Plugins: the WebAssembly component host, its WIT bindings, limits, artefact cache and version watcher
