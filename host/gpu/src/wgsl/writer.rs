//! The shader under construction: bindings, functions, statements and dispatch size.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use saggar_tensor::DType;

use super::library;
use super::shader::{
    BINDINGS_MAX, FIRST_GROUP, Shader, ShaderBinding, ShaderCandidate, ShaderError, ShaderResource, ShaderTuning,
    WORKGROUPS_MAX,
};
use super::unary::narrow_to_dtype;
use super::wide_integer::{self, WideIntegers};
use saggar_compile::cost::{KernelCost, kernel_cost};
use saggar_compile::program::{Kernel, Program, ProgramValue, ValueId, ValueLocation};
use saggar_compile::target::StorageClass;

/// Returns a grid of at least `groups` workgroups.
fn fold_grid(groups: u32) -> [u32; 2] {
    let rows = groups.div_ceil(WORKGROUPS_MAX).max(1);
    [groups.div_ceil(rows), rows]
}

/// 16-bit floats in memory, as scalars and as vectors.
const HALF: &str = "f16";
const HALVES: &str = "vec4<f16>";

/// Collects a shader's parts; [`ShaderWriter::finish`] assembles them.
pub(super) struct ShaderWriter<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// Device properties that decide between variants.
    pub(super) tuning: ShaderTuning,
    bindings: Vec<(ShaderBinding, &'static str)>,
    globals: String,
    body: String,
    /// For each open block, how often it runs per run of the enclosing block.
    blocks: Vec<usize>,
    /// Most loop iterations in one invocation, all loops together.
    iterations: usize,
    lanes: u32,
    workgroups: [u32; 3],
    slices: u32,
    /// Operations of the kernel, or elements that it touches if these are more.
    operations: u64,
    /// Whether this is a kernel's second pass.
    is_second_pass: bool,
    /// Bytes that the kernel keeps between two passes.
    pass_buffer_bytes: usize,
    /// WGSL extensions in use.
    enabled: BTreeSet<&'static str>,
    /// Whether statements use the subgroup variables.
    names_subgroups: bool,
    /// Name of the requested candidate, if any.
    candidate: Option<&'a str>,
    /// All candidates, if the kernel has several.
    candidates: Vec<ShaderCandidate>,
}

/// The buffer between the two passes of a kernel, by its binding number.
pub(super) enum PassBuffer {
    /// First pass: the buffer is written.
    Written(usize),
    /// Second pass: the buffer is read.
    Read(usize),
}

/// How a resource is bound, by its (first) binding number.
enum ResourceBinding {
    /// By one binding.
    Whole(usize),
    /// By several bindings, consecutive windows of the resource.
    Windows(usize),
}

