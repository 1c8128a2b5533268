//! Attention and its gradients: which of their products are stored nowhere, that they still are what the graph says, and that
//! naga takes what is written for them.

use saggar_tensor::arbitrary::{Attention, Case, MASKS, Mask, Random, attention};
use saggar_tensor::interp::Value;
use saggar_tensor::op::{Contract, Op};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Port, Shape, nn, verify};

use crate::equivalence_tests::{WORDS, check};
use crate::label::family;
use crate::program::{Body, End, Program};
use crate::wgsl::{CHAIN_BINDINGS, Tuning, check_valid, passes, shared_bytes};
use crate::{Target, compile};

const SIZES: Attention = Attention {
    batch: 2,
    heads: 2,
    queries: 18,
    keys: 20,
    width: 4,
    wide: 5,
    mask: Mask::None,
    turned: false,
    gradients: false,
};

/// The program of a case, after it was found to compute what the graph says, and naga to take its text.
fn checked(case: &Case, target: &Target) -> Program {
    let program = check(&case.name, &case.verified(), &case.inputs, &[], target);
    for kernel in &program.kernels {
        for (workgroup_memory, subgroup) in [(true, None), (true, Some(32)), (false, None)] {
            let tuning = Tuning { workgroup_memory, subgroup, ..Tuning::UNLIMITED };
            for shader in passes(&program, kernel, tuning).unwrap() {
                check_valid(&shader);
                // What every adapter has (WebGPU, Limits).
                assert!(shared_bytes(&shader) <= 16 << 10, "{}: {} bytes", case.name, shared_bytes(&shader));
                assert!(shader.bindings.len() <= CHAIN_BINDINGS, "{}: {:?}", case.name, shader.bindings);
            }
        }
    }
    program
}

fn families(program: &Program) -> Vec<&'static str> {
    program.kernels.iter().map(|kernel| family(&kernel.body)).collect()
}

#[test]
fn attention_is_one_kernel() {
    for mask in MASKS {
        for turned in [false, true] {
            let program = checked(&attention(Attention { mask, turned, ..SIZES }, 1), &WORDS);
            assert_eq!(families(&program), ["attention"], "{mask:?}, turned {turned}");
            let Body::Chain { end: End::Product { turned: found, .. }, softmax: Some(softmax), .. } =
                &program.kernels[0].body
            else {
                panic!("{program}")
            };
            assert_eq!(*found, turned);
            assert_eq!([softmax.largest, softmax.sum], [None, None], "nobody reads them");
        }
    }
}

#[test]
fn its_gradients_compute_its_weights_again() {
    for mask in MASKS {
        for turned in [false, true] {
            let program = checked(&attention(Attention { mask, turned, gradients: true, ..SIZES }, 2), &WORDS);
            let families = families(&program);
            let count = |name: &str| families.iter().filter(|family| **family == name).count();
            // A fold for the softmax, and the gradients of queries, keys and values.
            assert_eq!([count("attention"), count("chain"), count("matmul")], [1, 4, 0], "{families:?}");
            let matrix = SIZES.batch * SIZES.heads * SIZES.queries * SIZES.keys;
            let largest = program.values.iter().map(|value| value.descriptor.shape.elements()).max();
            assert!(largest < Some(matrix), "{mask:?}: something as large as the scores is stored\n{program}");
        }
    }
}

#[test]
fn targets_without_chains_store_the_scores() {
    let case = attention(Attention { gradients: true, ..SIZES }, 3);
    for target in [Target::cpu(), Target { chain_values_max: 0, ..WORDS }] {
        let found = families(&checked(&case, &target));
        assert!(found.contains(&"matmul") && !found.contains(&"attention") && !found.contains(&"chain"), "{found:?}");
    }
}

#[test]
fn wide_values_fit_what_lanes_share() {
    for wide in [1, 32, 33, 64, 65, 128] {
        let program = checked(&attention(Attention { wide, ..SIZES }, 11), &WORDS);
        assert_eq!(families(&program), ["attention"], "{wide}");
    }
    let program = checked(&attention(Attention { wide: 129, ..SIZES }, 11), &WORDS);
    assert!(!families(&program).contains(&"attention"), "lanes have registers for no more");
}

#[test]
fn few_rows_are_stored() {
    let case = attention(Attention { gradients: true, ..SIZES }, 9);
    // The smaller side counts: the gradients of keys and values have keys for rows.
    let rows = SIZES.batch * SIZES.heads * SIZES.queries.min(SIZES.keys);
    for (chain_rows_min, expected) in [(rows, true), (rows + 1, false)] {
        let found = families(&checked(&case, &Target { chain_rows_min, ..WORDS }));
        assert_eq!(found.contains(&"attention"), expected, "{found:?}");
    }
}

