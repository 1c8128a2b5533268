//! A naive executor of programs, for tests of the compiler and of devices. It runs the reference interpreter's
//! operators on whole tensors, in byte buffers laid out by the buffer assignment.
//!
//! It checks what devices rely on: scratch memory starts as garbage, and a kernel reads no memory that it writes,
//! except at the current position of an in-place update.
//!
//! # Panics
//! All functions here panic if a program violates an invariant of [`saggar_compile::program`].

mod body;
mod compare;

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{Descriptor, GraphPort};

pub use compare::compare_with_interpreter;
use saggar_compile::program::{KernelBody, Program, ValueId, ValueLocation};

/// Initial content of scratch memory and new outputs, before a kernel writes them.
const GARBAGE: u8 = 0xA5;

/// The byte buffers of one run.
struct ReferenceMemory<'a> {
    program: &'a Program,
    inputs: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    slabs: Vec<Vec<u8>>,
}

/// Runs `program`, updates `variables`, and returns the outputs in the program's order.
pub fn run_program(program: &Program, inputs: &[InterpTensor], variables: &mut [InterpTensor]) -> Vec<InterpTensor> {
    let bytes = |values: &[InterpTensor]| values.iter().map(InterpTensor::to_bytes).collect();
    let mut memory = ReferenceMemory {
        program,
        inputs: bytes(inputs),
        variables: bytes(variables),
        outputs: program.outputs.iter().map(|port| vec![GARBAGE; port.descriptor.bytes()]).collect(),
        slabs: program.slabs.iter().map(|slab| vec![GARBAGE; slab.bytes]).collect(),
    };
    for kernel in &program.kernels {
        check_overlaps(program, &kernel.body);
        for (value, result) in body::kernel_results(&memory, &kernel.body) {
            memory.write_value(value, &result);
        }
    }
    let value = |(port, bytes): (&GraphPort, &Vec<u8>)| {
        InterpTensor::from_bytes(port.descriptor.clone(), bytes).expect("buffers have their port's size")
    };
    let outputs = program.outputs.iter().zip(&memory.outputs).map(value).collect();
    let written: Vec<InterpTensor> = program.variables.iter().zip(&memory.variables).map(value).collect();
    for (at, (variable, value)) in variables.iter_mut().zip(written).enumerate() {
        let declared = program.written_variables.binary_search(&(at as u32)).is_ok();
        assert!(declared || *variable == value, "variable {at} is written and not declared as written");
        *variable = value;
    }
    outputs
}

impl ReferenceMemory<'_> {
    /// Returns the value's elements as a tensor of the value's shape.
    fn read_value(&self, value: ValueId) -> InterpTensor {
        let described = &self.program.values[value.index()];
        let descriptor = described.descriptor.clone();
        let bytes = match described.place {
            ValueLocation::Input(input) => self.inputs[input as usize].clone(),
            ValueLocation::Variable(variable) => self.variables[variable as usize].clone(),
            ValueLocation::Output(output) => self.outputs[output as usize].clone(),
            ValueLocation::Constant(constant) => self.program.constants[constant as usize].1.to_vec(),
            ValueLocation::Slab { slab, offset_bytes } => {
                let step = self.program.slabs[slab as usize].class.element_bytes(descriptor.dtype);
                let elements = self.slabs[slab as usize][offset_bytes..].chunks(step).take(descriptor.shape.elements());
                elements.flat_map(|element| &element[..descriptor.dtype.bytes()]).copied().collect()
            }
        };
        InterpTensor::from_bytes(descriptor, &bytes).expect("a value has its descriptor's size")
    }

    fn write_value(&mut self, value: ValueId, result: &InterpTensor) {
        let described = &self.program.values[value.index()];
        let size = described.descriptor.dtype.bytes();
        assert_eq!(described.descriptor.dtype, result.descriptor().dtype, "a store keeps the data type");
        let bytes = result.to_bytes();
        assert_eq!(described.descriptor.bytes(), bytes.len(), "a store writes the whole value");
        match described.place {
            ValueLocation::Variable(variable) => self.variables[variable as usize].copy_from_slice(&bytes),
            ValueLocation::Output(output) => self.outputs[output as usize].copy_from_slice(&bytes),
            ValueLocation::Slab { slab, offset_bytes } => {
                let step = self.program.slabs[slab as usize].class.element_bytes(described.descriptor.dtype);
                let elements = self.slabs[slab as usize][offset_bytes..].chunks_mut(step);
                for (element, bytes) in elements.zip(bytes.chunks(size)) {
                    element[..size].copy_from_slice(bytes);
                }
            }
            ValueLocation::Input(_) | ValueLocation::Constant(_) => panic!("{:?} is written", described.place),
        }
    }
}

fn check_overlaps(program: &Program, body: &KernelBody) {
    let reads = body.read_values();
    let writes = body.written_values();
    for (at, &written) in writes.iter().enumerate() {
        for &other in reads.iter().chain(&writes[at + 1..]) {
            let updated = reads.contains(&other) && is_in_place_update(program, body, [written, other]);
            assert!(updated || !overlaps(program, written, other), "{written:?} lies on {other:?} in {body:?}");
        }
    }
}

/// Returns whether a value overwrites an operand element by element or tile by tile: a variable, or scratch memory.
fn is_in_place_update(program: &Program, body: &KernelBody, [written, read]: [ValueId; 2]) -> bool {
    let [to, from] = [written, read].map(|value| &program.values[value.index()]);
    let is_same = match to.place {
        ValueLocation::Variable(_) => written == read,
        ValueLocation::Slab { .. } => to.place == from.place && to.descriptor.bytes() == from.descriptor.bytes(),
        ValueLocation::Input(_) | ValueLocation::Constant(_) | ValueLocation::Output(_) => false,
    };
    let mut in_tiles = false;
    if let KernelBody::MaxPool2dGrad { pool, input, gradient, .. } = body {
        let dims = from.descriptor.shape.dims();
        in_tiles = *input == read && *gradient != read && pool.is_tiling([dims[1], dims[2]]);
    }
    is_same && (in_tiles || body::reads_in_place(body, read))
}

fn overlaps(program: &Program, a: ValueId, b: ValueId) -> bool {
    let [a, b] = [a, b].map(|value| &program.values[value.index()]);
    match (a.place, b.place) {
        (
            ValueLocation::Slab { slab, offset_bytes },
            ValueLocation::Slab { slab: other, offset_bytes: other_offset },
        ) => {
            let class = program.slabs[slab as usize].class;
            let [a_bytes, b_bytes] = [a, b].map(|value| {
                let Descriptor { dtype, shape } = &value.descriptor;
                shape.elements() * class.element_bytes(*dtype)
            });
            slab == other && offset_bytes < other_offset + b_bytes && other_offset < offset_bytes + a_bytes
        }
        (place, other) => place == other,
    }
}
