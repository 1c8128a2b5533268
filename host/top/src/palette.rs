//! The colours of the screen. Every meaning of a colour is also a letter, a word or a shape, so the screen is complete
//! without colours.

use ratatui::style::{Color, Modifier, Style};
use saggar_charts::terminal_line_colour;

/// Whether the screen has colours.
#[derive(Clone, Copy, Debug)]
pub struct TopPalette {
    has_colours: bool,
}

/// The colours of states, of those of Okabe and Ito that are nearest in 256 colours.
const GOOD: Color = Color::Indexed(36);
const WORKING: Color = Color::Indexed(74);
const WAITING: Color = Color::Indexed(214);
const BAD: Color = Color::Indexed(166);

impl TopPalette {
    /// Returns the palette; without colours it has bold, dim and reversed text alone.
    pub fn new(has_colours: bool) -> TopPalette {
        TopPalette { has_colours }
    }

    /// Returns the style of the line with a number.
    pub(crate) fn line(self, index: usize) -> Style {
        self.coloured(Color::Indexed(terminal_line_colour(index)))
    }

    /// Returns the style of the state of a job, a model or a server.
    pub(crate) fn state(self, state: &str) -> Style {
        match state {
            "READY" | "SUCCEEDED" => self.coloured(GOOD),
            "RUNNING" | "STARTING" | "LOADING" => self.coloured(WORKING),
            "QUEUED" | "PAUSED" | "STOPPING" | "ASLEEP" => self.coloured(WAITING),
            "FAILED" | "TIMED_OUT" => self.bad(),
            _ => Style::new(),
        }
    }

    pub(crate) fn bad(self) -> Style {
        self.coloured(BAD).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}