#[test]
fn what_one_kernel_uses_may_have_few_rows_and_be_smaller_than_its_factors() {
    let target = Target { chain_rows_min: usize::MAX, ..WORDS };
    let sizes = Attention { heads: 1, keys: 17, width: 40, ..SIZES };
    let is_one = |sizes| families(&checked(&attention(sizes, 10), &target)) == ["attention"];
    assert!(is_one(sizes));
    assert!(!is_one(Attention { queries: 15, ..sizes }), "a workgroup would be half empty");
    assert!(!is_one(Attention { keys: 257, width: 4, ..sizes }), "too long a way");
    assert!(!is_one(Attention { width: 129, ..sizes }), "too deep");
    let trained = families(&checked(&attention(Attention { gradients: true, ..sizes }, 10), &target));
    assert!(!trained.contains(&"attention"), "gradients would compute it again: {trained:?}");
}

#[test]
fn too_few_values_in_a_kernel_break_a_chain_and_nothing_else() {
    let case = attention(Attention { mask: Mask::Padding, gradients: true, ..SIZES }, 4);
    for chain_values_max in 1..10 {
        checked(&case, &Target { chain_values_max, ..WORDS });
    }
}

/// The node with this operator, of which there is one.
fn node(case: &Case, op: &str) -> NodeId {
    let graph = case.verified();
    let at = graph.nodes.iter().position(|node| node.op.name() == op);
    NodeId(at.unwrap_or_else(|| panic!("no {op} in {}", case.name)) as u32)
}

#[test]
fn what_is_read_in_another_way_is_stored() {
    let stores = |what: &str, read: fn(&mut GraphBuilder, NodeId) -> NodeId| {
        let mut case = attention(SIZES, 5);
        let weights = node(&case, "div");
        let other = read(&mut case.builder, weights);
        case.builder.output("other", other).unwrap();
        let found = families(&checked(&case, &WORDS));
        assert!(found.contains(&"matmul") && !found.contains(&"attention"), "{what}: {found:?}");
    };
    stores("an output", |_, weights| weights);
    stores("a fold of columns", |g, weights| g.reduce_sum(weights, &[2], false).unwrap());
    stores("other matrices", |g, weights| g.slice(weights, &[0, 0, 1, 0], &[2, 2, 9, 20], &[1; 4]).unwrap());
}

#[test]
fn rows_of_a_softmax_may_be_outputs_but_not_make_what_it_multiplies() {
    let mut case = attention(SIZES, 6);
    let sum = node(&case, "reduce-sum");
    case.builder.output("sum", sum).unwrap();
    let program = checked(&case, &WORDS);
    assert_eq!(families(&program), ["attention"], "{program}");

    // Its own values depend on the sums, so something else has to compute those first.
    let (mut case, again) = (attention(SIZES, 7), attention(SIZES, 7));
    let (weights, sum) = (node(&case, "div"), node(&again, "reduce-sum"));
    let g = &mut case.builder;
    let row = g.reshape(sum, &[2, 2, 18, 1]).unwrap();
    let row = g.slice(row, &[0; 4], &[2, 2, 1, 1], &[1; 4]).unwrap();
    let values = g.broadcast_to(row, Shape::new([2, 2, 20, 3]).unwrap()).unwrap();
    let found = g.matmul(weights, values).unwrap();
    g.output("of sums", found).unwrap();
    let found = families(&checked(&case, &WORDS));
    assert_eq!(found.iter().filter(|family| **family == "attention").count(), 1, "{found:?}");
}

/// Products of two small factors, and what becomes of them: `exp(-(x y)^2)`, with the difference to another such where asked.
fn kernel_matrix(g: &mut GraphBuilder, [rows, columns]: [usize; 2], products: usize) -> NodeId {
    let mut matrix = None;
    for number in 0..products {
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let x = g.input(&format!("x{number}"), float(&[3, rows, 2])).unwrap();
        let y = g.input(&format!("y{number}"), float(&[3, 2, columns])).unwrap();
        let product = g.matmul(x, y).unwrap();
        let square = g.mul(product, product).unwrap();
        let opposite = g.neg(square).unwrap();
        let power = g.exp(opposite).unwrap();
        matrix = Some(match matrix {
            None => power,
            Some(other) => g.sub(other, power).unwrap(),
        });
    }
    matrix.unwrap()
}

fn values(g: &GraphBuilder, seed: u64) -> Vec<Value> {
    let random = &mut Random::new(seed);
    let graph = g.clone().finish();
    let value = |port: &Port| {
        let numbers: Vec<f64> =
            (0..port.descriptor.shape.elements()).map(|_| random.below(2001) as f64 / 1000.0 - 1.0).collect();
        Value::from_numbers(DType::F32, port.descriptor.shape.clone(), &numbers).unwrap()
    };
    graph.inputs.iter().map(value).collect()
}

