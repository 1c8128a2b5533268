//! The shader under construction: its bindings, functions, statements and dispatch size.

use std::fmt::Write as _;

use saggar_tensor::DType;

use super::unary::narrow;
use super::{Binding, Shader, ShaderError, Tuning, WORKGROUPS_MAX, library};
use crate::program::{Kernel, Place, Program, Value, ValueId};
use crate::target::Class;

/// Collects a shader's parts; [`Writer::finish`] puts them together.
pub(super) struct Writer<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// Which variants to choose, and what there is to choose from.
    pub(super) tuning: Tuning,
    bindings: Vec<(Binding, &'static str)>,
    globals: String,
    body: String,
    depth: usize,
    lanes: u32,
    workgroups: [u32; 3],
}

impl<'a> Writer<'a> {
    pub(super) fn new(program: &'a Program, kernel: &'a Kernel, tuning: Tuning) -> Writer<'a> {
        Writer {
            program,
            kernel,
            tuning,
            bindings: Vec::new(),
            globals: String::new(),
            body: String::new(),
            depth: 1,
            lanes: 64,
            workgroups: [0, 1, 1],
        }
    }

    /// The value behind `id`.
    pub(super) fn value(&self, id: ValueId) -> &'a Value {
        &self.program.values[id.index()]
    }

    /// Dimensions of the value behind `id`.
    pub(super) fn dims(&self, id: ValueId) -> &'a [usize] {
        self.value(id).descriptor.shape.dims()
    }

    /// The WGSL type that carries elements of `dtype`.
    pub(super) fn scalar(&self, dtype: DType) -> Result<&'static str, ShaderError> {
        match dtype {
            DType::F32 | DType::F16 => Ok("f32"),
            DType::I32 | DType::I8 => Ok("i32"),
            DType::U32 | DType::U8 => Ok("u32"),
            DType::I64 if self.tuning.wide_integers => Ok("i64"),
            DType::U64 if self.tuning.wide_integers => Ok("u64"),
            DType::I64 | DType::U64 => Err(ShaderError::DType { kernel: self.kernel.label.clone(), dtype }),
        }
    }

    /// Element `index` (a `u32` expression) of a value, as a place that can be read and assigned.
    pub(super) fn element(&mut self, id: ValueId, index: &str) -> Result<String, ShaderError> {
        let value = self.value(id);
        let dtype = value.descriptor.dtype;
        let (binding, offset) = match value.place {
            Place::Input(i) => (Binding::Input(i), 0),
            Place::Variable(i) => (Binding::Variable(i), 0),
            Place::Constant(i) => (Binding::Constant(i), 0),
            Place::Output(i) => (Binding::Output(i), 0),
            Place::Slab { slab, offset_bytes } => {
                (Binding::Slab(slab), offset_bytes / Class::of_words(dtype).element_bytes(dtype))
            }
        };
        let scalar = self.scalar(dtype)?;
        let known = self.bindings.iter().position(|(other, _)| *other == binding);
        let number = known.unwrap_or_else(|| {
            self.bindings.push((binding, scalar));
            self.bindings.len() - 1
        });
        Ok(match (offset, index) {
            (0, _) => format!("b{number}[{index}]"),
            (_, "0u") => format!("b{number}[{offset}u]"),
            _ => format!("b{number}[{offset}u + {index}]"),
        })
    }

    /// Assigns `text`, computed in the WGSL type of the value's elements, to element `index`: rounded or cut to them.
    pub(super) fn store(&mut self, id: ValueId, index: &str, text: &str) -> Result<(), ShaderError> {
        let element = self.element(id, index)?;
        let text = narrow(self.value(id).descriptor.dtype, text.to_owned());
        self.line(format!("{element} = {text};"));
        Ok(())
    }

    /// A statement, or several lines of them without indentation of their own.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        for line in text.as_ref().lines() {
            let _ = writeln!(self.body, "{:indent$}{line}", "", indent = self.depth * 4);
        }
    }

    /// A statement that opens a block: `text {`.
    pub(super) fn open(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        self.line(if text.is_empty() { "{".to_owned() } else { format!("{text} {{") });
        self.depth += 1;
    }

    /// Closes the block opened last.
    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// A loop of `name` from 0 to `count`.
    pub(super) fn open_loop(&mut self, name: &str, count: usize) {
        self.open(format!("for (var {name} = 0u; {name} < {count}u; {name} += 1u)"));
    }

    /// A declaration at module scope.
    pub(super) fn global(&mut self, text: impl AsRef<str>) {
        self.globals.push_str(text.as_ref());
        self.globals.push('\n');
    }

    /// Writes a function at module scope; `statements` writes its body.
    pub(super) fn function(
        &mut self,
        signature: &str,
        statements: impl FnOnce(&mut Self) -> Result<(), ShaderError>,
    ) -> Result<(), ShaderError> {
        let body = std::mem::take(&mut self.body);
        let depth = std::mem::replace(&mut self.depth, 1);
        let result = statements(self);
        let text = std::mem::replace(&mut self.body, body);
        self.depth = depth;
        self.global(format!("fn {signature} {{\n{text}}}\n"));
        result
    }

    /// Sets the dispatch to `groups` workgroups of `lanes` and names a workgroup's number `tile`.
    ///
    /// The dispatch may have more workgroups than asked for, by less than one row of the folded second dimension:
    /// statements must check `tile` or what they compute from it.
    pub(super) fn dispatch(&mut self, groups: usize, lanes: u32) {
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        self.lanes = lanes;
        self.workgroups = if groups <= WORKGROUPS_MAX {
            [groups, 1, 1]
        } else {
            let rows = groups.div_ceil(WORKGROUPS_MAX);
            [groups.div_ceil(rows), rows, 1]
        };
        if self.workgroups[1] == 1 {
            self.line("let tile = group.x;");
        } else {
            let row = self.workgroups[0];
            self.line(format!("let tile = group.y * {row}u + group.x;"));
        }
    }

    /// One invocation for each of `count` results: names its number `id` and returns where there is no such result.
    pub(super) fn each(&mut self, count: usize) {
        // Small grids spread over more workgroups, so that every core has some.
        let lanes = if count >= 1 << 16 { 256 } else { 64 };
        self.dispatch(count.div_ceil(lanes as usize), lanes);
        self.line(format!("let id = tile * {lanes}u + lane;"));
        self.line(format!("if (id >= {count}u) {{ return; }}"));
    }

    /// Names the coordinates of `linear`, a row-major index over `dims`, `{prefix}0`, `{prefix}1`, ... where `wanted`.
    /// A dimension of size 1 has the coordinate `0u`. No dimension may be 0.
    pub(super) fn coordinates(&mut self, dims: &[usize], linear: &str, prefix: &str, wanted: &[bool]) -> Vec<String> {
        let mut names = vec!["0u".to_owned(); dims.len()];
        let mut stride = 1;
        let outermost = dims.iter().position(|&dim| dim > 1);
        for axis in (0..dims.len()).rev() {
            if dims[axis] == 1 {
                continue;
            }
            names[axis] = format!("{prefix}{axis}");
            if wanted.get(axis).copied().unwrap_or(true) {
                let mut text = linear.to_owned();
                if stride > 1 {
                    text = format!("{text} / {stride}u");
                }
                if outermost != Some(axis) {
                    let dim = dims[axis];
                    text = if stride > 1 { format!("({text}) % {dim}u") } else { format!("{text} % {dim}u") };
                }
                self.line(format!("let {} = {text};", names[axis]));
            }
            stride *= dims[axis];
        }
        names
    }

    /// The shader.
    pub(super) fn finish(self) -> Shader {
        let mut source = String::new();
        for (number, (_, scalar)) in self.bindings.iter().enumerate() {
            let _ =
                writeln!(source, "@group(0) @binding({number}) var<storage, read_write> b{number}: array<{scalar}>;");
        }
        source.push('\n');
        let main = format!(
            "@compute @workgroup_size({})\nfn main(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_index) lane: u32) {{\n{}}}\n",
            self.lanes, self.body
        );
        source.push_str(&library::functions(&[&self.globals, &main]));
        source.push_str(&self.globals);
        source.push_str(&main);
        let bindings = self.bindings.into_iter().map(|(binding, _)| binding).collect();
        Shader { source, bindings, workgroups: self.workgroups }
    }
}
