//! The rule of Col2Im.

use super::convolution::{OnnxWindowGeometry, convolve_transposed};
use super::{RuleResult, single_result};
use crate::call::OperatorCall;
use crate::error::{Error, Result};
use crate::graph::FoldingGraph;
use crate::value::{ConstantElements, ConstantTensor, checked_size};

/// The maximum number of elements of the filters.
const FILTERS_MAX: usize = 1 << 22;

/// Builds Col2Im: adds columns up at their positions, with a transposed convolution whose filters are one-hot.
pub(super) fn col2im(g: &mut FoldingGraph, call: &OperatorCall) -> RuleResult {
    let x = call.input(0)?;
    let sizes = |position, what: &str| {
        let ints = call.known_ints(position, what)?.unwrap_or_default();
        ints.iter().map(|&dim| checked_size(dim, what)).collect::<Result<Vec<_>>>()
    };
    let (image, window) = (sizes(1, "the image's shape")?, sizes(2, "the block's shape")?);
    let n = image.len();
    let taps = crate::value::element_count(&window)?;
    let &[batch, columns, _] = x.shape() else { return Err(Error::invalid(format!("Col2Im of {:?}", x.shape()))) };
    if window.len() != n || taps == 0 || columns % taps != 0 {
        return Err(Error::invalid(format!("blocks {window:?} of images {image:?} from {:?}", x.shape())));
    }
    if columns.saturating_mul(taps) > FILTERS_MAX {
        return Err(Error::unsupported(format!("blocks of {taps} elements in {columns} columns")));
    }
    let geometry = OnnxWindowGeometry::from_call(call, &image, window.clone())?;
    let counts = geometry.window_counts(&image, false)?;
    let columned = g.reshape(x, &[&[batch, columns], &counts[..]].concat())?;
    let channels = columns / taps;
    let filter = (0..columns * taps).map(|i| f64::from(u8::from((i / taps) % taps == i % taps))).collect();
    let filter =
        ConstantTensor::new(x.elem(), [&[columns, 1], &window[..]].concat(), ConstantElements::Float(filter)).into();
    single_result(convolve_transposed(g, &columned, &filter, None, geometry, channels, &image))
}
