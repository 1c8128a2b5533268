use saggar_tensor::{DType, Descriptor, Shape};

use super::*;

fn descriptor(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::U8, Shape::new(dims).unwrap())
}

fn port(name: &str, dims: &[usize]) -> ModelPort {
    ModelPort {
        name: name.to_owned(),
        item: descriptor(dims),
        semantics: None,
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    }
}

fn signature() -> ModelSignature {
    ModelSignature {
        inputs: vec![port("x", &[2]), port("y", &[])],
        outputs: vec![port("z", &[3]), port("w", &[])],
        batch_sizes: vec![1, 2, 4],
        routes: Vec::new(),
        handlers: Vec::new(),
    }
}

fn named_tensor(name: &str, dims: &[usize], bytes: &[u8]) -> NamedTensor {
    NamedTensor { name: name.to_owned(), descriptor: descriptor(dims), bytes: bytes.to_vec() }
}

#[test]
fn batches_are_split_and_padded_to_compiled_sizes() {
    let check = |sizes: &[usize], items, expected: &[(usize, usize)]| assert_eq!(plan_parts(sizes, items), expected);
    check(&[1, 2, 4], 1, &[(1, 1)]);
    check(&[1, 2, 4], 3, &[(3, 4)]);
    check(&[1, 2, 4], 4, &[(4, 4)]);
    check(&[1, 2, 4], 9, &[(4, 4), (4, 4), (1, 1)]);
    check(&[8], 3, &[(3, 8)]);
    check(&[8], 17, &[(8, 8), (8, 8), (1, 8)]);
}

#[test]
fn inputs_that_do_not_match_the_signature_are_refused() {
    let check = |inputs: &[NamedTensor]| count_items(&signature(), inputs).map_err(|error| error.to_string());
    let x = || named_tensor("x", &[3, 2], &[1, 2, 3, 4, 5, 6]);
    let y = || named_tensor("y", &[3], &[7, 8, 9]);
    assert_eq!(check(&[y(), x()]), Ok(3), "in any order");
    for inputs in [
        vec![x()],
        vec![x(), x(), y()],
        vec![x(), y(), named_tensor("v", &[3], &[0; 3])],
        vec![x(), named_tensor("y", &[2], &[7, 8])],
        vec![x(), named_tensor("y", &[], &[7])],
        vec![x(), named_tensor("y", &[3], &[7])],
        vec![named_tensor("x", &[0, 2], &[]), named_tensor("y", &[0], &[])],
        vec![named_tensor("x", &[3, 3], &[0; 9]), y()],
        vec![NamedTensor { descriptor: Descriptor::new(DType::I8, Shape::new([3, 2]).unwrap()), ..x() }, y()],
    ] {
        assert!(check(&inputs).is_err(), "{inputs:?}");
    }
}

#[test]
fn parts_are_padded_with_zeros() {
    let signature = signature();
    let inputs = vec![named_tensor("y", &[3], &[7, 8, 9]), named_tensor("x", &[3, 2], &[1, 2, 3, 4, 5, 6])];
    let part = BatchInputs::new(&signature, inputs.clone()).padded_part(1, 2, 4).unwrap();
    assert_eq!(part[0], named_tensor("x", &[4, 2], &[3, 4, 5, 6, 0, 0, 0, 0]));
    assert_eq!(part[1], named_tensor("y", &[4], &[8, 9, 0, 0]));
    let whole = BatchInputs::new(&signature, inputs).padded_part(0, 3, 4).unwrap();
    assert_eq!(whole[0], named_tensor("x", &[4, 2], &[1, 2, 3, 4, 5, 6, 0, 0]));
}

#[test]
fn a_model_without_batch_sizes_is_given_single_items() {
    let signature = ModelSignature { batch_sizes: Vec::new(), ..signature() };
    let inputs = vec![named_tensor("x", &[2, 2], &[1, 2, 3, 4]), named_tensor("y", &[2], &[5, 6])];
    let mut inputs = BatchInputs::new(&signature, inputs);
    assert_eq!(inputs.padded_part(0, 1, 1).unwrap(), [named_tensor("x", &[2], &[1, 2]), named_tensor("y", &[], &[5])]);
    assert_eq!(inputs.padded_part(1, 1, 1).unwrap(), [named_tensor("x", &[2], &[3, 4]), named_tensor("y", &[], &[6])]);
}

#[test]
fn padding_is_removed_from_outputs_before_they_are_concatenated() {
    let part = |z: &[u8], w: &[u8]| vec![named_tensor("z", &[2, 3], z), named_tensor("w", &[2], w)];
    let parts = vec![(part(&[1, 2, 3, 4, 5, 6], &[1, 2]), 2), (part(&[7, 8, 9, 0, 0, 0], &[3, 0]), 1)];
    let joined = concat_outputs(&signature(), parts, 3).unwrap();
    assert_eq!(joined, [named_tensor("z", &[3, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9]), named_tensor("w", &[3], &[1, 2, 3])]);
}

#[test]
fn outputs_that_do_not_match_the_signature_are_named() {
    let cpu = saggar_cpu::open(Some(1)).unwrap();
    let buffer = |name: &str, dims: &[usize]| {
        (name.to_owned(), cpu.allocate(&descriptor(dims), &saggar_device::Meter::unlimited()).unwrap())
    };
    let z = || buffer("z", &[2, 3]);
    let w = || buffer("w", &[2]);
    let names: Vec<String> =
        check_outputs(&signature(), vec![w(), z()], 2).unwrap().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["z", "w"], "in the signature's order");
    for (given, expected) in [
        (vec![], "output none: the signature promises 2 outputs, and the plugin gave 0 outputs"),
        (vec![z(), w(), w()], "output z: the signature promises 2 outputs, and the plugin gave 3 outputs"),
        (vec![z(), z()], "output w: the signature promises uint8[2], and the plugin gave no output of this name"),
        (vec![z(), buffer("w", &[1])], "output w: the signature promises uint8[2], and the plugin gave uint8[1]"),
    ] {
        let error = check_outputs(&signature(), given, 2).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.reason().as_str(), "BAD_OUTPUT");
    }
}
