//! Convolutions of three by three taps with channels last, tile by tile in the domain where they are products of fewer
//! multiplications: 36 for sixteen results instead of 144, or sixteen for four instead of 36.
//!
//! A number that is not finite, or past about 10^36, reaches all results of its tiles and not only those whose windows
//! it is in: a difference of two infinities is none.

mod filter;
mod transform;

pub(super) use filter::PointsForm;

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::contract::{finish_chunk, with_windows};
use super::ending::{Ending, Ends};
use super::evaluate::with_scratch;
use super::gemm::pack::Layout;
use super::gemm::product::Right;
use super::gemm::{Matrix, multiply_by};
use super::kept::{Form, Kept};
use super::lanes::{elements, elements_mut};
use super::map::{Accumulation, Finish};
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::threads::Threads;
use super::vector::{self, VectorWork, Vectors};
use transform::{Four, SIDE_MAX, Tile, Two, enter, leave};

/// A size of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Four results a side.
    Four,
    /// Two results a side.
    Two,
}

impl Size {
    fn side(self) -> usize {
        match self {
            Size::Four => Four::SIDE,
            Size::Two => Two::SIDE,
        }
    }

    fn step(self) -> usize {
        match self {
            Size::Four => Four::STEP,
            Size::Two => Two::STEP,
        }
    }

    fn points(self) -> usize {
        self.side() * self.side()
    }
}

/// What transforming one element takes, in multiply-adds of a product.
const TRANSFORM: usize = 10;
/// What reading one element of a filter takes: filters are larger than the caches, and are read once for each batch.
const READ: usize = 8;
/// What making one element of a filter takes, where it changes from step to step.
const MAKE: usize = 60;
/// Elements of tiles that are between their transforms at the same time: they should stay in the last-level cache.
const BAND_ELEMENTS: usize = 1 << 20;

/// A convolution by tiles, with an epilogue.
#[derive(Debug)]
pub(super) struct Winograd {
    images: usize,
    /// Height and width of an image.
    size: [usize; 2],
    /// Of images and of results.
    channels: [usize; 2],
    /// Rows and columns of results.
    places: [usize; 2],
    /// Rows above and columns before the first element.
    before: [usize; 2],
    input: usize,
    filter: usize,
    form: PointsForm,
    kept: Option<Kept>,
    ending: Option<Ending>,
    finish: Finish,
}

/// The tile that takes least, if any takes less than sums of products do: by the image and not by the batch, so that an
/// image has the same bits in every batch, but where the filter changes from step to step.
fn choose(conv: &Conv2d, filter: &[usize], result: &[usize; 4], kept: bool) -> Option<Size> {
    let plain = conv.groups == 1 && conv.strides == [1, 1] && conv.dilations == [1, 1];
    let &[outputs, inputs, 3, 3] = filter else { return None };
    let [images, height, width, _] = *result;
    if !plain || images * height * width * outputs * inputs == 0 {
        return None;
    }
    let pairs = inputs * outputs;
    let direct = 9 * pairs * (height * width + READ);
    let cost = |size: Size| {
        let tiles = height.div_ceil(size.step()) * width.div_ceil(size.step());
        let filter = if kept { READ } else { READ + MAKE.div_ceil(images) };
        size.points() * (tiles * (pairs + TRANSFORM * (inputs + outputs)) + pairs * filter)
    };
    let best = [Size::Four, Size::Two].into_iter().min_by_key(|&size| cost(size))?;
    (5 * cost(best) < 4 * direct).then_some(best)
}

