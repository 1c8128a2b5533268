//! How lines differ: by colour, and by the shape of their markers for readers who do not see colours.

use plotters::element::Polygon;
use plotters::style::RGBColor;

/// The colour of text and axes.
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// The colour of notes and boundaries.
pub(crate) const MUTED: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// The colour of the grid.
pub(crate) const GRID: RGBColor = RGBColor(0xdc, 0xdc, 0xdc);
/// The colour of the grid's lines between labels.
pub(crate) const FINE_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// Colours that people with any kind of colour vision distinguish, of different lightness. Source: Okabe and Ito,
/// Color Universal Design, 2008, without yellow, which is too light for a line, and with brown.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x7a, 0x3b, 0x0e),
];

/// Colours of terminals with 256 colours that are nearest to those of Okabe and Ito: blue, vermilion, bluish green, reddish
/// purple, sky blue and orange. Without black and yellow, which a dark or a light background hides.
const TERMINAL_COLOURS: [u8; 6] = [32, 166, 36, 175, 74, 214];

/// Returns the colour of a line in a terminal with 256 colours, by its index.
pub fn terminal_line_colour(line: usize) -> u8 {
    TERMINAL_COLOURS[line % TERMINAL_COLOURS.len()]
}

/// Returns the letter of a line, so that lines differ without colours too.
pub fn line_letter(line: usize) -> char {
    char::from(b'A' + u8::try_from(line % 26).unwrap_or(0))
}

/// The corners of the markers' shapes, in shares of their radius.
const SHAPES: [&[(f64, f64)]; 8] = [
    // A circle.
    &[(1.0, 0.0), (0.7, 0.7), (0.0, 1.0), (-0.7, 0.7), (-1.0, 0.0), (-0.7, -0.7), (0.0, -1.0), (0.7, -0.7)],
    // A square.
    &[(0.9, 0.9), (-0.9, 0.9), (-0.9, -0.9), (0.9, -0.9)],
    // A triangle.
    &[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)],
    // A diamond.
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    // A cross.
    &[
        (0.4, -1.2),
        (0.4, -0.4),
        (1.2, -0.4),
        (1.2, 0.4),
        (0.4, 0.4),
        (0.4, 1.2),
        (-0.4, 1.2),
        (-0.4, 0.4),
        (-1.2, 0.4),
        (-1.2, -0.4),
        (-0.4, -0.4),
        (-0.4, -1.2),
    ],
    // A triangle that points down.
    &[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)],
    // A bar.
    &[(0.45, -1.4), (0.45, 1.4), (-0.45, 1.4), (-0.45, -1.4)],
    // An hourglass.
    &[(1.1, -1.2), (-1.1, 1.2), (1.1, 1.2), (-1.1, -1.2)],
];

/// The style of the line with a number. The first 64 differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineStyle {
    index: usize,
}

impl LineStyle {
    pub(crate) fn new(index: usize) -> LineStyle {
        LineStyle { index }
    }

    pub(crate) fn colour(self) -> RGBColor {
        COLOURS[self.index % COLOURS.len()]
    }

    /// Returns the colour of the values behind a smoothed line.
    pub(crate) fn faint_colour(self) -> RGBColor {
        mix(RGBColor(0xff, 0xff, 0xff), self.colour(), 0.3)
    }

    /// Returns the marker around a place in a colour.
    pub(crate) fn marker(self, (x, y): (i32, i32), radius: f64, colour: RGBColor) -> Polygon<(i32, i32)> {
        let shape = SHAPES[(self.index + self.index / COLOURS.len()) % SHAPES.len()];
        let corner = |(dx, dy): &(f64, f64)| (x + (dx * radius).round() as i32, y + (dy * radius).round() as i32);
        Polygon::new(shape.iter().map(corner).collect::<Vec<_>>(), colour)
    }
}

/// Returns a colour between two others: `share` of the second one.
pub(crate) fn mix(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let channel = |one: u8, other: u8| (f64::from(one) + (f64::from(other) - f64::from(one)) * share).round() as u8;
    RGBColor(channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}

/// Returns the colour of a place between the worst, 0, and the best, 1: from light to dark blue, so that the best are
/// the darkest in black and white too.
pub(crate) fn ramp(place: f64) -> RGBColor {
    let stops = [RGBColor(0xc3, 0xd5, 0xe6), RGBColor(0x4a, 0x94, 0xc6), RGBColor(0x08, 0x30, 0x6b)];
    match place {
        place if place < 0.5 => mix(stops[0], stops[1], place.max(0.0) * 2.0),
        place => mix(stops[1], stops[2], (place.min(1.0) - 0.5) * 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lightness of a colour in grey, from 0 to 255. Source: ITU-R BT.601.
    fn grey(colour: RGBColor) -> f64 {
        0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2)
    }

    #[test]
    fn every_colour_has_contrast_to_white_and_the_ramp_becomes_darker() {
        assert!(COLOURS.iter().all(|colour| grey(*colour) < 180.0));
        let ramp: Vec<f64> = (0..=20).map(|step| grey(ramp(f64::from(step) / 20.0))).collect();
        assert!(ramp.is_sorted_by(|one, other| one > other), "{ramp:?}");
    }

    #[test]
    fn the_first_64_lines_differ_by_colour_or_marker() {
        let styles: std::collections::BTreeSet<(usize, usize)> =
            (0..64).map(|index| (index % 8, (index + index / 8) % 8)).collect();
        assert_eq!(styles.len(), 64);
    }
}
