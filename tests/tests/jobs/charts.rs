//! Charts of jobs and sweeps as files and in the terminal, with the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_tests::{ServerProcess, SteadyJob, binary, lenet};
use serde_json::Value;

/// Returns the pixels of a PNG file with its width and height, three bytes each.
fn decode(path: &Path) -> (u32, u32, Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

/// Returns the number of pixels in exactly a colour.
fn count_pixels(pixels: &[u8], colour: [u8; 3]) -> usize {
    pixels.chunks(3).filter(|pixel| *pixel == colour).count()
}

/// The colours of the first two lines.
const BLUE: [u8; 3] = [0x00, 0x72, 0xb2];
const VERMILION: [u8; 3] = [0xd5, 0x5e, 0x00];

/// Trains LeNet on the digits for two epochs at each learning rate, as `digits-1`, `digits-2` and so on.
fn train(server: &ServerProcess, rates: &[&str]) {
    server.push_digits();
    let plugin = lenet();
    for rate in rates {
        let run = ["run", plugin.to_str().unwrap(), "--data", "digits", "--project", "digits", "--device", "cpu"];
        server.saggar_ok(&[&run[..], &["--experiment", "rate", "--wait", "--", "epochs=2", rate]].concat());
    }
}

/// Returns the error output and the exit code of a command that is refused.
fn refusal(server: &ServerProcess, arguments: &[&str]) -> (String, i32) {
    let output = server.saggar(arguments);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    (String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
}

#[test]
fn series_and_comparisons_are_drawn_into_files() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    train(&server, &["lr=0.1", "lr=0.01"]);
    let (png, svg) = (home.path().join("loss.png"), home.path().join("loss.svg"));
    let (png_path, svg_path) = (png.to_str().unwrap(), svg.to_str().unwrap());
    let draw = ["metrics", "digits-1", "digits-2", "--series", "loss", "--png", png_path, "--svg", svg_path];
    assert_eq!(server.saggar_ok(&draw), format!("{png_path}\n{svg_path}\n"));
    let (width, height, pixels) = decode(&png);
    assert_eq!((width, height), (800, 500));
    assert!(count_pixels(&pixels, BLUE) > 300 && count_pixels(&pixels, VERMILION) > 300);
    let drawing = std::fs::read_to_string(&svg).unwrap();
    for label in ["<title>digits-1, digits-2</title>", "digits-1 loss", "digits-2 loss", "step"] {
        assert!(drawing.contains(label), "{label}: {drawing}");
    }

    // A file is replaced only on request.
    let before = std::fs::read(&png).unwrap();
    let (errors, code) = refusal(&server, &["metrics", "digits-1", "--png", png_path]);
    assert!(code == 5 && errors.contains("is there already") && errors.contains("--force replaces it"), "{errors}");
    assert_eq!(std::fs::read(&png).unwrap(), before);
    let again = ["metrics", "digits-1", "--png", png_path, "--force", "--width", "640", "--height", "700", "--json"];
    let written: Value =
        serde_json::from_str(&server.saggar_ok(&[&again[..], &["--log", "--smooth", "0.6"]].concat())).unwrap();
    assert_eq!((&written["width"], &written["height"]), (&640.into(), &700.into()));
    assert_eq!(written["bytes"], std::fs::metadata(&png).unwrap().len());
    assert_eq!(decode(&png).0, 640);

    // The comparison has the parameter that differs beside each job.
    let compared = home.path().join("compared.svg");
    let compare = ["compare", "--experiment", "rate", "--metric", "validation/accuracy", "--svg"];
    server.saggar_ok(&[&compare[..], &[compared.to_str().unwrap()]].concat());
    let drawing = std::fs::read_to_string(&compared).unwrap();
    for label in ["validation/accuracy of the experiment rate", "digits-1 lr=0.1", "digits-2 lr=0.01"] {
        assert!(drawing.contains(label), "{label}: {drawing}");
    }
    let left: Vec<String> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn charts_that_cannot_be_drawn_say_why_and_write_nothing() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    train(&server, &["lr=0.1"]);
    let file = home.path().join("x.png");
    let path = file.to_str().unwrap();
    let absent = home.path().join("absent/x.png");
    let cases: [(&[&str], i32, &str); 9] = [
        (&["metrics", "digits-1", "--series", "bleu", "--png", path], 3, "digits-1 has no series \"bleu\""),
        (&["metrics", "digits-9", "--png", path], 3, "digits-9"),
        (&["metrics", "digits-1", "--png", path, "--width", "9"], 7, "expected 200 to 4096 pixels"),
        (&["metrics", "digits-1", "--png", path, "--height", "210"], 7, "give a larger --height"),
        (&["metrics", "digits-1", "--png", absent.to_str().unwrap()], 1, "a directory that exists"),
        (&["metrics", "digits-1", "--smooth", "1"], 2, "a number from 0 to below 1"),
        (&["metrics", "digits-1", "--force"], 2, "--png"),
        (&["compare", "digits-1", "digits-1", "--metric", "bleu", "--png", path], 3, "no compared job has this series"),
        (&["compare", "digits-1", "digits-1", "--log"], 2, "--log is about a chart"),
    ];
    for (arguments, code, words) in cases {
        let (errors, actual) = refusal(&server, arguments);
        assert!(actual == code && errors.contains(words), "{arguments:?} {actual}: {errors}");
    }
    assert!(!file.exists());
}

#[test]
fn several_jobs_have_a_column_for_the_job() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    train(&server, &["lr=0.1", "lr=0.01"]);
    let series = ["--series", "loss,validation/loss"];
    let both = |more: &[&str]| server.saggar_ok(&[&["metrics", "digits-1", "digits-2"], &series[..], more].concat());
    let table = both(&[]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..2], ["JOB", "SERIES"], "{table}");
    let named: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[0], row[1]]).collect();
    let series_of = |job| [[job, "loss"], [job, "validation/loss"]];
    assert_eq!(named, [series_of("digits-1"), series_of("digits-2")].concat());
    let csv = both(&["--csv"]);
    assert!(csv.starts_with("job,step,elapsed_time,loss,validation/loss\ndigits-1,"), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("digits-2,")), "{csv}");
    let document: Value = serde_json::from_str(&both(&["--json"])).unwrap();
    assert_eq!((&document[1]["job"], &document[1]["series"][0]["name"]), (&"digits-2".into(), &"loss".into()));
    // One job is answered as the server has it.
    let alone: Value = serde_json::from_str(&server.saggar_ok(&["metrics", "digits-1", "--json"])).unwrap();
    assert_eq!(alone, server.get("/api/v1/jobs/digits-1/metrics?times=1")["series"]);
}

