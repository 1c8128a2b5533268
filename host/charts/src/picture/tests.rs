use expect_test::expect_file;

use super::*;
use crate::curve::{AttemptBoundary, SeriesLine};
use crate::parallel_axis::{TrialLine, TrialValue};

/// Returns a falling, noisy series. The noise is that of a linear congruential generator.
fn loss(name: &str, count: u64, scale: f64) -> SeriesLine {
    let mut state = count;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    };
    let mut value = |step: u64| scale * (2.3 / (1.0 + step as f64 * 8.0 / count as f64) + 0.25 * noise());
    SeriesLine { name: name.to_owned(), points: (0..count).map(|step| (step, value(step))).collect() }
}

fn training() -> LineChart {
    LineChart {
        title: "loss".to_owned(),
        x_label: "step".to_owned(),
        y_label: "loss".to_owned(),
        lines: vec![
            loss("loss", 900, 1.0),
            SeriesLine {
                name: "validation/loss".to_owned(),
                points: (1..=10).map(|epoch| (epoch * 90, 2.0 / epoch as f64 + 0.2)).collect(),
            },
        ],
        boundaries: vec![AttemptBoundary { step: 310, attempt: 2 }, AttemptBoundary { step: 840, attempt: 3 }],
        ..LineChart::default()
    }
}

fn sweep() -> ParallelChart {
    let optimizers = ["sgd", "adam", "momentum"];
    let trial = |number: u32| TrialLine {
        name: format!("trial {number}"),
        values: vec![
            TrialValue::Number(10f64.powf(-1.0 - f64::from(number % 7) / 2.0)),
            TrialValue::Text(optimizers[number as usize % 3].to_owned()),
            if number.is_multiple_of(5) {
                TrialValue::Missing
            } else {
                TrialValue::Number(f64::from(number % 11) / 11.0)
            },
        ],
        score: (number != 9).then(|| 0.6 + f64::from(number * 37 % 100) / 260.0),
    };
    ParallelChart {
        title: "20 trials by their parameters".to_owned(),
        parameters: ["lr", "optimizer", "momentum"].map(str::to_owned).to_vec(),
        metric: "validation/accuracy".to_owned(),
        is_lowest_best: false,
        trials: (1..=20).map(trial).collect(),
    }
}

fn picture(panels: Vec<ChartPanel>) -> ChartPicture {
    ChartPicture { title: "digits-1".to_owned(), panels, width: 800, height: 500 }
}

fn lines(chart: LineChart) -> ChartPicture {
    picture(vec![ChartPanel::Lines(chart)])
}

/// Returns the pixels of a PNG file, three bytes each.
fn decode(file: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.color_type, png::ColorType::Rgb);
    (info.width, info.height, pixels)
}

/// Returns the number of pixels that have about a colour.
fn count_pixels(pixels: &[u8], (red, green, blue): (u8, u8, u8)) -> usize {
    let is_near = |one: u8, other: u8| one.abs_diff(other) < 12;
    let matches = |pixel: &&[u8]| is_near(pixel[0], red) && is_near(pixel[1], green) && is_near(pixel[2], blue);
    pixels.chunks(3).filter(matches).count()
}

const BLUE: (u8, u8, u8) = (0x00, 0x72, 0xb2);
const VERMILION: (u8, u8, u8) = (0xd5, 0x5e, 0x00);

/// Writes a PNG for people who look at it, if `CHARTS_DIR` is set.
fn save(name: &str, file: &[u8]) {
    if let Some(directory) = std::env::var_os("CHARTS_DIR") {
        std::fs::write(std::path::Path::new(&directory).join(format!("{name}.png")), file).unwrap();
    }
}

#[test]
fn svg_pictures_are_as_before() {
    let mut short = training();
    short.lines[0] = loss("loss", 40, 1.0);
    let mut smoothed = short.clone();
    (smoothed.is_log, smoothed.smoothing) = (true, 0.6);
    let mut gaps = short.clone();
    gaps.lines[0].points[5].1 = f64::NAN;
    gaps.lines[0].points[7].1 = f64::INFINITY;
    gaps.lines[1].points.clear();
    expect_file!["../../golden/lines.svg"].assert_eq(&lines(short.clone()).render_svg().unwrap());
    expect_file!["../../golden/smoothed.svg"].assert_eq(&lines(smoothed).render_svg().unwrap());
    expect_file!["../../golden/gaps.svg"].assert_eq(&lines(gaps).render_svg().unwrap());
    let both = picture(vec![ChartPanel::Lines(short), ChartPanel::Parallel(sweep())]);
    expect_file!["../../golden/sweep.svg"].assert_eq(&both.render_svg().unwrap());
}

#[test]
fn png_pictures_have_the_lines_in_their_colours() {
    let file = lines(training()).render_png().unwrap();
    save("training", &file);
    let (width, height, pixels) = decode(&file);
    assert_eq!((width, height), (800, 500));
    assert_eq!(&pixels[..3], [0xff; 3]);
    assert!(count_pixels(&pixels, BLUE) > 1500, "{}", count_pixels(&pixels, BLUE));
    assert!(count_pixels(&pixels, VERMILION) > 600, "{}", count_pixels(&pixels, VERMILION));
    assert_eq!(lines(training()).render_png().unwrap(), file);
}

