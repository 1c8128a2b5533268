//! Attention and its gradients as fused matmuls: naga accepts the shaders, and they stay within the limits of every
//! adapter.

use saggar_compile::compile;
use saggar_compile::target::CompileTarget;
use saggar_tensor::NodeId;
use saggar_testgen::{ATTENTION_SIZES, AttentionConfig, GraphCase, MASKS, MaskKind, attention_case};

use super::*;
use crate::wgsl::FUSED_MATMUL_BINDINGS;

/// Fuses products however few rows they have.
const TARGET: CompileTarget = CompileTarget { chain_rows_min: 0, ..CompileTarget::gpu() };

/// Checks all shaders of a case with and without workgroup memory and subgroups.
fn check_shaders(case: &GraphCase, target: &CompileTarget) {
    let program = compile(&case.verified_graph(), target).unwrap();
    for kernel in &program.kernels {
        for (workgroup_memory, subgroup) in [(true, None), (true, Some(32)), (false, None)] {
            let tuning = ShaderTuning { workgroup_memory, subgroup, ..ShaderTuning::UNLIMITED };
            for shader in shader_passes(&program, kernel, tuning).unwrap() {
                check_valid(&shader);
                // Limits that every adapter has (WebGPU, Limits).
                assert!(shared_bytes(&shader) <= 16 << 10, "{}: {} bytes", case.name, shared_bytes(&shader));
                assert!(shader.bindings.len() <= FUSED_MATMUL_BINDINGS, "{}: {:?}", case.name, shader.bindings);
            }
        }
    }
}

#[test]
fn attention_shaders_are_valid_with_every_mask() {
    for mask in MASKS {
        for (transposed, gradients) in [(false, false), (true, false), (false, true), (true, true)] {
            let config = AttentionConfig { mask, transposed, gradients, ..ATTENTION_SIZES };
            check_shaders(&attention_case(config, 1), &TARGET);
        }
    }
}

#[test]
fn attention_shaders_are_valid_for_every_size() {
    for value_width in [1, 32, 33, 64, 65, 128, 129] {
        check_shaders(&attention_case(AttentionConfig { value_width, ..ATTENTION_SIZES }, 11), &TARGET);
    }
    for gradients in [false, true] {
        let one_matrix = AttentionConfig { batch: 1, heads: 1, queries: 20, gradients, ..ATTENTION_SIZES };
        check_shaders(&attention_case(one_matrix, 8), &TARGET);
    }
}

#[test]
fn shaders_of_few_rows_are_valid() {
    let target = CompileTarget { chain_rows_min: usize::MAX, ..TARGET };
    let sizes = AttentionConfig { heads: 1, keys: 17, width: 40, ..ATTENTION_SIZES };
    for config in [
        sizes,
        AttentionConfig { queries: 15, ..sizes },
        AttentionConfig { keys: 257, width: 4, ..sizes },
        AttentionConfig { width: 129, ..sizes },
        AttentionConfig { gradients: true, ..sizes },
    ] {
        check_shaders(&attention_case(config, 10), &target);
    }
}

#[test]
fn shaders_are_valid_for_any_fused_matmul_value_limit() {
    let config = AttentionConfig { mask: MaskKind::Padding, gradients: true, ..ATTENTION_SIZES };
    for chain_values_max in 0..10 {
        check_shaders(&attention_case(config, 4), &CompileTarget { chain_values_max, ..TARGET });
    }
    check_shaders(&attention_case(config, 3), &CompileTarget::cpu());
}

#[test]
fn shaders_are_valid_if_inner_values_are_outputs() {
    for op in ["reduce-sum", "div"] {
        let mut case = attention_case(ATTENTION_SIZES, 6);
        let node = case.verified_graph().nodes.iter().position(|node| node.op.name() == op).unwrap();
        case.builder.output("inner", NodeId(node as u32)).unwrap();
        check_shaders(&case, &TARGET);
    }
}
