//! Operands in another form than they have in memory, made once and kept beside their buffer until it is written again:
//! weights are packed for the products that they are in when a program runs for the first time.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use saggar_tensor::DType;

use super::floats::floats;
use super::gemm::Matrix;
use super::gemm::pack::{Layout, pack, parts};
use super::implicit::FilterForm;
use super::winograd::PointsForm;
use super::words::Words;
use crate::error::DeviceError;
use crate::meter::{Charge, Meter};
use crate::room::Room;

/// Another form of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A matrix in panels.
    Matrix {
        /// The panels.
        layout: Layout,
        /// Whether it is stored `columns x depth`.
        transposed: bool,
    },
    /// A filter for a convolution with channels last.
    Filter(FilterForm),
    /// A filter for a convolution by tiles.
    Points(PointsForm),
}

/// What a kernel needs in another form.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The block that the value is all of.
    pub(super) block: usize,
    /// The value's type.
    pub(super) dtype: DType,
    /// How it is needed.
    pub(super) form: Form,
}

/// A value in another form.
#[derive(Debug)]
pub(super) struct Formed {
    form: Form,
    words: Words,
    _charge: Charge,
}

/// Forms of one value.
#[derive(Debug, Default)]
pub(super) struct Forms(Mutex<Vec<Arc<Formed>>>);

impl Form {
    fn len(&self) -> usize {
        match self {
            Form::Matrix { layout, .. } => layout.len(),
            Form::Filter(form) => form.layout.len(),
            Form::Points(form) => form.len(),
        }
    }

    fn write(&self, from: &[f32], out: &mut [f32]) {
        match self {
            Form::Matrix { layout, transposed } => {
                pack(*layout, Matrix::new(from, layout.columns, layout.depth, *transposed), out);
            }
            Form::Points(form) => form.write(from, out),
            Form::Filter(form) => {
                for part in parts(form.layout, out) {
                    part.fill_with(|depth, column| form.element(from, depth, column));
                }
            }
        }
    }
}

impl Formed {
    /// Its elements.
    pub(super) fn data(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.words)[..self.form.len()]
    }
}

impl Kept {
    /// Bytes of the value as it is needed.
    pub(super) fn bytes(&self) -> u64 {
        4 * self.form.len() as u64
    }
}

/// Bytes of all forms that are needed, each once however many kernels need it.
pub(super) fn packed_bytes<'a>(all: impl Iterator<Item = &'a Kept>) -> u64 {
    let mut counted: Vec<&Kept> = Vec::new();
    for kept in all {
        if !counted.iter().any(|it| it.block == kept.block && it.form == kept.form) {
            counted.push(kept);
        }
    }
    counted.iter().map(|kept| kept.bytes()).fold(0, u64::saturating_add)
}

impl Forms {
    /// The value, `what`, which is `bytes` now, as `kept` needs it.
    ///
    /// # Errors
    /// `OutOfMemory`; `NoRoom`.
    pub(super) fn get(
        &self,
        kept: &Kept,
        what: &dyn fmt::Display,
        bytes: &[u8],
        room: &Arc<Room>,
        meter: &Meter,
    ) -> Result<Arc<Formed>, DeviceError> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(formed) = forms.iter().find(|formed| formed.form == kept.form) {
            return Ok(Arc::clone(formed));
        }
        let charge = room.charge(&format_args!("{what}, packed"), kept.bytes(), meter)?;
        let mut words = Words::zeroed(4 * kept.form.len());
        let data = &mut bytemuck::cast_slice_mut(&mut words)[..kept.form.len()];
        kept.form.write(&floats(kept.dtype, bytes), data);
        let formed = Arc::new(Formed { form: kept.form.clone(), words, _charge: charge });
        forms.push(Arc::clone(&formed));
        Ok(formed)
    }

    /// Forgets them: the value is written.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
