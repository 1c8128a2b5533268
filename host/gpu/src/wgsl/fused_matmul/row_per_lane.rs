//! Fused matmuls without workgroup memory: one lane per row.

use saggar_tensor::DType;

use super::{FusedMatMul, LOWEST, exp_expression};
use crate::wgsl::reduce::{combine_expression, fold_identity};
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::{FusedConsumer, ProductOperand};

pub(super) fn fused_matmul_by_rows(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>) {
    let (rows, columns) = (chain.rows(), chain.columns());
    w.invocation_per_element(chain.batch() * rows);
    w.line(format!("let row = id % {rows}u;\nlet batch = id / {rows}u;"));
    let [links, results] = chain.coordinates(w);
    match chain.consumer {
        FusedConsumer::Fold(kind) => {
            w.line(format!("var total = {};", fold_identity(w.wide_integers(), kind, DType::F32)))
        }
        FusedConsumer::Product { columns, .. } => w.line(format!("var sums: array<f32, {columns}>;\nvar total = 0.0;")),
    }
    if chain.softmax.is_some() {
        w.line(format!("var largest = {LOWEST};"));
    }
    w.open_loop("column", columns);
    let mut products = Vec::new();
    for (number, product) in chain.products.iter().enumerate() {
        let name = format!("product{number}");
        w.line(format!("var {name} = 0.0;"));
        w.open_loop("i", product.depth);
        let a = operand_element(w, &product.a, ["row", "i"], [rows, product.depth]);
        let b = operand_element(w, &product.b, ["i", "column"], [product.depth, columns]);
        w.line(format!("{name} += {a} * {b};"));
        w.close();
        products.push(name);
    }
    let here = chain.element(&links, "row", "column", &products);
    w.line(format!("let here = {here};"));
    match chain.consumer {
        FusedConsumer::Fold(kind) => {
            w.line(format!("total = {};", combine_expression(w.wide_integers(), kind, DType::F32, "total", "here")))
        }
        FusedConsumer::Product { factor, columns: n, .. } => {
            let mut previous_sum = "sums[j]";
            if chain.softmax.is_some() {
                w.line("let larger = max(largest, here);");
                w.line(format!(
                    "let scale = {};\nlet weight = {};",
                    exp_expression("largest - larger"),
                    exp_expression("here - larger")
                ));
                w.line("largest = larger;\ntotal = total * scale + weight;");
                previous_sum = "sums[j] * scale";
            } else {
                w.line("let weight = here;");
            }
            w.open_loop("j", n);
            let b = operand_element(w, &factor, ["column", "j"], [columns, n]);
            w.line(format!("sums[j] = {previous_sum} + weight * {b};"));
            w.close();
        }
    }
    w.close();
    match chain.consumer {
        FusedConsumer::Fold(_) => chain.finish_row(w, &results, "row", "total"),
        FusedConsumer::Product { columns: n, .. } => {
            let sum = if chain.softmax.is_some() { "sums[j] / total" } else { "sums[j]" };
            w.open_loop("j", n);
            chain.finish_sum(w, &results, ["row", "j"], sum);
            w.close();
            chain.store_row(w, "row", ["largest", "total"]);
        }
    }
}

/// Returns the factor's element at a row and a column of its matrix.
fn operand_element(
    w: &mut ShaderWriter<'_>,
    factor: &ProductOperand,
    [row, column]: [&str; 2],
    [rows, columns]: [usize; 2],
) -> String {
    let at = if factor.transposed {
        format!("{column} * {rows}u + {row}")
    } else {
        format!("{row} * {columns}u + {column}")
    };
    w.element(factor.value, &format!("batch * {}u + {at}", factor.batch_stride))
}