#[test]
fn a_picture_of_a_sweep_has_lines_and_parallel_coordinates() {
    let mut panels = vec![ChartPanel::Lines(training()), ChartPanel::Parallel(sweep())];
    let both = ChartPicture { height: 900, ..picture(panels.clone()) };
    let file = both.render_png().unwrap();
    save("sweep", &file);
    let (.., pixels) = decode(&file);
    let lower = &pixels[800 * 480 * 3..];
    assert!(count_pixels(lower, VERMILION) > 500, "the best trial");
    assert!(count_pixels(lower, (0x4a, 0x94, 0xc6)) + count_pixels(lower, (0x08, 0x30, 0x6b)) > 500, "others");
    panels.truncate(1);
    panels.push(ChartPanel::Parallel(ParallelChart::default()));
    assert!(picture(panels).render_svg().unwrap().contains("no trials"));
}

#[test]
fn many_lines_have_a_legend() {
    let names = (0..30).map(|index| format!("digits-{index}"));
    let chart = LineChart {
        lines: names.map(|name| loss(&name, 300 + name.len() as u64, 1.0 + name.len() as f64)).collect(),
        title: "loss".to_owned(),
        ..training()
    };
    let file = lines(chart.clone()).render_png().unwrap();
    save("many", &file);
    let svg = lines(chart).render_svg().unwrap();
    assert!(svg.contains("digits-0") && svg.contains("6 more are not drawn"), "{svg}");
}

#[test]
fn a_single_point_is_visible() {
    let line = |value| SeriesLine { name: "loss".to_owned(), points: vec![(7, value)] };
    for (value, is_log) in [(0.5, false), (0.0, false), (0.5, true), (-1e308, false), (f64::MIN_POSITIVE, true)] {
        let chart = LineChart { lines: vec![line(value)], is_log, ..LineChart::default() };
        let (.., pixels) = decode(&lines(chart).render_png().unwrap());
        let plot = &pixels[800 * 60 * 3..];
        assert!(count_pixels(plot, BLUE) > 15, "{value} {}", count_pixels(plot, BLUE));
    }
    let nothing = LineChart { lines: vec![line(f64::NAN)], ..LineChart::default() };
    let svg = lines(nothing).render_svg().unwrap();
    assert!(svg.contains("no values that can be drawn") && svg.contains("1 not finite"), "{svg}");
    assert!(lines(LineChart::default()).render_svg().unwrap().contains("no series"));
}

#[test]
fn a_spike_among_100_000_points_is_drawn() {
    let mut line = SeriesLine { name: "loss".to_owned(), points: (0..100_000).map(|step| (step, 1.0)).collect() };
    line.points[61_803].1 = 5.0;
    let chart = LineChart { lines: vec![line], ..LineChart::default() };
    let svg = lines(chart.clone()).render_svg().unwrap();
    assert!(svg.len() < 100_000, "{}", svg.len());
    let (.., pixels) = decode(&lines(chart).render_png().unwrap());
    // The line is at the lower edge of the plot; only the spike is in its middle.
    let middle = &pixels[800 * 250 * 3..800 * 300 * 3];
    assert!(count_pixels(middle, BLUE) >= 40, "{}", count_pixels(middle, BLUE));
}

#[test]
fn names_of_users_cannot_control_a_viewer() {
    let hostile = "</text><script>alert(1)</script>\u{0}\u{1b}[2J\u{202e}\n&\"'";
    let mut chart = training();
    chart.title = hostile.to_owned();
    chart.y_label = hostile.repeat(1000);
    chart.lines[0].name = hostile.repeat(100_000);
    let mut trials = sweep();
    trials.parameters[1] = hostile.to_owned();
    trials.metric = hostile.to_owned();
    trials.trials[0].values[1] = TrialValue::Text(hostile.repeat(1000));
    let mut both = picture(vec![ChartPanel::Lines(chart), ChartPanel::Parallel(trials)]);
    both.title = hostile.to_owned();
    let svg = both.render_svg().unwrap();
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains('\u{202e}') && !svg.contains('\0'));
    assert!(svg.contains("&lt;script&gt;"));
    assert!(svg.len() < 200_000, "{}", svg.len());
    both.render_png().unwrap();
}

#[test]
fn sizes_are_checked() {
    let size = |width, height, panels: usize| {
        let panels = vec![ChartPanel::Lines(LineChart::default()); panels];
        let error = ChartPicture { width, height, ..picture(panels) }.render_png().map(|_| ()).unwrap_err();
        error.to_string()
    };
    assert_eq!(size(10, 500, 1), "invalid size 10x500: expected 200 to 4096 pixels in each direction");
    assert_eq!(size(800, 5000, 1), "invalid size 800x5000: expected 200 to 4096 pixels in each direction");
    assert_eq!(size(800, 500, 0), "0 charts in a picture: expected 1 to 12");
    assert_eq!(size(800, 500, 8), "8 charts need 1154 pixels of height or more: 500 were given");
    let least = ChartPicture { width: 200, height: 200, ..lines(training()) };
    assert_eq!(decode(&least.render_png().unwrap()).0, 200);
}
