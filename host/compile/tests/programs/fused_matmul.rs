//! Attention and its gradients as fused matmuls: which products are not materialized, and that results equal the
//! interpreter's. The tests of `gpu::wgsl` check the shaders.

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{ContractOp, Op};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphPort, NodeId, Shape, nn, verify};
use saggar_testgen::{ATTENTION_SIZES, AttentionConfig, CaseRng, GraphCase, MASKS, MaskKind, attention_case};

use crate::equivalence::{WORD_TARGET, check_matches_interpreter};
use saggar_compile::program::{FusedConsumer, KernelBody, Program};
use saggar_compile::{CompileTarget, compile};

/// Compiles a case, and checks that the program's results equal the interpreter's.
fn compile_and_check(case: &GraphCase, target: &CompileTarget) -> Program {
    check_matches_interpreter(&case.name, &case.verified_graph(), &case.inputs, &[], target)
}

fn kernel_families(program: &Program) -> Vec<&'static str> {
    program.kernels.iter().map(|kernel| kernel.body.family()).collect()
}

#[test]
fn attention_is_one_kernel() {
    for mask in MASKS {
        for turned in [false, true] {
            let program = compile_and_check(
                &attention_case(AttentionConfig { mask, transposed: turned, ..ATTENTION_SIZES }, 1),
                &WORD_TARGET,
            );
            assert_eq!(kernel_families(&program), ["attention"], "{mask:?}, turned {turned}");
            let KernelBody::Chain { end: FusedConsumer::Product { turned: found, .. }, softmax: Some(softmax), .. } =
                &program.kernels[0].body
            else {
                panic!("{program}")
            };
            assert_eq!(*found, turned);
            assert_eq!([softmax.largest, softmax.sum], [None, None], "no kernel reads them");
        }
    }
}

#[test]
fn attention_gradients_recompute_the_weights() {
    for mask in MASKS {
        for turned in [false, true] {
            let program = compile_and_check(
                &attention_case(AttentionConfig { mask, transposed: turned, gradients: true, ..ATTENTION_SIZES }, 2),
                &WORD_TARGET,
            );
            let families = kernel_families(&program);
            let count = |name: &str| families.iter().filter(|family| **family == name).count();
            // A reduction for the softmax, and the gradients of queries, keys and values.
            assert_eq!([count("attention"), count("chain"), count("matmul")], [1, 4, 0], "{families:?}");
            let matrix = ATTENTION_SIZES.batch * ATTENTION_SIZES.heads * ATTENTION_SIZES.queries * ATTENTION_SIZES.keys;
            let largest = program.values.iter().map(|value| value.descriptor.shape.elements()).max();
            assert!(largest < Some(matrix), "{mask:?}: a value as large as the scores is stored\n{program}");
        }
    }
}

#[test]
fn targets_without_fused_matmul_store_the_scores() {
    let case = attention_case(AttentionConfig { gradients: true, ..ATTENTION_SIZES }, 3);
    for target in [CompileTarget::cpu(), CompileTarget { chain_values_max: 0, ..WORD_TARGET }] {
        let found = kernel_families(&compile_and_check(&case, &target));
        assert!(found.contains(&"matmul") && !found.contains(&"attention") && !found.contains(&"chain"), "{found:?}");
    }
}

#[test]
fn attention_is_fused_up_to_128_value_columns() {
    for wide in [1, 32, 33, 64, 65, 128] {
        let program = compile_and_check(
            &attention_case(AttentionConfig { value_width: wide, ..ATTENTION_SIZES }, 11),
            &WORD_TARGET,
        );
        assert_eq!(kernel_families(&program), ["attention"], "{wide}");
    }
    let program =
        compile_and_check(&attention_case(AttentionConfig { value_width: 129, ..ATTENTION_SIZES }, 11), &WORD_TARGET);
    assert!(!kernel_families(&program).contains(&"attention"), "lanes have no more registers");
}

