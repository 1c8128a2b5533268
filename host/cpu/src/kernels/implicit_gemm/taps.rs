//! Filter taps in processing order, and filters packed in that order.

use crate::gemm::macro_kernel::PackedMatrix;
use crate::gemm::pack::{PanelLayout, split_panels};
use crate::prepacked::{PackedLayout, is_same_layout};
use crate::threads::CpuThreads;

/// A tap of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterTap {
    /// Row and column offset from a place's position.
    pub(super) offset: [isize; 2],
    /// Index in the filter, in row-major order.
    pub(super) index: usize,
}

/// Taps in memory order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterTaps {
    /// The taps, sorted by offset.
    pub(super) list: Vec<FilterTap>,
}

impl FilterTaps {
    /// Returns the taps of a window for which `offset` returns a row and column offset.
    pub(super) fn new(window: [usize; 2], offset: impl Fn([usize; 2]) -> Option<[isize; 2]>) -> FilterTaps {
        let tap = |index: usize| {
            let offset = offset([index / window[1], index % window[1]])?;
            Some(FilterTap { offset, index })
        };
        let mut list: Vec<FilterTap> = (0..window[0] * window[1]).filter_map(tap).collect();
        list.sort_by_key(|tap| tap.offset);
        FilterTaps { list }
    }

    /// Returns the tap indices in the filter, in order.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.list.iter().map(|tap| tap.index as u32).collect()
    }
}

/// The channels over which a filter is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SummedChannels {
    /// Input channels: the convolution.
    Inputs,
    /// Output channels: the input gradient.
    Outputs,
    /// Output channels, with one column per input channel and tap: the contribution of an output place to all places
    /// under its window.
    OutputsAlone,
}

/// The layout of a filter `[o, c, kh, kw]` as second operand of products: `[taps and summed channels, other channels]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedFilterLayout {
    /// The panels.
    pub(super) layout: PanelLayout,
    /// Tap indices in the filter, in order.
    pub(super) taps: Vec<u32>,
    /// Number of taps of the filter.
    pub(super) window: usize,
    /// Number of input channels.
    pub(super) inputs: usize,
    /// The channels that are summed over.
    pub(super) order: SummedChannels,
}

impl PackedFilterLayout {
    /// Returns the layout for these taps of a filter `[o, c, kh, kw]`.
    pub(super) fn new(filter: [usize; 4], taps: &FilterTaps, order: SummedChannels) -> PackedFilterLayout {
        let [outputs, inputs, height, width] = filter;
        let count = taps.list.len();
        let layout = match order {
            SummedChannels::Inputs => PanelLayout::new(count * inputs, outputs),
            SummedChannels::Outputs => PanelLayout::new(count * outputs, inputs),
            SummedChannels::OutputsAlone => PanelLayout::new(outputs, count * inputs),
        };
        PackedFilterLayout { layout, taps: taps.indices(), window: height * width, inputs, order }
    }

    /// Returns the element of a filter at a depth and column.
    fn element(&self, filter: &[f32], depth: usize, column: usize) -> f32 {
        let count = self.taps.len();
        let split = |at: usize, channels: usize| (self.taps[at / channels] as usize, at % channels);
        let (tap, output, input) = match self.order {
            SummedChannels::Inputs => {
                let (tap, input) = split(depth, self.layout.depth / count);
                (tap, column, input)
            }
            SummedChannels::Outputs => {
                let (tap, output) = split(depth, self.layout.depth / count);
                (tap, output, column)
            }
            SummedChannels::OutputsAlone => {
                let (tap, input) = split(column, self.inputs);
                (tap, depth, input)
            }
        };
        filter[(output * self.inputs + input) * self.window + tap]
    }

    /// Returns the packed filter: `prepacked` if there is one, else packed from `filter` into `out` on these threads.
    pub(super) fn get_or_pack<'a>(
        &self,
        threads: &CpuThreads,
        filter: &[f32],
        out: &'a mut [f32],
        prepacked: Option<&'a [f32]>,
    ) -> PackedMatrix<'a> {
        let layout = self.layout;
        if let Some(data) = prepacked {
            return PackedMatrix { layout, data };
        }
        let out = &mut out[..layout.len()];
        threads.for_each(layout.len(), split_panels(layout, out), |part| {
            part.pack_with(|depth, column| self.element(filter, depth, column));
        });
        PackedMatrix { layout, data: out }
    }
}

impl PackedLayout for PackedFilterLayout {
    fn elements(&self) -> usize {
        self.layout.len()
    }

    fn pack(&self, from: &[f32], out: &mut [f32]) {
        for part in split_panels(self.layout, out) {
            part.pack_with(|depth, column| self.element(from, depth, column));
        }
    }

    fn is_same(&self, other: &dyn PackedLayout) -> bool {
        is_same_layout(self, other)
    }
}