impl Winograd {
    /// Prepares a `Body::Conv2d` with channels last of `[input, filter]`, if it is worth it.
    pub(super) fn new(
        planner: &Planner<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Option<Winograd>, Refusal> {
        let (dims, window) = (planner.dims(input), planner.dims(filter));
        let block = planner.kept(filter);
        let Some(size) = choose(conv, window, result, block.is_some()) else { return Ok(None) };
        let form = PointsForm { layout: Layout::new(dims[3], result[3]), size };
        let kept = block.map(|block| Kept { block, form: Form::Points(form), dtype: planner.dtype(filter) });
        Ok(Some(Winograd {
            images: dims[0],
            size: [dims[1], dims[2]],
            channels: [dims[3], result[3]],
            places: [result[1], result[2]],
            before: [conv.padding[0], conv.padding[2]],
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            form,
            kept,
            ending: Ending::of(planner, result, 3, epilogue),
            finish: Finish::epilogue(planner, result, epilogue)?,
        }))
    }

    /// The filter at the points, where it stays as it is.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// What is accumulated outside the stores, tiles between their transforms, and a filter.
    pub(super) fn workspace_bytes(&self) -> usize {
        let filter = if self.kept.is_none() { self.form.len() } else { 0 };
        4 * (self.accumulated() + self.band_rows() * self.row_elements() + filter)
    }

    fn accumulated(&self) -> usize {
        if self.finish.accumulation == Accumulation::Workspace { self.finish.elements } else { 0 }
    }

    /// Rows and columns of tiles of an image.
    fn grid(&self) -> [usize; 2] {
        self.places.map(|places| places.div_ceil(self.form.size.step()))
    }

    /// Elements of a row of tiles between its transforms.
    fn row_elements(&self) -> usize {
        self.form.size.points() * self.grid()[1] * (self.channels[0] + self.channels[1])
    }

    /// Rows of tiles that are computed together.
    fn band_rows(&self) -> usize {
        (BAND_ELEMENTS / self.row_elements().max(1)).clamp(1, self.images * self.grid()[0])
    }

    /// Runs it; `kept` is what it asked for.
    pub(super) fn run(
        &self,
        threads: &Threads,
        mut pieces: Vec<Piece<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        let mut stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let images = elements::<f32>(pieces[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, rest) = workspace.split_at_mut(self.accumulated());
        let (between, rest) = rest.split_at_mut(self.band_rows() * self.row_elements());
        let filter = kept.unwrap_or_else(|| {
            let taps = elements::<f32>(pieces[self.filter].read());
            threads.each(9 * self.form.len(), self.form.parts(rest), |part| self.form.fill(taps, part));
            &rest[..self.form.len()]
        });
        let bias = self.ending.and_then(|ending| ending.bias).map(|region| elements::<f32>(pieces[region].read()));
        let ends = self.ending.map(|ending| ending.with(bias));
        let chunks = self.finish.chunks(std::mem::take(&mut stores), self.counts());
        let mut tasks = with_windows(chunks, sums, self.finish.accumulation).into_iter().enumerate();
        loop {
            let band: Vec<_> = tasks.by_ref().take(self.band_rows()).collect();
            let Some(&(first, _)) = band.first() else { break };
            let tiles = band.len() * self.grid()[1];
            let points = self.form.size.points();
            let (entered, left) = between.split_at_mut(points * tiles * self.channels[0]);
            let left = &mut left[..points * tiles * self.channels[1]];
            self.enter(threads, images, first, entered);
            self.multiply(threads, tiles, entered, filter, left);
            threads.each(TRANSFORM * left.len(), band, |(row, (mut chunk, window))| {
                let tile = (row - first) * self.grid()[1];
                match ends {
                    Some(ends) => self.leave(left, tile, elements_mut(chunk.stores[0]), ends),
                    None => finish_chunk(&self.finish, &inputs, chunk, window, |out, _| {
                        self.leave(left, tile, out, Ends::NONE);
                    }),
                }
            });
        }
    }

    /// Elements of results of each row of tiles.
    fn counts(&self) -> impl Iterator<Item = usize> {
        let step = self.form.size.step();
        let [height, width] = self.places;
        let rows = move || (0..height).step_by(step).map(move |row| step.min(height - row));
        let row = width * self.channels[1];
        (0..self.images).flat_map(move |_| rows()).map(move |rows| rows * row)
    }

    /// Transforms the tiles of rows from `first` on: `[points, tiles, channels]`.
    fn enter(&self, threads: &Threads, images: &[f32], first: usize, out: &mut [f32]) {
        let row = self.grid()[1] * self.channels[0];
        let rows = out.len() / (self.form.size.points() * row);
        let mut tasks: Vec<Vec<&mut [f32]>> = (0..rows).map(|_| Vec::new()).collect();
        for point in out.chunks_exact_mut(rows * row) {
            for (task, part) in tasks.iter_mut().zip(point.chunks_exact_mut(row)) {
                task.push(part);
            }
        }
        let tasks: Vec<_> = tasks.into_iter().enumerate().collect();
        threads.each(TRANSFORM * rows * row, tasks, |(at, out)| {
            let row = first + at;
            match self.form.size {
                Size::Four => vector::run(Enter::<Four> { conv: self, images, row, out, tile: Four }),
                Size::Two => vector::run(Enter::<Two> { conv: self, images, row, out, tile: Two }),
            }
        });
    }

    /// The products at every point.
    fn multiply(&self, threads: &Threads, tiles: usize, from: &[f32], filter: &[f32], out: &mut [f32]) {
        let [inputs, outputs] = self.channels;
        let tasks: Vec<_> =
            out.chunks_exact_mut(tiles * outputs).zip(from.chunks_exact(tiles * inputs)).enumerate().collect();
        let operations = tasks.len() * tiles * inputs * outputs;
        threads.each(operations, tasks, |(point, (out, from))| {
            let (a, b) = (Matrix::new(from, inputs, tiles, false), Right::Packed(self.form.at(filter, point)));
            with_scratch(|scratch| multiply_by(out, a, b, false, None, &mut scratch.product));
        });
    }

    /// Transforms a row of tiles, from `tile` on in `from`, back to results.
    fn leave(&self, from: &[f32], tile: usize, out: &mut [f32], ends: Ends<'_>) {
        match self.form.size {
            Size::Four => vector::run(Leave::<Four> { conv: self, from, first: tile, out, ends, tile: Four }),
            Size::Two => vector::run(Leave::<Two> { conv: self, from, first: tile, out, ends, tile: Two }),
        }
    }
}

/// The way in of a row of tiles.
struct Enter<'a, 'o, T> {
    conv: &'a Winograd,
    images: &'a [f32],
    /// Counted over all images.
    row: usize,
    /// The row's tiles at each point.
    out: Vec<&'o mut [f32]>,
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Enter<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Enter { conv, images, row, mut out, .. } = self;
        let [rows, columns] = conv.grid();
        let [height, width] = conv.size;
        let channels = conv.channels[0];
        let image = &images[row / rows * height * width * channels..][..height * width * channels];
        let top = (row % rows * T::STEP) as isize - conv.before[0] as isize;
        let zeros = vec![0.0; channels];
        for column in 0..columns {
            let left = (column * T::STEP) as isize - conv.before[1] as isize;
            let mut from = [&zeros[..]; SIDE_MAX * SIDE_MAX];
            for (at, from) in from.iter_mut().enumerate().take(T::SIDE * T::SIDE) {
                let (y, x) = (top + (at / T::SIDE) as isize, left + (at % T::SIDE) as isize);
                if (0..height as isize).contains(&y) && (0..width as isize).contains(&x) {
                    *from = &image[(y as usize * width + x as usize) * channels..][..channels];
                }
            }
            for channel in (0..channels).step_by(S::LANES) {
                let mut square = [[s.splat(0.0); SIDE_MAX]; SIDE_MAX];
                for (y, line) in square.iter_mut().enumerate().take(T::SIDE) {
                    for (x, element) in line.iter_mut().enumerate().take(T::SIDE) {
                        *element = s.load_some(&from[y * T::SIDE + x][channel..]);
                    }
                }
                let square = enter::<S, T>(s, square);
                let place = column * channels + channel..(column + 1) * channels;
                for (y, line) in square.into_iter().enumerate().take(T::SIDE) {
                    for (x, element) in line.into_iter().enumerate().take(T::SIDE) {
                        s.store_some(&mut out[y * T::SIDE + x][place.clone()], element);
                    }
                }
            }
        }
    }
}

/// The way back of a row of tiles.
struct Leave<'a, T> {
    conv: &'a Winograd,
    /// Sums `[points, tiles, channels]`.
    from: &'a [f32],
    /// The row's first tile among them.
    first: usize,
    /// The rows of results that it covers.
    out: &'a mut [f32],
    ends: Ends<'a>,
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Leave<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Leave { conv, from, first, out, ends, .. } = self;
        let (channels, width) = (conv.channels[1], conv.places[1]);
        let plane = from.len() / (T::SIDE * T::SIDE);
        let rows = out.len() / (width * channels);
        for column in 0..conv.grid()[1] {
            let tile = (first + column) * channels;
            let columns = T::STEP.min(width - column * T::STEP);
            for channel in (0..channels).step_by(S::LANES) {
                let mut square = [[s.splat(0.0); SIDE_MAX]; SIDE_MAX];
                for (y, line) in square.iter_mut().enumerate().take(T::SIDE) {
                    for (x, element) in line.iter_mut().enumerate().take(T::SIDE) {
                        let sums = &from[(y * T::SIDE + x) * plane + tile..][..channels];
                        *element = s.load_some(&sums[channel..]);
                    }
                }
                let square = leave::<S, T>(s, square);
                for (y, line) in square.into_iter().enumerate().take(T::STEP.min(rows)) {
                    for (x, mut value) in line.into_iter().enumerate().take(columns) {
                        let place = (y * width + column * T::STEP + x) * channels;
                        if let Some(bias) = ends.bias {
                            value = s.add(value, s.load_some(&bias[channel..channels]));
                        }
                        value = s.at_least(value, s.splat(ends.least));
                        s.store_some(&mut out[place + channel..place + channels], value);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_taken_where_they_save() {
        let conv = |strides| Conv2d { padding: [1; 4], strides, dilations: [1, 1], groups: 1 };
        let tile = |[inputs, outputs, side]: [usize; 3], images, kept| {
            choose(&conv([1, 1]), &[outputs, inputs, 3, 3], &[images, side, side, outputs], kept)
        };
        for images in [1, 32] {
            assert_eq!(tile([64, 64, 56], images, true), Some(Size::Four));
            assert_eq!(tile([48, 35, 14], images, true), Some(Size::Four));
            assert_eq!(tile([512, 512, 7], images, true), Some(Size::Two));
            assert_eq!(tile([90, 70, 10], images, true), Some(Size::Two));
            assert_eq!(tile([512, 512, 2], images, true), None, "the filter would be most of the work");
            assert_eq!(tile([8, 8, 56], images, true), None, "the transforms would be most of the work");
        }
        // To make a filter pays with many images only.
        assert_eq!(tile([64, 64, 14], 1, false), None);
        assert_eq!(tile([64, 64, 14], 32, false), Some(Size::Four));
        assert_eq!(choose(&conv([2, 2]), &[64, 64, 3, 3], &[1, 56, 56, 64], true), None);
        assert_eq!(choose(&conv([1, 1]), &[64, 64, 5, 5], &[1, 56, 56, 64], true), None);
        assert_eq!(tile([64, 64, 56], 0, false), None);
    }
}
