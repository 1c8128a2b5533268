//! Estimates the work of compiling a component in one pass over its bytes, before any of it is compiled.
//!
//! The counts are those that the bytes claim; nothing is validated here. Bytes that claim less than they contain are
//! refused by the compiler's own validation, which runs in a process with resource limits.

use wasmparser::{BinaryReaderError, ComponentTypeRef, FunctionBody, Parser, Payload, TableSectionReader};

use crate::error::PluginError;
use crate::inspect::{ComponentImport, ComponentInterface};
use crate::limits::{
    CODE_BYTES_MAX, COMPILE_COST_MAX, COMPONENT_DEPTH_MAX, COMPONENT_ITEMS_MAX, COMPONENTS_MAX, FUNCTION_BYTES_MAX,
    FUNCTION_LOCALS_MAX, FUNCTIONS_MAX, LOCALS_MAX, LOCALS_PER_COST, MEMORIES_PER_MODULE_MAX, MODULES_MAX,
    SEGMENTS_MAX, TABLE_ELEMENTS_MAX, TABLES_PER_MODULE_MAX,
};

/// Returns a component's imports and exports, read without compiling it.
///
/// # Errors
/// `Malformed`; `TooComplex` if a limit is exceeded.
pub(crate) fn check_complexity(wasm: &[u8]) -> Result<ComponentInterface, PluginError> {
    let mut face = ComponentInterface { exports: Vec::new(), imports: Vec::new() };
    let mut counts = ComponentCounts::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(malformed_error)?;
        // Only the imports of the outermost component are resolved by the host.
        if counts.depth == 1 {
            read_interface(&mut face, &payload)?;
        }
        counts.add(&payload)?;
    }
    Ok(face)
}

fn malformed_error(error: BinaryReaderError) -> PluginError {
    PluginError::Malformed { reason: error.to_string() }
}

fn read_interface(face: &mut ComponentInterface, payload: &Payload<'_>) -> Result<(), PluginError> {
    match payload {
        Payload::ComponentImportSection(section) => {
            check_limit("imports", section.count().into(), COMPONENT_ITEMS_MAX)?;
            for import in section.clone() {
                let import = import.map_err(malformed_error)?;
                if !matches!(import.ty, ComponentTypeRef::Type(_)) {
                    let is_interface = matches!(import.ty, ComponentTypeRef::Instance(_));
                    face.imports.push(ComponentImport { name: import.name.name.to_owned(), is_interface });
                }
            }
        }
        Payload::ComponentExportSection(section) => {
            check_limit("exports", section.count().into(), COMPONENT_ITEMS_MAX)?;
            for export in section.clone() {
                face.exports.push(export.map_err(malformed_error)?.name.name.to_owned());
            }
        }
        _ => {}
    }
    Ok(())
}

/// Totals over all modules and components inside the component.
#[derive(Debug, Default)]
struct ComponentCounts {
    depth: u64,
    modules: u64,
    components: u64,
    /// Types, imports, exports, instances, aliases and other entries of sections.
    items: u64,
    /// Data and element segments.
    segments: u64,
    functions: u64,
    /// Locals, with repetitions counted individually.
    locals: u64,
    code_bytes: u64,
    /// See [`COMPILE_COST_MAX`].
    cost: u64,
}

impl ComponentCounts {
    fn add(&mut self, payload: &Payload<'_>) -> Result<(), PluginError> {
        match payload {
            Payload::Version { .. } => {
                self.depth += 1;
                return check_limit("levels of nested components", self.depth, COMPONENT_DEPTH_MAX);
            }
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            Payload::ModuleSection { .. } => {
                self.modules += 1;
                return check_limit("core modules", self.modules, MODULES_MAX);
            }
            Payload::ComponentSection { .. } => {
                self.components += 1;
                return check_limit("nested components", self.components, COMPONENTS_MAX);
            }
            Payload::ElementSection(section) => return self.add_segments(section.count()),
            Payload::DataSection(section) => return self.add_segments(section.count()),
            Payload::CodeSectionEntry(body) => return self.add_function(body),
            Payload::TypeSection(section) => return self.add_items(section.count()),
            Payload::ImportSection(section) => return self.add_items(section.count()),
            Payload::FunctionSection(section) => return self.add_items(section.count()),
            Payload::TableSection(section) => return self.add_tables(section),
            Payload::MemorySection(section) => {
                check_limit("memories in one module", section.count().into(), MEMORIES_PER_MODULE_MAX.into())?;
                return self.add_items(section.count());
            }
            Payload::TagSection(section) => return self.add_items(section.count()),
            Payload::GlobalSection(section) => return self.add_items(section.count()),
            Payload::ExportSection(section) => return self.add_items(section.count()),
            Payload::InstanceSection(section) => return self.add_items(section.count()),
            Payload::CoreTypeSection(section) => return self.add_items(section.count()),
            Payload::ComponentInstanceSection(section) => return self.add_items(section.count()),
            Payload::ComponentAliasSection(section) => return self.add_items(section.count()),
            Payload::ComponentTypeSection(section) => return self.add_items(section.count()),
            Payload::ComponentCanonicalSection(section) => return self.add_items(section.count()),
            Payload::ComponentImportSection(section) => return self.add_items(section.count()),
            Payload::ComponentExportSection(section) => return self.add_items(section.count()),
            // Other sections cause no work, or the validator refuses them.
            _ => {}
        }
        Ok(())
    }

    fn add_items(&mut self, count: u32) -> Result<(), PluginError> {
        self.items += u64::from(count);
        check_limit("types, imports, exports and other entries", self.items, COMPONENT_ITEMS_MAX)
    }

