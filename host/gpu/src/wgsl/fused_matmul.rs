//! WGSL for fused matmuls: reductions and products of a matrix that is computed where it is used. Each workgroup takes
//! some rows and processes the columns tile by tile. Without workgroup memory, each lane takes one row.
//!
//! A softmax over the rows is computed online: whenever a larger element is found, the partial sums are scaled down.
//!
//! Sources: Dao et al., FlashAttention, arXiv:2205.14135; Milakov and Gimelshein, arXiv:1805.02867.

mod row_per_lane;
mod tiled;

use saggar_tensor::DType;
use saggar_tensor::op::{Scalar, UnaryOp};

use super::expression::{EvaluationPoint, finish_function, write_expr};
use super::literal::scalar_literal;
use super::unary;
use super::wide_integer::WideIntegers;
use crate::wgsl::writer::ShaderWriter;
use saggar_compile::program::expr::ScalarExpr;
use saggar_compile::program::{Epilogue, FusedConsumer, FusedProduct, SoftmaxStatistics};

/// The description of a fused matmul, as in `KernelBody::Chain`.
pub(super) struct FusedMatMul<'a> {
    pub(super) dims: &'a [usize],
    pub(super) products: &'a [FusedProduct],
    pub(super) score_expr: &'a ScalarExpr,
    pub(super) softmax: Option<&'a SoftmaxStatistics>,
    pub(super) consumer: FusedConsumer,
    pub(super) results: &'a [usize],
    pub(super) epilogue: &'a Epilogue,
}

pub(super) fn fused_matmul(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>) {
    if chain.results.iter().product::<usize>() == 0 {
        return;
    }
    score_function(w, chain);
    finish_function(w, chain.epilogue, chain.results);
    if w.tuning.workgroup_memory {
        tiled::fused_matmul_by_tiles(w, chain)
    } else {
        row_per_lane::fused_matmul_by_rows(w, chain)
    }
}

/// Writes a function `score_expr(o0, ..., product0, ...)` that returns one element of the matrix.
fn score_function(w: &mut ShaderWriter<'_>, chain: &FusedMatMul<'_>) {
    let names: Vec<String> = (0..chain.dims.len()).map(|axis| format!("o{axis}")).collect();
    let products: Vec<String> = (0..chain.products.len()).map(|number| format!("product{number}")).collect();
    let places: String = names.iter().map(|name| format!("{name}: u32, ")).collect();
    let parameters: Vec<String> = products.iter().map(|name| format!("{name}: f32")).collect();
    w.function(&format!("link({places}{}) -> f32", parameters.join(", ")), |w| {
        let accumulated: Vec<&str> = products.iter().map(String::as_str).collect();
        let point = EvaluationPoint {
            dims: chain.dims,
            coordinates: &names,
            linear: None,
            accumulated: &accumulated,
            prefix: "l",
        };
        write_expr(w, chain.score_expr, &point);
        w.line(format!("return l{};", chain.score_expr.instructions.len() - 1));
    })
}

/// The maximum of zero elements. It is finite, so that an element of minus infinity gets weight 0 instead of NaN.
const LOWEST: &str = "-3.4028234e38";

/// Returns a score with weight 0.
fn masked_score() -> String {
    scalar_literal(WideIntegers::Native, Scalar::Float(f64::NEG_INFINITY), DType::F32)
}

fn exp_expression(of: &str) -> String {
    unary::unary_expression(WideIntegers::Native, UnaryOp::Exp, DType::F32, of)
}

impl FusedMatMul<'_> {
    fn batch(&self) -> usize {
        self.dims[..self.dims.len() - 2].iter().product()
    }

    fn rows(&self) -> usize {
        self.dims[self.dims.len() - 2]
    }

    fn columns(&self) -> usize {
        self.dims[self.dims.len() - 1]
    }

    /// Names the coordinates of `batch`: those of the score expression, and those of the results.
    fn coordinates(&self, w: &mut ShaderWriter<'_>) -> [Vec<String>; 2] {
        let batches = self.results.len() - if matches!(self.consumer, FusedConsumer::Fold(_)) { 1 } else { 2 };
        let links = w.coordinates(&self.dims[..self.dims.len() - 2], "batch", "o", &[]);
        [links, w.coordinates(&self.results[..batches], "batch", "r", &[])]
    }

    /// Returns the matrix element at a row and column, from the elements of the products there.
    fn element(&self, batch: &[String], row: &str, column: &str, products: &[String]) -> String {
        let places: String = batch.iter().map(|place| format!("{place}, ")).collect();
        format!("link({places}{row}, {column}, {})", products.join(", "))
    }

    /// Writes the epilogue of a row's reduction.
    fn finish_row(&self, w: &mut ShaderWriter<'_>, batch: &[String], row: &str, total: &str) {
        let places: String = batch.iter().map(|place| format!("{place}, ")).collect();
        w.line(format!("finish({places}{row}, batch * {}u + {row}, {total});", self.rows()));
    }

    /// Writes the epilogue of a product's sum, at a row of the matrix and a column of its second factor.
    fn finish_sum(&self, w: &mut ShaderWriter<'_>, batch: &[String], [row, column]: [&str; 2], sum: &str) {
        let FusedConsumer::Product { columns, turned, .. } = self.consumer else { return };
        let places: String = batch.iter().map(|place| format!("{place}, ")).collect();
        let rows = self.rows();
        w.line(if turned {
            format!("finish({places}{column}, {row}, (batch * {columns}u + {column}) * {rows}u + {row}, {sum});")
        } else {
            format!("finish({places}{row}, {column}, (batch * {rows}u + {row}) * {columns}u + {column}, {sum});")
        });
    }

    /// Stores the row statistics of a softmax.
    fn store_row(&self, w: &mut ShaderWriter<'_>, row: &str, [largest, total]: [&str; 2]) {
        let Some(softmax) = self.softmax else { return };
        let at = format!("batch * {}u + {row}", self.rows());
        for (value, text) in [(softmax.largest, largest), (softmax.sum, total)] {
            if let Some(value) = value {
                w.assign(value, &at, text);
            }
        }
    }
}