#[test]
fn any_function_of_products_may_be_folded_and_multiplied() {
    for products in 1..4 {
        let mut g = GraphBuilder::new();
        let matrix = kernel_matrix(&mut g, [33, 40], products);
        let [wide, tall] = [[3, 40, 7], [3, 5, 33]].map(|dims| {
            let name = format!("w{}", dims[2]);
            g.input(&name, Descriptor::new(DType::F32, Shape::new(dims).unwrap())).unwrap()
        });
        let turned = g.transpose(matrix, &[0, 2, 1]).unwrap();
        let results = [
            g.matmul(matrix, wide).unwrap(),
            g.matmul(tall, matrix).unwrap(),
            g.add_node(Op::Contract(Contract::MatMul { transpose_a: true, transpose_b: true }), &[matrix, tall])
                .unwrap(),
            g.matmul(turned, matrix).unwrap(),
            g.reduce_max(matrix, &[2], false).unwrap(),
            g.reduce_min(matrix, &[2], true).unwrap(),
            g.reduce_sum(matrix, &[2], false).unwrap(),
        ];
        for (at, result) in results.into_iter().enumerate().filter(|(at, _)| *at != 3) {
            g.output(&format!("y{at}"), result).unwrap();
        }
        let inputs = values(&g, products as u64);
        let program = check("function", &verify(g.clone().finish()).unwrap(), &inputs, &[], &WORDS);
        let chains = families(&program).iter().filter(|family| **family == "chain").count();
        assert_eq!(chains, if products > 2 { 0 } else { 6 }, "{products} products: {program}");
        // Both operands of one product are the matrix, which no chain can be.
        g.output("gram", results[3]).unwrap();
        let program = check("gram", &verify(g.finish()).unwrap(), &inputs, &[], &WORDS);
        assert!(!families(&program).contains(&"chain"), "{program}");
    }
}

#[test]
fn products_smaller_than_their_factors_are_stored() {
    let mut g = GraphBuilder::new();
    let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let [x, y, w] =
        [[64, 120], [120, 84], [84, 10]].map(|dims| g.input(&format!("x{}", dims[0]), float(&dims)).unwrap());
    let hidden = g.matmul(x, y).unwrap();
    let hidden = nn::relu(&mut g, hidden).unwrap();
    let result = g.matmul(hidden, w).unwrap();
    g.output("y", result).unwrap();
    let program = compile(&verify(g.finish()).unwrap(), &WORDS).unwrap();
    assert_eq!(families(&program), ["matmul", "matmul"]);
}

#[test]
fn one_matrix_is_a_chain_too() {
    for gradients in [false, true] {
        let case = attention(Attention { batch: 1, heads: 1, queries: 20, gradients, ..SIZES }, 8);
        let found = families(&checked(&case, &WORDS));
        assert!(!found.contains(&"matmul"), "{found:?}");
    }
}

/// Heads that share keys and values, as in Ainslie et al., arXiv:2305.13245: `[batch, shared, group, places, width]`, where the
/// scores are reshaped on their way to the softmax and back.
#[test]
fn heads_may_share_keys_and_values() {
    let [batch, shared, group, places, width] = [2, 2, 3, 24, 4];
    let mut g = GraphBuilder::new();
    let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let q = g.input("q", float(&[batch, shared, group, places, width])).unwrap();
    let [k, v] = ["k", "v"].map(|name| g.input(name, float(&[batch, shared, 1, places, width])).unwrap());
    let turned = g.transpose(k, &[0, 1, 2, 4, 3]).unwrap();
    let scores = g.matmul(q, turned).unwrap();
    let scores = g.reshape(scores, &[batch, shared * group, places, places]).unwrap();
    let weights = nn::softmax(&mut g, scores, 3).unwrap();
    let weights = g.reshape(weights, &[batch, shared, group, places, places]).unwrap();
    let found = g.matmul(weights, v).unwrap();
    let found = g.reshape(found, &[batch, shared * group, places, width]).unwrap();
    let found = g.transpose(found, &[0, 2, 1, 3]).unwrap();
    g.output("found", found).unwrap();
    let inputs = values(&g, 3);
    for target in [WORDS, Target { chain_rows_min: usize::MAX, ..WORDS }] {
        let program = check("shared", &verify(g.clone().finish()).unwrap(), &inputs, &[], &target);
        let found = families(&program);
        assert!(found.contains(&"attention") && !found.contains(&"matmul"), "{found:?}");
    }
}
