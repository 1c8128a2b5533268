use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect_file;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::documents::{DeviceFigures, HostDocument, JobFigures, ModelFigures};
use crate::host_source::HostSample;
use crate::key_actions::TopAction;
use crate::recorded_series::RecordedSeries;
use crate::series_name::SeriesSelection;
use crate::value_range::RangeSetting;
use crate::view_state::{KeyEffect, TopOptions};

/// The time of the last refresh: 2025-11-26, 23:15:30 UTC.
const NOW_MS: u64 = 1_764_198_930_000;
const REFRESHES: u64 = 120;

fn options(hosts: &[&str], view: TopView, series: &[&str]) -> TopOptions {
    let selectors = series.iter().map(|text| text.parse().unwrap()).collect();
    TopOptions {
        hosts: hosts.iter().map(|host| format!("http://{host}")).collect(),
        interval: Duration::from_secs(2),
        window: Duration::from_secs(240),
        selection: SeriesSelection::new(selectors),
        view,
        range: RangeSetting::default(),
    }
}

fn job(name: &str, state: &str, step: u64, loss: f64) -> JobFigures {
    JobFigures {
        name: name.to_owned(),
        state: state.to_owned(),
        attempt: 1,
        step,
        steps_target: 2000,
        steps_per_second: Some(12.4),
        metrics: BTreeMap::from([("loss".to_owned(), Some(loss)), ("validation/loss".to_owned(), None)]),
        device: Some("vulkan0".to_owned()),
        wall_seconds: step as f64 / 10.0,
    }
}

/// Returns what a server has at the refresh with a number.
fn document(host: &str, number: u64) -> HostDocument {
    let wave = (number as f64 / 9.0).sin();
    let model = |name: &str, requests: f64| ModelFigures {
        name: name.to_owned(),
        state: "READY".to_owned(),
        serving: Some(3),
        requests_per_second: Some(requests),
        errors_per_second: Some(0.0),
        p50_seconds: Some(0.0042),
        p99_seconds: Some(0.0181 + wave / 100.0),
        queue_length: Some(2.0),
        batch_items: Some(7.5),
    };
    HostDocument {
        host: format!("http://{host}"),
        answered: true,
        jobs: vec![
            job("digits-7", "RUNNING", number * 16, 2.3 / (1.0 + number as f64 / 8.0)),
            job("digits-6", "QUEUED", 0, 0.0),
            job("a-name-that-is-longer-than-its-column-permits-5", "FAILED", 120, 0.31),
        ],
        models: vec![model("digits", 120.0 + 40.0 * wave), model("writer", 35.0 - 20.0 * wave)],
        devices: vec![DeviceFigures {
            name: "vulkan0".to_owned(),
            adapter: "NVIDIA GeForce RTX 4090".to_owned(),
            busy_percent: Some(60.0 + 30.0 * wave),
            memory_bytes: BTreeMap::from([
                ("job:digits-7".to_owned(), 96 << 20),
                ("model:digits".to_owned(), 4_928_307),
            ]),
        }],
        ..HostDocument::default()
    }
}

fn state_of(options: TopOptions) -> TopState {
    let hosts = options.hosts.clone();
    let mut state = TopState::new(options);
    for number in 1..=REFRESHES {
        for (host, url) in hosts.iter().enumerate() {
            let document = document(url.trim_start_matches("http://"), number);
            let at_ms = NOW_MS - (REFRESHES - number) * 2000;
            state.add_sample(host, HostSample { document, recorded: Vec::new() }, at_ms);
        }
    }
    state
}

fn screen(state: &TopState, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| drop(draw_screen(state, TopPalette::new(false), frame.buffer_mut()))).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..rows).map(|row| format!("{}\n", line(row).trim_end())).collect()
}

#[test]
fn every_view_is_drawn_at_60_100_and_300_columns() {
    for (columns, rows) in [(60, 15), (100, 30), (300, 60)] {
        for view in TopView::ALL {
            let state = state_of(options(&["127.0.0.1:5000"], view, &["busy", "requests", "loss"]));
            let file = format!("../../golden/{}-{columns}.txt", view.name());
            expect_file![file].assert_eq(&screen(&state, columns, rows));
        }
    }
}

