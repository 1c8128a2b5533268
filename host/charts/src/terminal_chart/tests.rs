use expect_test::{Expect, expect};

use super::*;
use crate::curve::{AttemptBoundary, SeriesLine};

fn chart() -> LineChart {
    let falling = (0..=100).map(|step| (step, 2.0 / (1.0 + step as f64 / 10.0))).collect();
    let rising = (0..=10).map(|step| (step * 10, step as f64 / 5.0)).collect();
    LineChart {
        title: "loss".to_owned(),
        x_label: "step".to_owned(),
        lines: vec![
            SeriesLine { name: "loss".to_owned(), points: falling },
            SeriesLine { name: "accuracy".to_owned(), points: rising },
        ],
        ..LineChart::default()
    }
}

fn check(chart: &LineChart, expected: &Expect) {
    expected.assert_eq(&terminal_chart(chart, TerminalSize { columns: 60, rows: 10 }, false));
}

#[test]
fn lines_have_letters_that_the_legend_explains() {
    check(
        &chart(),
        &expect![[r#"
            loss
             2.0 ┤⡄                                                  ⢀⣀B
                 │⠸⡀                                           ⢀⣀⡠⠤⠒⠊⠁
             1.5 ┤ ⠱⡀                                     ⣀⠤⠔B⠉⠁
                 │  ⠱⡀                              ⢀⡠⠤⠒⠊⠉
                 │   ⠑⠤⡀                      ⣀⡠⠤⠔⠒⠉⠁
             1.0 ┤     ⠈⠢⡀              ⢀⣀⠤⠒⠊⠉
                 │       ⠈A⠢⢄⣀⡀    ⣀⡠⠔⠒⠉⠁
             0.5 ┤           ⢀⣈⠭⠒⠚B⠤⣀⣀⣀⡀
                 │     ⣀⡠⠤⠒⠒⠉⠁         ⠈⠉⠉⠉⠑⠒⠒⠒⠒⠒⠤A⠤⠤⠤⠤⠤⠤⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀
               0 ┤⣀⠤⠔⠊⠉                                               ⠉A
                 └┬──────────────────────────┬─────────────────────────┬
                  0                         50                       100
                                           step
            A loss  0.1818   B accuracy  2
        "#]],
    );
}

#[test]
fn boundaries_and_gaps_are_drawn() {
    let mut chart = chart();
    chart.lines.truncate(1);
    chart.is_log = true;
    chart.lines[0].points[30..40].iter_mut().for_each(|point| point.1 = f64::NAN);
    chart.boundaries = vec![AttemptBoundary { step: 60, attempt: 2 }];
    check(
        &chart,
        &expect![[r#"
            loss (log scale)
               2 ┤⢄                               ┊
                 │ ⠱⡀                             ┊
                 │  ⠈⠢⠤⡀                          ┊
               1 ┤     ⠈⠒⢄⡀                       ┊
                 │        ⠈⠑⠤⣀⣀                   ┊
             0.5 ┤             ⠉⠒⠤                ┊
                 │                     ⠠⠤⢄⣀       ┊
                 │                         ⠉⠉⠑⠒⠒⠤⠤⣀⣀⡀
                 │                                ┊ ⠈⠉⠉⠑⠒⠒⠢⠤⠤⠤⣀⣀⣀
             0.2 ┤                                ┊              ⠉⠉⠉⠉⠒⠒⠒
                 └┬──────────────────────────┬─────────────────────────┬
                  0                         50                       100
                                           step
            ⣀ loss  0.1818 (10 not finite)
            ┊ start of attempt 2
        "#]],
    );
}

#[test]
fn nothing_to_draw_is_stated() {
    let text = terminal_chart(&LineChart::default(), TerminalSize { columns: 0, rows: 0 }, false);
    assert!(text.contains("no values that can be drawn"), "{text}");
}

#[test]
fn colours_are_the_only_control_characters() {
    let mut chart = chart();
    chart.lines[0].name = "\x1b[2J\r\n\u{202e}".repeat(1000);
    chart.title = "\x07\u{9b}".repeat(1000);
    let size = TerminalSize { columns: 80, rows: 12 };
    let plain = terminal_chart(&chart, size, false);
    assert!(plain.chars().all(|c| c == '\n' || !c.is_control()), "{plain:?}");
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    let coloured = terminal_chart(&chart, size, true);
    let stripped = (0..6)
        .fold(coloured.clone(), |text, line| text.replace(&format!("\x1b[38;5;{}m", terminal_line_colour(line)), ""));
    assert_eq!(stripped.replace("\x1b[0m", ""), plain);
    assert_ne!(coloured, plain);
}

#[test]
fn charts_fit_terminals_of_every_width() {
    let mut chart = chart();
    chart.lines =
        (0..30).map(|index| SeriesLine { name: format!("digits-{index}"), ..chart.lines[0].clone() }).collect();
    for columns in [60, 61, 100, 299, 300] {
        let text = terminal_chart(&chart, TerminalSize { columns, rows: 15 }, false);
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}\n{text}");
        assert!(text.contains("6 more are not drawn"));
    }
}
