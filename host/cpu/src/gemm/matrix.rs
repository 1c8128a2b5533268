//! Matrices in memory: the operands of products.

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct GemmMatrix<'a> {
    /// Elements, starting with the first of the first row.
    pub(in super::super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(in super::super) row: usize,
    /// Elements from one column to the next.
    pub(in super::super) column: usize,
}

impl<'a> GemmMatrix<'a> {
    /// Returns a row-major matrix of `rows x columns`, or one stored as `columns x rows` if `transposed`.
    pub(in super::super) fn new(data: &'a [f32], columns: usize, rows: usize, transposed: bool) -> GemmMatrix<'a> {
        if transposed {
            GemmMatrix { data, row: 1, column: rows }
        } else {
            GemmMatrix { data, row: columns, column: 1 }
        }
    }

    /// Returns the matrix without its first `rows` rows.
    pub(in super::super) fn skip_rows(self, rows: usize) -> GemmMatrix<'a> {
        GemmMatrix { data: self.data.get(rows * self.row..).unwrap_or(&[]), ..self }
    }

    /// Returns the matrix without its first `columns` columns.
    pub(in super::super) fn skip_columns(self, columns: usize) -> GemmMatrix<'a> {
        GemmMatrix { data: self.data.get(columns * self.column..).unwrap_or(&[]), ..self }
    }
}