/// Returns the screen of a state of 100 columns and 30 rows.
fn usual_screen(state: &TopState) -> String {
    screen(state, 100, 30)
}

fn press(state: &mut TopState, actions: &[TopAction]) -> KeyEffect {
    actions.iter().fold(KeyEffect::Draw, |_, action| state.apply(*action))
}

#[test]
fn smaller_terminals_state_what_is_needed_and_every_size_is_drawn() {
    for view in TopView::ALL {
        let mut state = state_of(options(&["a", "b"], view, &["busy", "requests", "loss", "p50", "p99", "queue"]));
        for overlay in [None, Some(TopAction::Help), Some(TopAction::PickSeries)] {
            state.overlay = None;
            overlay.into_iter().for_each(|action| _ = state.apply(action));
            for (columns, rows) in [(1, 1), (59, 40), (60, 14), (60, 15), (61, 17), (79, 24), (299, 16), (400, 90)] {
                let drawn = screen(&state, columns, rows);
                let is_small = columns < 60 || rows < 15;
                assert_eq!(drawn.contains("1 jobs"), !is_small, "{columns} {rows}\n{drawn}");
            }
        }
        assert!(screen(&state, 59, 14).contains("needs 60 columns and 15 rows"));
        assert!(screen(&state, 59, 14).contains("has 59 and 14"));
    }
}

#[test]
fn every_number_of_rows_is_drawn_with_any_number_of_servers_and_jobs() {
    for hosts in [&["a"][..], &["a", "b"], &["a", "b", "c", "d", "e", "f"]] {
        for jobs in [0, 1, 40] {
            let mut state = state_of(options(hosts, TopView::Jobs, &[]));
            for (host, url) in hosts.iter().enumerate() {
                let mut document = document(url, REFRESHES);
                document.jobs = vec![document.jobs[0].clone(); jobs];
                document.notes = vec!["metrics: refused".to_owned(); host];
                document.answered = host != 1;
                state.add_sample(host, HostSample { document, recorded: Vec::new() }, NOW_MS + 2000);
            }
            for view in TopView::ALL {
                state.view = view;
                (15..34).for_each(|rows| assert!(screen(&state, 60, rows).contains("q ends"), "{rows}"));
            }
        }
    }
}

#[test]
fn the_legend_has_the_latest_value_of_every_line() {
    let mut state = state_of(options(&["a"], TopView::Charts, &["requests", "busy", "loss"]));
    let drawn = usual_screen(&state);
    for entry in ["A digits  147.8", "B writer  21.12", "⣀ vulkan0  80.82", "⣀ digits-7  0.1437"] {
        assert!(drawn.contains(entry), "{entry}\n{drawn}");
    }
    let mut next = document("a", REFRESHES);
    next.models[0].requests_per_second = Some(333.0);
    state.add_sample(0, HostSample { document: next, recorded: Vec::new() }, NOW_MS + 2000);
    assert!(usual_screen(&state).contains("A digits  333"));
}

#[test]
fn keys_change_the_scale_the_range_and_the_time() {
    let mut state = state_of(options(&["a"], TopView::Charts, &["busy"]));
    let panel = state.panels().remove(0);
    let before = state.range(&panel);
    let size = before.high - before.low;
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
    press(&mut state, &[TopAction::Up]);
    near(state.range(&panel).low, before.low + size * 0.2);
    near(state.range(&panel).high, before.high + size * 0.2);
    press(&mut state, &[TopAction::Down, TopAction::HalveRange]);
    near(state.range(&panel).high - state.range(&panel).low, size / 2.0);
    press(&mut state, &[TopAction::DoubleRange, TopAction::DoubleRange]);
    near(state.range(&panel).high - state.range(&panel).low, size * 2.0);
    assert!(usual_screen(&state).contains("range set"));
    press(&mut state, &[TopAction::AutomaticRange]);
    assert_eq!(state.range(&panel), before);
    let (start, end) = state.visible_ms();
    press(&mut state, &[TopAction::Earlier]);
    assert_eq!(state.visible_ms(), (start - 48_000, end - 48_000));
    assert!(usual_screen(&state).contains("-1m"), "{}", usual_screen(&state));
    press(&mut state, &[TopAction::ShorterWindow, TopAction::Now]);
    assert_eq!(state.visible_ms(), (end - 120_000, end));
    assert_eq!(press(&mut state, &[TopAction::Refresh]), KeyEffect::Refresh);
    for quit in [TopAction::Quit, TopAction::Close] {
        assert_eq!(press(&mut state, &[quit]), KeyEffect::Quit);
    }
}

