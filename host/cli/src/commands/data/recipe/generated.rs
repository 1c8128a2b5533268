//! Datasets that are computed: points of a plane with a class.

use std::f64::consts::{PI, TAU};
use std::fmt::Write;

/// The description of [`moons`].
pub(super) const MOONS: &str = r#"{
  "format": "csv",
  "file": "points.csv",
  "description": "Points on two half circles with noise",
  "fields": [
    { "name": "x", "columns": [0, 2], "shape": [2], "dtype": "float32" },
    { "name": "label", "columns": [2, 3], "dtype": "uint8", "classes": ["upper", "lower"] }
  ],
  "splits": { "train": 0.8, "test": 0.2 }
}
"#;

/// The description of [`spirals`].
pub(super) const SPIRALS: &str = r#"{
  "format": "csv",
  "file": "points.csv",
  "description": "Points on three spirals with noise",
  "fields": [
    { "name": "x", "columns": [0, 2], "shape": [2], "dtype": "float32" },
    { "name": "label", "columns": [2, 3], "dtype": "uint8", "classes": ["a", "b", "c"] }
  ],
  "splits": { "train": 0.8, "test": 0.2 }
}
"#;

/// Points of each moon.
const MOON_POINTS: u32 = 1_000;
/// Points of each spiral.
const SPIRAL_POINTS: u32 = 1_000;
/// Standard deviation of the noise.
const NOISE: f64 = 0.1;

/// A generator of numbers (SplitMix64), so that a recipe gives the same points every time.
struct SplitMix(u64);

impl SplitMix {
    /// Returns a number from 0 to below 1. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number
    /// generators", 2014.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a normally distributed number (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }
}

/// Returns rows `x,y,class`. Classes take turns, so that both splits have all of them.
pub(super) fn moons() -> String {
    let mut random = SplitMix(1);
    let mut rows = String::new();
    for _ in 0..MOON_POINTS {
        for class in 0..2 {
            let angle = PI * random.uniform();
            let (x, y) = if class == 0 { (angle.cos(), angle.sin()) } else { (1.0 - angle.cos(), 0.5 - angle.sin()) };
            push_row(&mut rows, x + NOISE * random.normal(), y + NOISE * random.normal(), class);
        }
    }
    rows
}

/// Returns rows `x,y,class`.
pub(super) fn spirals() -> String {
    let mut random = SplitMix(2);
    let mut rows = String::new();
    for _ in 0..SPIRAL_POINTS {
        for class in 0..3 {
            let radius = random.uniform();
            let angle = 4.0 * radius + TAU * f64::from(class) / 3.0 + 2.0 * NOISE * random.normal();
            push_row(&mut rows, radius * angle.sin(), radius * angle.cos(), class);
        }
    }
    rows
}

fn push_row(rows: &mut String, x: f64, y: f64, class: i32) {
    let _ = writeln!(rows, "{x:.5},{y:.5},{class}");
}
