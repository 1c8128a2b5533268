//! The terminal while the screen is shown: raw, on its alternate screen, with the mouse. It is restored when the session
//! ends, in whatever way.

use std::io::{self, Stdout, Write as _, stdout};
use std::panic;
use std::thread::{self, ThreadId};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use rustix::process::{Signal, kill_current_process_group};

/// The exit code of a program that panicked, as the standard library sets it.
const PANIC_EXIT_CODE: i32 = 101;

/// The terminal while the screen is shown. Dropping it restores the terminal.
pub struct TerminalSession {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalSession {
    /// Prepares the terminal. From now on, a panic of any thread restores it and ends the program.
    ///
    /// # Errors
    /// The terminal cannot be prepared; it is then as before.
    pub fn start() -> io::Result<TerminalSession> {
        restore_on_panic(thread::current().id());
        let entered = enter_screen();
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        terminal.map(|terminal| TerminalSession { terminal }).inspect_err(|_| leave_screen())
    }

    /// Draws a screen. Only cells that differ from the last one are written, as one synchronized update: terminals that know
    /// those (mode 2026) never show a part of it.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop);
        drawn.and(execute!(self.terminal.backend_mut(), EndSynchronizedUpdate))
    }

    /// Restores the terminal and stops the processes of this job, as Ctrl-Z does outside of raw mode. Returns when the
    /// shell continues them.
    ///
    /// # Errors
    /// The terminal cannot be prepared again.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave_screen();
        kill_current_process_group(Signal::TSTP)?;
        self.resume()
    }

    /// Prepares the terminal again and draws the whole screen at the next time.
    ///
    /// # Errors
    /// The terminal cannot be prepared.
    pub fn resume(&mut self) -> io::Result<()> {
        // Another program can have changed the modes, which would be taken for those from before this session.
        let _ = disable_raw_mode();
        enter_screen()?;
        execute!(stdout(), Clear(ClearType::All))?;
        // One that has drawn nothing. `Terminal::clear` would ask the terminal for the cursor's position, and the answer
        // would go to the thread that reads keys.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        leave_screen();
    }
}

fn enter_screen() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, Hide)
}

/// Restores the terminal. Errors are ignored, because nothing could be done about them.
fn leave_screen() {
    let _ = execute!(stdout(), EndSynchronizedUpdate, DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// Restores the terminal before the message of a panic. Another thread than the owner of the terminal would not end the
/// program, which would continue to draw without it.
fn restore_on_panic(owner: ThreadId) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        leave_screen();
        before(info);
        if thread::current().id() != owner {
            std::process::exit(PANIC_EXIT_CODE);
        }
    }));
}
