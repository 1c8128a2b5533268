use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, verify};

use super::*;
use crate::compile;
use crate::program::{ValueId, ValueLocation};

/// Compiles two products and a map between them, without constants.
fn program(target: &CompileTarget) -> Program {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([4, 4]).unwrap())).unwrap();
    let first = builder.matmul(x, x).unwrap();
    let largest = builder.reduce_max(first, &[1], true).unwrap();
    let centred = builder.sub(first, largest).unwrap();
    let second = builder.matmul(centred, x).unwrap();
    builder.output("y", second).unwrap();
    compile(&verify(builder.finish()).unwrap(), target).unwrap()
}

/// Returns the message of the check for a program that `change` has broken.
fn check_failure_after(change: impl Fn(&mut Program)) -> &'static str {
    let target = CompileTarget::gpu();
    let mut program = program(&target);
    change(&mut program);
    match check(&program, &target, &InterruptCheck::never()) {
        Err(CompileError::Internal { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_program_is_rejected() {
    assert_eq!(
        check_failure_after(|program| drop(program.kernels.remove(0))),
        "a value is written before it is read, and not overwritten in between"
    );
    assert_eq!(check_failure_after(|program| drop(program.kernels.pop())), "every output is written");
    assert_eq!(check_failure_after(|program| program.slabs[0].bytes = 4), "a value is inside its slab");
    assert_eq!(check_failure_after(|program| drop(program.values.pop())), "every value is in the program's table");
    let odd = |program: &mut Program| {
        program.values.iter_mut().for_each(|value| {
            if let ValueLocation::Slab { offset_bytes, .. } = &mut value.place {
                *offset_bytes += 4;
            }
        });
    };
    assert_eq!(check_failure_after(odd), "a value is aligned");
    let shifted = |program: &mut Program| {
        let map = program
            .kernels
            .iter_mut()
            .find_map(|kernel| if let KernelBody::Map { expr, .. } = &mut kernel.body { Some(expr) } else { None });
        for (instruction, _) in &mut map.unwrap().instructions {
            if let Instruction::Load { view, .. } = instruction {
                view.offset = 1;
            }
        }
    };
    assert_eq!(check_failure_after(shifted), "a view stays within its value");
    let smaller = |program: &mut Program| {
        if let KernelBody::MatMul { sizes, .. } = &mut program.kernels[0].body {
            sizes[1] = 3;
        }
    };
    assert_eq!(check_failure_after(smaller), "a value has as many elements as its kernel says");
    let given = |program: &mut Program| {
        let last = program.kernels.len() - 1;
        program.kernels[last].body.map_values(&mut |value| value, &mut |_| ValueId(0));
    };
    assert!(
        ["inputs and constants are not written", "a kernel reads no memory that it writes, except element by element"]
            .contains(&check_failure_after(given))
    );
}

#[test]
fn a_kernel_over_the_value_limit_is_named_in_the_error() {
    let target = CompileTarget { kernel_values_max: 2, ..CompileTarget::gpu() };
    let error = check(&program(&CompileTarget::gpu()), &target, &InterruptCheck::never()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no more values than the target allows") && text.contains("kernel "), "{text}");
}