    /// Checks the tables of one module.
    fn add_tables(&mut self, section: &TableSectionReader<'_>) -> Result<(), PluginError> {
        check_limit("tables in one module", section.count().into(), TABLES_PER_MODULE_MAX.into())?;
        for table in section.clone() {
            let elements = table.map_err(malformed_error)?.ty.initial;
            check_limit("elements in one table", elements, TABLE_ELEMENTS_MAX as u64)?;
        }
        self.add_items(section.count())
    }

    fn add_segments(&mut self, count: u32) -> Result<(), PluginError> {
        self.segments += u64::from(count);
        check_limit("data and element segments", self.segments, SEGMENTS_MAX)
    }

    fn add_function(&mut self, body: &FunctionBody<'_>) -> Result<(), PluginError> {
        let bytes = body.as_bytes().len() as u64;
        self.functions += 1;
        self.code_bytes += bytes;
        check_limit("functions", self.functions, FUNCTIONS_MAX)?;
        check_limit("bytes in one function", bytes, FUNCTION_BYTES_MAX)?;
        check_limit("bytes of code", self.code_bytes, CODE_BYTES_MAX)?;
        let mut locals = 0;
        for group in body.get_locals_reader().map_err(malformed_error)? {
            locals += u64::from(group.map_err(malformed_error)?.0);
        }
        self.locals += locals;
        check_limit("locals in one function", locals, FUNCTION_LOCALS_MAX)?;
        check_limit("locals in all functions", self.locals, LOCALS_MAX)?;
        self.cost += bytes * (1 + locals / LOCALS_PER_COST);
        check_limit("bytes of code, weighted by the locals of each function", self.cost, COMPILE_COST_MAX)
    }
}

fn check_limit(what: &'static str, count: u64, limit: u64) -> Result<(), PluginError> {
    if count <= limit { Ok(()) } else { Err(PluginError::TooComplex { what, count, limit }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complexity_error(text: &str) -> String {
        check_complexity(&wat::parse_str(text).unwrap()).unwrap_err().to_string()
    }

    /// Returns a component with `functions` functions of `locals` locals each, which are encoded in three bytes.
    fn component_with_locals(functions: usize, locals: usize) -> Vec<u8> {
        let function = format!("(func (local {}))", "i32 ".repeat(locals));
        wat::parse_str(format!("(component (core module {}))", function.repeat(functions))).unwrap()
    }

    #[test]
    fn imports_and_exports_of_the_outermost_component_are_read() {
        let text = r#"(component
            (import "a:b/c@1.0.0" (instance))
            (import "f" (func))
            (import "t" (type (sub resource)))
            (component (import "inner" (func $g)) (export "inner-too" (func $g)))
            (instance $i)
            (export "d:e/f" (instance $i)))"#;
        let face = check_complexity(&wat::parse_str(text).unwrap()).unwrap();
        assert_eq!(face.exports, ["d:e/f"]);
        let imports: Vec<_> = face.imports.iter().map(|import| (import.name.as_str(), import.is_interface)).collect();
        assert_eq!(imports, [("a:b/c@1.0.0", true), ("f", false)]);
    }

    #[test]
    fn repeated_locals_count_once_per_repetition() {
        let most = usize::try_from(FUNCTION_LOCALS_MAX).unwrap();
        check_complexity(&component_with_locals(1, most)).unwrap();
        let error = check_complexity(&component_with_locals(1, most + 1)).unwrap_err().to_string();
        assert!(error.contains("20001 locals in one function"), "{error}");
        let functions = usize::try_from(LOCALS_MAX / FUNCTION_LOCALS_MAX).unwrap();
        let wasm = component_with_locals(functions + 1, most);
        assert!(wasm.len() < 10_000, "it is small: {} bytes", wasm.len());
        let error = check_complexity(&wasm).unwrap_err().to_string();
        assert!(error.contains("4020000 locals in all functions"), "{error}");
    }

    #[test]
    fn components_nested_too_deep_are_refused() {
        let nested = |levels: usize| format!("{}{}", "(component ".repeat(levels), ")".repeat(levels));
        let most = usize::try_from(COMPONENT_DEPTH_MAX).unwrap();
        check_complexity(&wat::parse_str(nested(most)).unwrap()).unwrap();
        assert!(complexity_error(&nested(most + 1)).contains("levels of nested components"));
    }

    #[test]
    fn tables_and_memories_past_the_pooling_limits_are_refused_by_name() {
        let check_module =
            |fields: &str| check_complexity(&wat::parse_str(format!("(component (core module {fields}))")).unwrap());
        let tables = |count: u32| "(table 0 funcref)".repeat(usize::try_from(count).unwrap());
        check_module(&tables(TABLES_PER_MODULE_MAX)).unwrap();
        let refusal = |fields: &str| check_module(fields).unwrap_err().to_string();
        assert!(refusal(&tables(TABLES_PER_MODULE_MAX + 1)).contains("9 tables in one module"));
        check_module(&format!("(table {TABLE_ELEMENTS_MAX} funcref)")).unwrap();
        assert!(refusal("(table 0 funcref) (table 100001 funcref)").contains("100001 elements in one table"));
        check_module("(memory 1)").unwrap();
        assert!(refusal("(memory 1) (memory 1)").contains("2 memories in one module"));
    }

    #[test]
    fn too_many_functions_or_modules_are_refused() {
        let functions = format!("(component (core module {}))", "(func)".repeat(100_001));
        assert!(complexity_error(&functions).contains("100001 functions"), "{}", complexity_error(&functions));
        let modules = format!("(component {})", "(core module)".repeat(129));
        assert!(complexity_error(&modules).contains("129 core modules"));
    }
}
