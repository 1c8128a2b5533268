//! `panic-in-terminal main|thread`: prepares the terminal as `saggar top` does, draws, and panics in the main thread or in
//! another one. A test checks that the terminal is restored.

use saggar_top::terminal_session::TerminalSession;

fn main() {
    let thread = std::env::args().nth(1).expect("main or thread");
    let mut session = TerminalSession::start().expect("a terminal");
    let text = "drawn before the panic";
    session
        .draw(|buffer| {
            for (column, letter) in (0..).zip(text.chars()) {
                buffer[(column, 0)].set_char(letter);
            }
        })
        .expect("the terminal can be written");
    let mut line = String::new();
    // The test looks at the screen first.
    std::io::stdin().read_line(&mut line).expect("a key");
    if thread == "thread" {
        let ended = std::thread::spawn(|| panic!("a deliberate panic of another thread")).join();
        unreachable!("the panic ended the program, and not only its thread: {ended:?}");
    }
    panic!("a deliberate panic");
}
