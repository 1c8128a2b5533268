//! The keys and the mouse as actions.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};

use crate::top_view::TopView;

/// What a key, a click or the wheel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopAction {
    Quit,
    Suspend,
    Refresh,
    /// Leaves an overlay; without one, ends.
    Close,
    Help,
    PickSeries,
    Pause,
    View(TopView),
    /// Goes this many views on.
    NextView(isize),
    Up,
    Down,
    Earlier,
    Later,
    Now,
    LongerWindow,
    ShorterWindow,
    HalveRange,
    DoubleRange,
    AutomaticRange,
    FullRange,
    /// Goes this many panels on.
    NextPanel(isize),
    NextMetric,
    Open,
    /// Adds or removes the selected series.
    Toggle,
    Backspace,
    Type(char),
    /// A click at a column and a row.
    Click(u16, u16),
}

/// The keys, for the page of keys: what is pressed, and what it does.
pub(crate) const KEY_TEXTS: [(&str, &str); 16] = [
    ("q  Esc  Ctrl-C", "end"),
    ("Tab  1 2 3 4", "choose a view: jobs, models, devices, charts"),
    ("↑ ↓", "select a row; in the charts, pan by 20 % of the range"),
    ("+  -", "halve, double the range"),
    ("← →", "pan in time by 20 % of the window"),
    ("<  >", "halve, double the window"),
    ("n", "follow the newest refresh again"),
    ("a", "automatic range, without outliers"),
    ("f", "automatic range of every value"),
    ("s", "choose the series of the charts"),
    ("[  ]", "choose the panel that keys change"),
    ("m", "next metric in the table of jobs"),
    ("Enter", "chart the selected row"),
    ("r", "refresh now"),
    ("p", "pause, continue"),
    ("Ctrl-Z", "suspend; fg in the shell continues"),
];

/// Returns the action of an event, or `None` if it has none. While the user chooses series, letters are typed.
pub(crate) fn action_of(event: &Event, is_typing: bool) -> Option<TopAction> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_action(key, is_typing),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(TopAction::Click(mouse.column, mouse.row)),
            MouseEventKind::ScrollUp => Some(TopAction::Up),
            MouseEventKind::ScrollDown => Some(TopAction::Down),
            _ => None,
        },
        _ => None,
    }
}

fn key_action(key: &KeyEvent, is_typing: bool) -> Option<TopAction> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(TopAction::Quit),
            KeyCode::Char('z') => Some(TopAction::Suspend),
            KeyCode::Char('l') => Some(TopAction::Refresh),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Esc => TopAction::Close,
        KeyCode::Up => TopAction::Up,
        KeyCode::Down => TopAction::Down,
        KeyCode::Left => TopAction::Earlier,
        KeyCode::Right => TopAction::Later,
        KeyCode::End => TopAction::Now,
        KeyCode::Tab => TopAction::NextView(1),
        KeyCode::BackTab => TopAction::NextView(-1),
        KeyCode::Enter => TopAction::Open,
        KeyCode::Backspace => TopAction::Backspace,
        KeyCode::Char(' ') => TopAction::Toggle,
        KeyCode::Char(letter) if is_typing => TopAction::Type(letter),
        KeyCode::Char(letter) => return letter_action(letter),
        _ => return None,
    })
}

fn letter_action(letter: char) -> Option<TopAction> {
    Some(match letter {
        'q' => TopAction::Quit,
        'r' => TopAction::Refresh,
        'p' => TopAction::Pause,
        '?' | 'h' => TopAction::Help,
        's' => TopAction::PickSeries,
        '+' | '=' => TopAction::HalveRange,
        '-' | '_' => TopAction::DoubleRange,
        'a' => TopAction::AutomaticRange,
        'f' => TopAction::FullRange,
        '<' | ',' => TopAction::ShorterWindow,
        '>' | '.' => TopAction::LongerWindow,
        'n' => TopAction::Now,
        '[' => TopAction::NextPanel(-1),
        ']' => TopAction::NextPanel(1),
        'm' => TopAction::NextMetric,
        '1'..='4' => TopAction::View(TopView::ALL[letter as usize - '1' as usize]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers, is_typing: bool) -> Option<TopAction> {
        action_of(&Event::Key(KeyEvent::new(code, modifiers)), is_typing)
    }

    #[test]
    fn keys_have_their_actions_and_letters_are_typed_into_a_filter() {
        let plain = |letter| press(KeyCode::Char(letter), KeyModifiers::NONE, false);
        assert_eq!(plain('q'), Some(TopAction::Quit));
        assert_eq!(plain('4'), Some(TopAction::View(TopView::Charts)));
        assert_eq!(plain('x'), None);
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE, true), Some(TopAction::Type('q')));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL, true), Some(TopAction::Quit));
        assert_eq!(press(KeyCode::Char(' '), KeyModifiers::NONE, true), Some(TopAction::Toggle));
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(action_of(&Event::Key(released), false), None);
    }
}