#[test]
fn the_page_of_keys_names_every_key_at_every_size() {
    let mut state = state_of(options(&["a"], TopView::Charts, &[]));
    press(&mut state, &[TopAction::Help]);
    for (columns, rows) in [(60, 15), (100, 30), (300, 60)] {
        let drawn = screen(&state, columns, rows);
        for (key, _) in crate::key_actions::KEY_TEXTS {
            assert!(drawn.contains(key), "{key}\n{drawn}");
        }
    }
    assert_eq!(press(&mut state, &[TopAction::Close]), KeyEffect::Draw, "Esc leaves the page");
    assert!(!usual_screen(&state).contains("halve, double the range"));
}

#[test]
fn an_outlier_is_counted_and_changes_the_scale_only_on_request() {
    let mut state = state_of(options(&["a"], TopView::Charts, &["requests"]));
    let panel = state.panels().remove(0);
    let before = state.range(&panel);
    let mut spike = document("a", REFRESHES);
    spike.models[0].requests_per_second = Some(16_000.0);
    for (seconds, document) in [(2, spike), (4, document("a", REFRESHES))] {
        state.add_sample(0, HostSample { document, recorded: Vec::new() }, NOW_MS + seconds * 1000);
        let after = state.range(&panel);
        assert!((after.high - before.high).abs() < 1.0 && after.low == before.low, "{after:?} {before:?}");
    }
    let drawn = usual_screen(&state);
    assert!(drawn.contains("1 above, range automatic"), "{drawn}");
    press(&mut state, &[TopAction::FullRange]);
    assert!(state.range(&panel).high > 16_000.0);
    assert!(usual_screen(&state).contains("range every value"));
    let fixed = RangeSetting { low: Some(0.0), high: Some(50.0), has_outliers: false };
    let options = TopOptions { range: fixed, ..options(&["a"], TopView::Charts, &["requests"]) };
    let range = state_of(options).range(&panel);
    assert_eq!((range.low, range.high), (0.0, 50.0));
}

#[test]
fn a_server_that_does_not_answer_is_marked_and_keeps_its_last_figures() {
    let mut state = state_of(options(&["a", "b:5000"], TopView::Jobs, &[]));
    let dead = HostDocument { error: Some("connection refused".to_owned()), ..HostDocument::default() };
    state.add_sample(1, HostSample { document: dead, recorded: Vec::new() }, NOW_MS + 2000);
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
    terminal.draw(|frame| _ = draw_screen(&state, TopPalette::new(true), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let drawn = usual_screen(&state);
    assert!(drawn.contains("● a   ○ b:5000") && drawn.contains("○ b:5000: connection refused"), "{drawn}");
    let row = |server: &str| drawn.lines().position(|line| line.starts_with("digits-7") && line.ends_with(server));
    let is_dim = |row: usize| {
        let y = u16::try_from(row).unwrap();
        (0..8).all(|x| buffer[(x, y)].modifier.contains(ratatui::style::Modifier::DIM))
    };
    assert!(is_dim(row("b:5000").unwrap()) && !is_dim(row(" a").unwrap()), "{drawn}");
}

#[test]
fn a_pause_holds_the_screen_and_loses_nothing() {
    let mut state = state_of(options(&["a"], TopView::Charts, &["requests"]));
    press(&mut state, &[TopAction::Pause]);
    let before = usual_screen(&state);
    assert!(before.contains("PAUSED"));
    let mut next = document("a", REFRESHES);
    next.models[0].requests_per_second = Some(333.0);
    state.add_sample(0, HostSample { document: next, recorded: Vec::new() }, NOW_MS + 2000);
    assert_eq!(usual_screen(&state), before);
    press(&mut state, &[TopAction::Pause]);
    assert!(usual_screen(&state).contains("A digits  333"));
}

#[test]
fn series_are_chosen_in_a_list_and_clicks_choose_tabs_and_rows() {
    let mut state = state_of(options(&["a"], TopView::Charts, &["busy"]));
    press(&mut state, &[TopAction::PickSeries]);
    "queue".chars().for_each(|letter| _ = state.apply(TopAction::Type(letter)));
    let drawn = usual_screen(&state);
    assert!(drawn.contains("filter: queue") && drawn.contains("[ ] digits:queue") && !drawn.contains("writer:p50"));
    press(&mut state, &[TopAction::Down, TopAction::Toggle]);
    assert!(usual_screen(&state).contains("[x] writer:queue"));
    press(&mut state, &[TopAction::Close]);
    let drawn = usual_screen(&state);
    assert!(drawn.contains("queue length") && drawn.contains("⣀ writer  2"), "{drawn}");
    let click = |state: &mut TopState, column, row| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 100, 30));
        state.areas = draw_screen(state, TopPalette::new(true), &mut buffer);
        state.apply(TopAction::Click(column, row))
    };
    click(&mut state, 3, 0);
    assert!(state.view == TopView::Jobs);
    click(&mut state, 5, 3);
    assert_eq!(state.selected_row(TopView::Jobs), 1);
    press(&mut state, &[TopAction::Up, TopAction::Open]);
    let drawn = usual_screen(&state);
    assert!(state.view == TopView::Charts && drawn.contains("▶ loss") && drawn.contains("digits-7  0.1437"), "{drawn}");
}

