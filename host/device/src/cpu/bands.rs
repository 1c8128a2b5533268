//! How one large product is cut into tasks: bands of rows by stretches of panels. By its shape alone, and no bit of the
//! result depends on it.

use super::gemm::pack::Layout;
use super::gemm::product::Columns;

/// Multiply-adds of one task: some 100 microseconds of a core.
pub(super) const TASK_MULTIPLY_ADDS: usize = 8 << 20;
/// More tasks than this give no better balance.
pub(super) const TASKS_MAX: usize = 32;
/// Rows of the product that are worth a task of their own: several tiles.
const TASK_PLACES_MIN: usize = 48;
/// Rows of tasks are multiples of this where there are enough, which suits every tile.
const TASK_PLACES_STEP: usize = 12;

/// A task: groups of rows, panels, and the rows of these panels.
pub(super) type Tile<'a> = (std::ops::Range<usize>, Columns, Vec<&'a mut [f32]>);

/// The cut of a product whose rows come in groups of `places` that stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bands {
    /// Groups in all.
    rows: usize,
    /// Groups of a band.
    pub(super) height: usize,
    /// Rows of the product in a group.
    places: usize,
    /// Panels of a stretch.
    pub(super) panels: usize,
    layout: Layout,
}

impl Bands {
    /// For `rows` groups of `places` rows, and a second operand of this layout.
    pub(super) fn new(rows: usize, places: usize, layout: Layout) -> Bands {
        let places = places.max(1);
        let (m, n) = (rows * places, layout.columns);
        let work = m.saturating_mul(n).saturating_mul(layout.depth);
        let tasks = (work / TASK_MULTIPLY_ADDS).clamp(1, TASKS_MAX);
        // Every band of rows reads all panels and every stretch of panels all rows: the cut that reads least.
        let bands = (tasks * m / n.max(1)).isqrt().clamp(1, tasks).min(m.div_ceil(TASK_PLACES_MIN).max(1));
        let together = m.div_ceil(bands).next_multiple_of(TASK_PLACES_STEP);
        let height = together.div_ceil(places).clamp(1, rows.max(1));
        let stretches = tasks.div_ceil(rows.div_ceil(height).max(1)).clamp(1, layout.panels().max(1));
        Bands { rows, height, places, panels: layout.panels().div_ceil(stretches).max(1), layout }
    }

    /// Whether tasks compute whole rows.
    pub(super) fn is_whole(&self) -> bool {
        self.panels >= self.layout.panels()
    }

    /// The groups of each band.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let Bands { rows, height, .. } = *self;
        (0..rows).step_by(height.max(1)).map(move |first| first..(first + height).min(rows))
    }

    /// The tasks that compute `out`.
    pub(super) fn tiles<'a>(&self, out: &'a mut [f32]) -> Vec<Tile<'a>> {
        let columns = self.layout.columns;
        let width = self.panels * self.layout.panel_columns();
        let mut tasks = Vec::new();
        for (groups, out) in self.ranges().zip(out.chunks_mut(self.height * self.places * columns)) {
            let rows = groups.len() * self.places;
            let mut cut: Vec<Vec<&mut [f32]>> =
                (0..columns.div_ceil(width)).map(|_| Vec::with_capacity(rows)).collect();
            for row in out.chunks_exact_mut(columns) {
                for (stretch, part) in cut.iter_mut().zip(row.chunks_mut(width)) {
                    stretch.push(part);
                }
            }
            for (stretch, rows) in cut.into_iter().enumerate() {
                let first = stretch * self.panels;
                let end = (first + self.panels).min(self.layout.panels());
                tasks.push((groups.clone(), Columns { first, end }, rows));
            }
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_in_one_task() {
        for [rows, places, columns, depth] in [
            [1, 1, 1, 1],
            [128, 1, 768, 768],
            [512, 1, 512, 512],
            [56, 56, 64, 576],
            [7, 7, 512, 4608],
            [9, 1, 4000, 1000],
        ] {
            let bands = Bands::new(rows, places, Layout::new(depth, columns));
            let mut out = vec![0.0; rows * places * columns];
            let tasks = bands.tiles(&mut out);
            assert!(tasks.len() <= 2 * TASKS_MAX, "{rows} {places} {columns} {depth}: {} tasks", tasks.len());
            for (_, _, parts) in tasks {
                parts.into_iter().flatten().for_each(|element| *element += 1.0);
            }
            assert!(out.iter().all(|&element| element == 1.0), "{rows} {places} {columns} {depth}");
        }
    }
}