#[test]
fn attention_below_the_minimum_row_count_is_not_fused() {
    let case = attention_case(AttentionConfig { gradients: true, ..ATTENTION_SIZES }, 9);
    // The smaller side counts: the gradients of keys and values have keys as rows.
    let rows = ATTENTION_SIZES.batch * ATTENTION_SIZES.heads * ATTENTION_SIZES.queries.min(ATTENTION_SIZES.keys);
    for (chain_rows_min, expected) in [(rows, true), (rows + 1, false)] {
        let found = kernel_families(&compile_and_check(&case, &CompileTarget { chain_rows_min, ..WORD_TARGET }));
        assert_eq!(found.contains(&"attention"), expected, "{found:?}");
    }
}

#[test]
fn single_use_scores_are_fused_within_their_size_limits() {
    let target = CompileTarget { chain_rows_min: usize::MAX, ..WORD_TARGET };
    let sizes = AttentionConfig { heads: 1, keys: 17, width: 40, ..ATTENTION_SIZES };
    let is_one = |sizes| kernel_families(&compile_and_check(&attention_case(sizes, 10), &target)) == ["attention"];
    assert!(is_one(sizes));
    assert!(!is_one(AttentionConfig { queries: 15, ..sizes }), "a workgroup would be half empty");
    assert!(!is_one(AttentionConfig { keys: 257, width: 4, ..sizes }), "too deep");
    assert!(!is_one(AttentionConfig { width: 129, ..sizes }), "too deep");
    let trained =
        kernel_families(&compile_and_check(&attention_case(AttentionConfig { gradients: true, ..sizes }, 10), &target));
    assert!(!trained.contains(&"attention"), "gradients would recompute it: {trained:?}");
}

#[test]
fn any_fused_matmul_value_limit_gives_correct_results() {
    let case = attention_case(AttentionConfig { mask: MaskKind::Padding, gradients: true, ..ATTENTION_SIZES }, 4);
    for chain_values_max in 1..10 {
        compile_and_check(&case, &CompileTarget { chain_values_max, ..WORD_TARGET });
    }
}

/// Returns the only node with this operator.
fn find_node(case: &GraphCase, op: &str) -> NodeId {
    let graph = case.verified_graph();
    let at = graph.nodes.iter().position(|node| node.op.name() == op);
    NodeId(at.unwrap_or_else(|| panic!("no {op} in {}", case.name)) as u32)
}

#[test]
fn scores_with_other_readers_are_stored() {
    let stores = |what: &str, read: fn(&mut GraphBuilder, NodeId) -> NodeId| {
        let mut case = attention_case(ATTENTION_SIZES, 5);
        let weights = find_node(&case, "div");
        let other = read(&mut case.builder, weights);
        case.builder.output("other", other).unwrap();
        let found = kernel_families(&compile_and_check(&case, &WORD_TARGET));
        assert!(found.contains(&"matmul") && !found.contains(&"attention"), "{what}: {found:?}");
    };
    stores("an output", |_, weights| weights);
    stores("a fold of columns", |g, weights| g.reduce_sum(weights, &[2], false).unwrap());
    stores("other matrices", |g, weights| g.slice(weights, &[0, 0, 1, 0], &[2, 2, 9, 20], &[1; 4]).unwrap());
}

#[test]
fn softmax_row_sums_may_be_outputs_but_not_feed_the_second_product() {
    let mut case = attention_case(ATTENTION_SIZES, 6);
    let sum = find_node(&case, "reduce-sum");
    case.builder.output("sum", sum).unwrap();
    let program = compile_and_check(&case, &WORD_TARGET);
    assert_eq!(kernel_families(&program), ["attention"], "{program}");

    // Here the values depend on the sums, so a separate kernel must compute the sums first.
    let (mut case, again) = (attention_case(ATTENTION_SIZES, 7), attention_case(ATTENTION_SIZES, 7));
    let (weights, sum) = (find_node(&case, "div"), find_node(&again, "reduce-sum"));
    let g = &mut case.builder;
    let row = g.reshape(sum, &[2, 2, 18, 1]).unwrap();
    let row = g.slice(row, &[0; 4], &[2, 2, 1, 1], &[1; 4]).unwrap();
    let values = g.broadcast_to(row, Shape::new([2, 2, 20, 3]).unwrap()).unwrap();
    let found = g.matmul(weights, values).unwrap();
    g.output("of sums", found).unwrap();
    let found = kernel_families(&compile_and_check(&case, &WORD_TARGET));
    assert_eq!(found.iter().filter(|family| **family == "attention").count(), 1, "{found:?}");
}