impl<'a> ShaderWriter<'a> {
    pub(super) fn new(
        program: &'a Program,
        kernel: &'a Kernel,
        tuning: ShaderTuning,
        way: Option<&'a str>,
    ) -> ShaderWriter<'a> {
        let KernelCost { operations, bytes } = kernel_cost(program, kernel);
        ShaderWriter {
            program,
            kernel,
            tuning,
            bindings: Vec::new(),
            globals: String::new(),
            body: String::new(),
            blocks: vec![1],
            iterations: 0,
            lanes: 64,
            workgroups: [0, 1, 1],
            slices: 1,
            operations: operations.max(bytes / 4),
            is_second_pass: false,
            pass_buffer_bytes: 0,
            enabled: BTreeSet::new(),
            names_subgroups: false,
            candidate: way,
            candidates: Vec::new(),
        }
    }

    /// Returns the index in `ways` of the requested candidate, or 0 if it is not in the list.
    pub(super) fn select_candidate(&mut self, ways: Vec<ShaderCandidate>) -> usize {
        self.candidates = ways;
        self.candidates.iter().position(|way| Some(way.name.as_str()) == self.candidate).unwrap_or(0)
    }

    /// Returns the candidates of the kernel.
    pub(super) fn into_candidates(self) -> Vec<ShaderCandidate> {
        self.candidates
    }

    /// Enables a WGSL extension in the shader.
    pub(super) fn enable(&mut self, extension: &'static str) {
        self.enabled.insert(extension);
    }

    /// Enables subgroups. Names the number of a lane's subgroup `subgroup`, and the lane's number in it
    /// `lane_of_subgroup`.
    pub(super) fn enable_subgroups(&mut self) {
        self.names_subgroups = true;
    }

    /// Returns whether a value's elements are 16-bit floats, in memory too.
    pub(super) fn is_half(&self, id: ValueId) -> bool {
        self.storage_class(self.value(id).descriptor.dtype) == StorageClass::F16
    }

    /// Returns the writer of the second pass, or `None` if the kernel has one pass.
    pub(super) fn second_pass(&self) -> Option<ShaderWriter<'a>> {
        let first = !self.is_second_pass && self.pass_buffer_bytes > 0;
        first.then(|| ShaderWriter {
            is_second_pass: true,
            ..ShaderWriter::new(self.program, self.kernel, self.tuning, self.candidate)
        })
    }

    /// Returns the buffer of `elements` words of type `kind` between the two passes. Must be called in both passes.
    pub(super) fn pass_buffer(&mut self, elements: usize, kind: &'static str) -> PassBuffer {
        self.pass_buffer_bytes = elements * 4;
        let window = ShaderBinding {
            resource: ShaderResource::PassBuffer,
            offset_bytes: 0,
            bytes: Some(self.pass_buffer_bytes),
        };
        self.bindings.push((window, kind));
        let number = self.bindings.len() - 1;
        if self.is_second_pass { PassBuffer::Read(number) } else { PassBuffer::Written(number) }
    }

    /// Returns the value with this ID.
    pub(super) fn value(&self, id: ValueId) -> &'a ProgramValue {
        &self.program.values[id.index()]
    }

    /// Returns the dimensions of the value with this ID.
    pub(super) fn dims(&self, id: ValueId) -> &'a [usize] {
        self.value(id).descriptor.shape.dims()
    }

    /// Returns the WGSL type in which elements of `dtype` are computed.
    pub(super) fn scalar_type(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::F32 | DType::F16 => "f32",
            DType::I32 | DType::I8 => "i32",
            DType::U32 | DType::U8 => "u32",
            DType::I64 | DType::U64 if self.wide_integers() == WideIntegers::Words => wide_integer::WORDS,
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }

    /// Returns how shaders represent 64-bit integers.
    pub(super) fn wide_integers(&self) -> WideIntegers {
        WideIntegers::from_tuning(&self.tuning)
    }

    /// Returns the storage class of `dtype`.
    fn storage_class(&self, dtype: DType) -> StorageClass {
        StorageClass::for_wgsl(dtype, self.tuning.half_storage)
    }

    /// Returns the WGSL type of elements of `dtype` in memory.
    fn storage_type(&self, dtype: DType) -> &'static str {
        if self.storage_class(dtype) == StorageClass::F16 { HALF } else { self.scalar_type(dtype) }
    }

    /// Returns an expression that reads element `index` (a `u32` expression) of a value.
    pub(super) fn element(&mut self, id: ValueId, index: &str) -> String {
        let (resource, index) = self.locate_element(id, index);
        let element = match resource {
            ResourceBinding::Whole(number) => format!("b{number}[{index}]"),
            ResourceBinding::Windows(number) => format!("read{number}({index})"),
        };
        let is_half = self.is_half(id);
        if is_half { format!("f32({element})") } else { element }
    }

    /// Assigns `text`, an element in its memory form, to element `index`.
    pub(super) fn assign(&mut self, id: ValueId, index: &str, text: &str) {
        let (resource, index) = self.locate_element(id, index);
        // Already rounded, so this conversion changes nothing.
        let is_half = self.is_half(id);
        let text = if is_half { format!("f16({text})") } else { text.to_owned() };
        match resource {
            ResourceBinding::Whole(number) => self.line(format!("b{number}[{index}] = {text};")),
            ResourceBinding::Windows(number) => self.line(format!("write{number}({index}, {text});")),
        }
    }

    /// Assigns `text`, computed in the WGSL type of the value's elements, to element `index`, after rounding or
    /// narrowing it.
    pub(super) fn store(&mut self, id: ValueId, index: &str, text: &str) {
        let text = narrow_to_dtype(self.value(id).descriptor.dtype, text.to_owned());
        self.assign(id, index, &text)
    }

    /// Returns whether `resources` more resources can be bound as vectors, in addition to the existing bindings.
    pub(super) fn can_bind_vectors(&self, resources: usize) -> bool {
        self.bindings.len() + resources <= BINDINGS_MAX
    }

    /// Returns whether a float value can be bound as vectors of four: by one binding, and aligned to a vector.
    pub(super) fn has_vectors(&self, id: ValueId) -> bool {
        let (_, offset, bytes) = self.resource_of(id);
        let dtype = self.value(id).descriptor.dtype;
        dtype.is_float() && offset.is_multiple_of(4) && bytes <= self.tuning.window_bytes && bytes >= 16
    }

    /// Returns four elements of a value that can be bound as vectors, starting at `index`, a `u32` expression that is a
    /// multiple of four.
    pub(super) fn vector(&mut self, id: ValueId, index: &str) -> String {
        let vector = self.memory_vector(id, index);
        if self.is_half(id) { format!("vec4<f32>({vector})") } else { vector }
    }

    /// As [`Self::vector`], but half-precision elements stay halves.
    pub(super) fn memory_vector(&mut self, id: ValueId, index: &str) -> String {
        let (binding, offset, _) = self.resource_of(id);
        let number = self.bind_whole(binding, if self.is_half(id) { HALVES } else { "vec4<f32>" });
        match offset {
            0 => format!("b{number}[({index}) / 4u]"),
            _ => format!("b{number}[{}u + ({index}) / 4u]", offset / 4),
        }
    }

    /// Returns the resource that holds a value's elements, the byte offset of the first one, and the bytes of all.
    fn resource_of(&self, id: ValueId) -> (ShaderResource, usize, usize) {
        let value = self.value(id);
        let dtype = value.descriptor.dtype;
        let element_bytes = self.storage_class(dtype).element_bytes(dtype);
        // Bindings consist of whole words.
        let whole_bytes = (value.descriptor.shape.elements() * element_bytes).next_multiple_of(4);
        match value.place {
            ValueLocation::Input(i) => (ShaderResource::Input(i), 0, whole_bytes),
            ValueLocation::Variable(i) => (ShaderResource::Variable(i), 0, whole_bytes),
            ValueLocation::Constant(i) => (ShaderResource::Constant(i), 0, whole_bytes),
            ValueLocation::Output(i) => (ShaderResource::Output(i), 0, whole_bytes),
            ValueLocation::Slab { slab, offset_bytes } => {
                (ShaderResource::Slab(slab), offset_bytes / element_bytes, self.program.slabs[slab as usize].bytes)
            }
        }
    }

    /// Returns the binding of a value's elements, and the expression of an element's index in it.
    fn locate_element(&mut self, id: ValueId, index: &str) -> (ResourceBinding, String) {
        let dtype = self.value(id).descriptor.dtype;
        let element_bytes = self.storage_class(dtype).element_bytes(dtype);
        let (binding, offset, bytes) = self.resource_of(id);
        let scalar = self.storage_type(dtype);
        let index = match (offset, index) {
            (0, _) => index.to_owned(),
            (_, "0u") => format!("{offset}u"),
            _ => format!("{offset}u + {index}"),
        };
        (self.bind(binding, scalar, bytes, element_bytes), index)
    }

    /// Returns the bindings of a resource, and adds them if they are new.
    fn bind(
        &mut self,
        binding: ShaderResource,
        scalar: &'static str,
        bytes: usize,
        element_bytes: usize,
    ) -> ResourceBinding {
        let window_bytes = self.tuning.window_bytes;
        if bytes <= window_bytes {
            return ResourceBinding::Whole(self.bind_whole(binding, scalar));
        }
        if let Some(number) = self.bindings.iter().position(|(window, _)| window.resource == binding) {
            return ResourceBinding::Windows(number);
        }
        let first = self.bindings.len();
        for offset_bytes in (0..bytes).step_by(window_bytes) {
            let visible_bytes = window_bytes.min(bytes - offset_bytes);
            self.bindings.push((ShaderBinding { resource: binding, offset_bytes, bytes: Some(visible_bytes) }, scalar));
        }
        let (elements, count) = (window_bytes / element_bytes, self.bindings.len() - first);
        let choose = |chosen: &dyn Fn(usize, String) -> String| -> String {
            let at = |window: usize| match window {
                0 => "i".to_owned(),
                _ => format!("i - {}u", window * elements),
            };
            let last = chosen(first + count - 1, at(count - 1));
            let earlier = (0..count - 1).map(|window| {
                format!("    if (i < {}u) {{ {} }}\n", (window + 1) * elements, chosen(first + window, at(window)))
            });
            earlier.collect::<String>() + "    " + &last + "\n"
        };
        let read = choose(&|number, at| format!("return b{number}[{at}];"));
        let write = choose(&|number, at| format!("b{number}[{at}] = value; return;"));
        self.global(format!("fn read{first}(i: u32) -> {scalar} {{\n{read}}}\n"));
        self.global(format!("fn write{first}(i: u32, value: {scalar}) {{\n{write}}}\n"));
        ResourceBinding::Windows(first)
    }

    /// Returns the number of the single binding of a resource as an array of `kind`, and adds it if it is new.
    fn bind_whole(&mut self, binding: ShaderResource, kind: &'static str) -> usize {
        let known = self.bindings.iter().position(|(window, known)| window.resource == binding && *known == kind);
        known.unwrap_or_else(|| {
            self.bindings.push((ShaderBinding { resource: binding, offset_bytes: 0, bytes: None }, kind));
            self.bindings.len() - 1
        })
    }

    /// Writes a statement, or several lines of statements without indentation.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        for line in text.as_ref().lines() {
            let _ = writeln!(self.body, "{:indent$}{line}", "", indent = self.blocks.len() * 4);
        }
    }

    /// Writes a statement that opens a block: `text {`.
    pub(super) fn open(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        self.line(if text.is_empty() { "{".to_owned() } else { format!("{text} {{") });
        self.blocks.push(1);
    }

    /// Opens a loop whose body runs at most `iterations` times.
    pub(super) fn open_for(&mut self, text: impl AsRef<str>, iterations: usize) {
        self.count_iterations(iterations);
        self.open(text);
        if let Some(innermost) = self.blocks.last_mut() {
            *innermost = iterations;
        }
    }

    /// Counts the iterations of a loop inside a function that the next statement calls.
    pub(super) fn count_iterations(&mut self, iterations: usize) {
        let around = self.blocks.iter().fold(1usize, |product, &times| product.saturating_mul(times));
        self.iterations = self.iterations.saturating_add(around.saturating_mul(iterations));
    }

    /// Closes the block opened last.
    pub(super) fn close(&mut self) {
        self.blocks.pop();
        self.line("}");
    }

    /// Opens a loop of `name` from 0 to `count`.
    pub(super) fn open_loop(&mut self, name: &str, count: usize) {
        self.open_for(format!("for (var {name} = 0u; {name} < {count}u; {name} += 1u)"), count);
    }

    /// Writes a declaration at module scope.
    pub(super) fn global(&mut self, text: impl AsRef<str>) {
        self.globals.push_str(text.as_ref());
        self.globals.push('\n');
    }

    /// Writes a function at module scope; `statements` writes its body.
    pub(super) fn function(&mut self, signature: &str, statements: impl FnOnce(&mut Self)) {
        let body = std::mem::take(&mut self.body);
        let blocks = std::mem::replace(&mut self.blocks, vec![1]);
        statements(self);
        let text = std::mem::replace(&mut self.body, body);
        self.blocks = blocks;
        self.global(format!("fn {signature} {{\n{text}}}\n"));
    }

    /// Sets the dispatch to `groups` workgroups of `lanes` and names the workgroup's number `tile`.
    ///
    /// The dispatch can have more workgroups than requested, by less than one row of the folded second dimension:
    /// statements must check `tile` or the values computed from it.
    pub(super) fn dispatch(&mut self, groups: usize, lanes: u32) {
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        self.lanes = lanes;
        let slices = u32::try_from(self.operations.div_ceil(self.tuning.operations_max))
            .unwrap_or(u32::MAX)
            .clamp(1, groups.max(1));
        let [across, rows] = fold_grid(groups.div_ceil(slices));
        self.workgroups = [across, rows, 1];
        // The surplus workgroups of a folded slice do the first part of the next slice's work.
        self.slices = groups.div_ceil((across * rows).max(1)).max(1);
        let number = if rows == 1 { "group.x".to_owned() } else { format!("group.y * {across}u + group.x") };
        if self.slices == 1 {
            self.line(format!("let tile = {number};"));
        } else {
            self.global(format!("override {FIRST_GROUP}: u32 = 0u;\n"));
            self.line(format!("let tile = {FIRST_GROUP} + {number};"));
        }
    }

    /// Starts one invocation for each of `count` results. Names its number `id`, and returns if `id` is out of range.
    pub(super) fn invocation_per_element(&mut self, count: usize) {
        // Small grids use smaller workgroups, so that every core gets some.
        let lanes = if count >= 1 << 16 { 256 } else { 64 };
        self.dispatch(count.div_ceil(lanes as usize), lanes);
        self.line(format!("let id = tile * {lanes}u + lane;"));
        self.line(format!("if (id >= {count}u) {{ return; }}"));
    }

    /// Names the coordinates of `linear`, a row-major index over `dims`: `{prefix}0`, `{prefix}1`, ..., for the
    /// dimensions in `wanted`. The coordinate of a dimension of size 1 is `0u`. No dimension can be 0.
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

    /// Returns the finished shader.
    pub(super) fn finish(self) -> Result<Shader, ShaderError> {
        let limit = self.tuning.iterations_max;
        if self.iterations > limit {
            let (kernel, iterations) = (self.kernel.label.clone(), self.iterations);
            return Err(ShaderError::Iterations { kernel, iterations, limit });
        }
        let mut source = String::new();
        let mut enabled = self.enabled;
        if self.bindings.iter().any(|(_, kind)| [HALF, HALVES].contains(kind)) {
            enabled.insert("f16");
        }
        enabled.iter().for_each(|extension| source.push_str(&format!("enable {extension};\n")));
        if !enabled.is_empty() {
            source.push('\n');
        }
        for (number, (_, scalar)) in self.bindings.iter().enumerate() {
            let _ =
                writeln!(source, "@group(0) @binding({number}) var<storage, read_write> b{number}: array<{scalar}>;");
        }
        source.push('\n');
        let subgroups = match self.names_subgroups {
            true => ", @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane_of_subgroup: u32",
            false => "",
        };
        let main = format!(
            "@compute @workgroup_size({})\nfn main(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_index) lane: u32{subgroups}) {{\n{}}}\n",
            self.lanes, self.body
        );
        source.push_str(&library::called_functions(&[&self.globals, &main]));
        source.push_str(&self.globals);
        source.push_str(&main);
        let bindings = self.bindings.into_iter().map(|(window, _)| window).collect();
        let ShaderWriter { workgroups, slices, pass_buffer_bytes: parts_bytes, .. } = self;
        Ok(Shader { source, bindings, workgroups, slices, pass_buffer_bytes: parts_bytes })
    }
}