#[test]
fn points_that_a_job_recorded_fill_the_window() {
    let mut state = TopState::new(options(&["a"], TopView::Charts, &["loss"]));
    let points: Vec<(u64, f64)> = (0..400).map(|at| (NOW_MS - 400_000 + at * 1000, 1.0 / (at + 1) as f64)).collect();
    let recorded = RecordedSeries {
        kind: crate::series_name::OwnerKind::Job,
        owner: "digits-7".into(),
        name: "loss".into(),
        is_whole: true,
        points,
    };
    state.add_sample(0, HostSample { document: document("a", 1), recorded: vec![recorded] }, NOW_MS);
    let panel = state.panels().remove(0);
    assert_eq!(state.visible_points(&panel.keys[0]).first().unwrap().0, NOW_MS - 241_000);
    assert!(usual_screen(&state).contains("⣀ digits-7  0.0025"));
}

#[test]
fn a_recording_is_shown_with_the_tables_of_its_time() {
    let refresh = |number: u64| crate::documents::RefreshDocument {
        at_ms: NOW_MS - (REFRESHES - number) * 2000,
        hosts: vec![document("a", number)],
    };
    let text: Vec<String> = (1..=REFRESHES).map(|it| serde_json::to_string(&refresh(it)).unwrap()).collect();
    let recording = text.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut state = TopState::of_recording(options(&[], TopView::Jobs, &[]), recording);
    assert!(usual_screen(&state).contains(" 96%") && usual_screen(&state).contains("recording"));
    press(&mut state, &[TopAction::Earlier]);
    assert!(usual_screen(&state).contains(" 76%"), "{}", usual_screen(&state));
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut state = state_of(options(&["a"], TopView::Jobs, &[]));
    let mut hostile = document("a", REFRESHES);
    let name = "\x1b[2J\u{202e}\u{9b}\n".repeat(30);
    hostile.jobs[0].name.clone_from(&name);
    hostile.jobs[0].metrics.insert(name.clone(), Some(1.0));
    hostile.devices[0].adapter.clone_from(&name);
    hostile.models[0].name.clone_from(&name);
    hostile.notes.push(name);
    state.add_sample(0, HostSample { document: hostile, recorded: Vec::new() }, NOW_MS + 2000);
    for view in TopView::ALL {
        for overlay in [None, Some(TopAction::PickSeries)] {
            (state.view, state.overlay) = (view, None);
            overlay.into_iter().for_each(|action| _ = state.apply(action));
            let drawn = screen(&state, 140, 40);
            assert!(drawn.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{drawn:?}");
        }
    }
}