#[test]
fn a_terminal_shows_charts_and_a_pipe_the_table() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    train(&server, &["lr=0.1"]);
    let is_braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
    let piped = server.saggar_ok(&["metrics", "digits-1"]);
    assert!(piped.starts_with("SERIES ") && !piped.contains(is_braille), "{piped}");
    let requested = server.saggar_ok(&["metrics", "digits-1", "--chart"]);
    assert!(requested.starts_with("loss\n") && requested.contains(is_braille), "{requested}");
    assert!(requested.ends_with(&piped) && !requested.contains('\x1b'), "{requested}");
    assert!(requested.lines().any(|line| line.starts_with("A loss  ") && line.contains("validation/loss")));
    for (columns, no_colour) in [(70, false), (132, true)] {
        let shell = format!("stty cols {columns} rows 40; {} metrics digits-1 --series loss", binary().display());
        let mut command = Command::new("script");
        command.args(["-qec", &shell, "/dev/null"]).env("SAGGAR_HOST", server.url()).env("TERM", "xterm");
        command.env_remove("NO_COLOR");
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        let drawn = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(drawn.contains(is_braille) && drawn.contains("SERIES"), "{drawn}");
        assert_eq!(drawn.contains("\x1b[38;5;32m"), !no_colour, "{drawn:?}");
        let axis = drawn.lines().find(|line| line.contains('└')).unwrap().trim_end().chars().count();
        assert_eq!(axis, columns, "{drawn}");
    }
}

#[test]
fn a_listing_has_a_series_of_each_job_as_blocks_on_request() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    train(&server, &["lr=0.1"]);
    let last = |series: &str| {
        let table = server.saggar_ok(&["ps", "-a", "--spark", series]);
        let mut lines = table.lines();
        assert!(lines.next().unwrap().ends_with("SERIES"), "{table}");
        lines.next().unwrap().split_whitespace().last().unwrap().to_owned()
    };
    let blocks = last("loss");
    assert!(blocks.starts_with(['▆', '▇', '█']) && blocks.contains('▁'), "the loss falls: {blocks}");
    assert_eq!(last("bleu"), "-");
    assert!(!server.saggar_ok(&["ps", "-a"]).contains("SERIES"));
}

#[test]
fn attempts_are_marked_where_they_began() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    let job = SteadyJob::with_steps(2_000).with_parameter("spin", 1).submit(&server);
    server.wait_for_step(&job, 20);
    server.saggar_ok(&["preempt", &job]);
    assert_eq!(server.wait_for_job(&job)["state"], "SUCCEEDED");
    let file = home.path().join("attempts.svg");
    server.saggar_ok(&["metrics", &job, "--svg", file.to_str().unwrap()]);
    let drawing = std::fs::read_to_string(&file).unwrap();
    assert!(drawing.contains("attempt 2"), "{drawing}");
    let text = server.saggar_ok(&["metrics", &job, "--chart"]);
    assert!(text.contains("┊ start of attempt 2"), "{text}");
}

#[test]
fn a_sweep_is_drawn_with_its_best_trials_and_their_parameters() {
    let (home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let plugin = lenet();
    let search = ["sweep", plugin.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--project", "digits"];
    let space = ["--grid", "lr=0.1,0.001", "--grid", "channels=4,8", "--metric", "validation/accuracy"];
    server.saggar_ok(&[&search[..], &space, &["--wait", "--", "epochs=2"]].concat());
    let (png, svg) = (home.path().join("sweep.png"), home.path().join("sweep.svg"));
    let draw = ["sweep", "results", "digits-sweep-1", "--limit", "2"];
    let files = ["--png", png.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    server.saggar_ok(&[&draw[..], &files].concat());
    let (width, height, pixels) = decode(&png);
    assert_eq!((width, height), (800, 860));
    // The best trial, in the lower half.
    assert!(count_pixels(&pixels[800 * 440 * 3..], VERMILION) > 500);
    let drawing = std::fs::read_to_string(&svg).unwrap();
    let sweep = server.get("/api/v1/sweeps/digits-sweep-1");
    let best = format!("best: trial {}  ", sweep["best"]);
    for label in
        ["the best 2 of 4 trials", "4 trials by their parameters", "better validation/accuracy", &best, "channels"]
    {
        assert!(drawing.contains(label), "{label}: {drawing}");
    }
    let (errors, code) = refusal(&server, &[&draw[..], &files].concat());
    assert!(code == 5 && errors.contains("--force"), "{errors}");
}