/// Products of two small factors and their use, `exp(-(x y)^2)`; with two products, the difference of two such terms.
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

fn random_values(g: &GraphBuilder, seed: u64) -> Vec<InterpTensor> {
    let random = &mut CaseRng::new(seed);
    let graph = g.clone().finish();
    let value = |port: &GraphPort| {
        let numbers: Vec<f64> =
            (0..port.descriptor.shape.elements()).map(|_| random.below(2001) as f64 / 1000.0 - 1.0).collect();
        InterpTensor::from_numbers(DType::F32, port.descriptor.shape.clone(), &numbers).unwrap()
    };
    graph.inputs.iter().map(value).collect()
}

#[test]
fn elementwise_functions_of_products_are_fused_with_folds_and_products() {
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
            g.add_node(Op::Contract(ContractOp::MatMul { transpose_a: true, transpose_b: true }), &[matrix, tall])
                .unwrap(),
            g.matmul(turned, matrix).unwrap(),
            g.reduce_max(matrix, &[2], false).unwrap(),
            g.reduce_min(matrix, &[2], true).unwrap(),
            g.reduce_sum(matrix, &[2], false).unwrap(),
        ];
        for (at, result) in results.into_iter().enumerate().filter(|(at, _)| *at != 3) {
            g.output(&format!("y{at}"), result).unwrap();
        }
        let inputs = random_values(&g, products as u64);
        let program =
            check_matches_interpreter("function", &verify(g.clone().finish()).unwrap(), &inputs, &[], &WORD_TARGET);
        let chains = kernel_families(&program).iter().filter(|family| **family == "chain").count();
        assert_eq!(chains, if products > 2 { 0 } else { 6 }, "{products} products: {program}");
        // Both operands of one product are the matrix, which a fused matmul does not support.
        g.output("gram", results[3]).unwrap();
        let program = check_matches_interpreter("gram", &verify(g.finish()).unwrap(), &inputs, &[], &WORD_TARGET);
        assert!(!kernel_families(&program).contains(&"chain"), "{program}");
    }
}

#[test]
fn products_smaller_than_their_operands_are_stored() {
    let mut g = GraphBuilder::new();
    let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let [x, y, w] =
        [[64, 120], [120, 84], [84, 10]].map(|dims| g.input(&format!("x{}", dims[0]), float(&dims)).unwrap());
    let hidden = g.matmul(x, y).unwrap();
    let hidden = nn::relu(&mut g, hidden).unwrap();
    let result = g.matmul(hidden, w).unwrap();
    g.output("y", result).unwrap();
    let program = compile(&verify(g.finish()).unwrap(), &WORD_TARGET).unwrap();
    assert_eq!(kernel_families(&program), ["matmul", "matmul"]);
}

#[test]
fn unbatched_attention_is_fused() {
    for gradients in [false, true] {
        let case = attention_case(AttentionConfig { batch: 1, heads: 1, queries: 20, gradients, ..ATTENTION_SIZES }, 8);
        let found = kernel_families(&compile_and_check(&case, &WORD_TARGET));
        assert!(!found.contains(&"matmul"), "{found:?}");
    }
}

/// Heads that share keys and values, as in Ainslie et al., arXiv:2305.13245: `[batch, shared, group, places, width]`.
/// The scores are reshaped before and after the softmax.
#[test]
fn grouped_query_attention_is_fused() {
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
    let inputs = random_values(&g, 3);
    for target in [WORD_TARGET, CompileTarget { chain_rows_min: usize::MAX, ..WORD_TARGET }] {
        let program = check_matches_interpreter("shared", &verify(g.clone().finish()).unwrap(), &inputs, &[], &target);
        let found = kernel_families(&program);
        assert!(found.contains(&"attention") && !found.contains(&"matmul"), "{found:?}");
    }
}
