//! Images of the user in several sizes and formats, from folders to predictions: `saggar data push --resize`, a training
//! of `lenet`, and requests in each format.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_tests::{HttpPayload, ServerProcess, lenet};
use serde_json::Value;

/// Returns grey pixels: a horizontal bar, or a vertical one, at this place.
fn bar_pixels(width: u32, height: u32, is_horizontal: bool, place: u32) -> Vec<u8> {
    let is_bar = |x: u32, y: u32| {
        let (across, length) = if is_horizontal { (y, height) } else { (x, width) };
        across.abs_diff(length / 3 + place % (length / 3)) <= length / 10
    };
    (0..height).flat_map(|y| (0..width).map(move |x| if is_bar(x, y) { 230 } else { 20 })).collect()
}

fn write_png(path: &Path, width: u32, height: u32, pixels: &[u8]) {
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, width, height);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    std::fs::write(path, file).unwrap();
}

fn write_webp(path: &Path, width: u32, height: u32, pixels: &[u8]) {
    let mut file = Vec::new();
    let colours: Vec<u8> = pixels.iter().flat_map(|grey| [*grey; 3]).collect();
    let encoder = image_webp::WebPEncoder::new(&mut file);
    encoder.encode(&colours, width, height, image_webp::ColorType::Rgb8).unwrap();
    std::fs::write(path, file).unwrap();
}

/// Writes images of two classes in two parts, of many sizes, half as PNG and half as WebP.
fn write_images(folder: &Path) {
    for (part, count) in [("train", 24), ("test", 6)] {
        for (class, is_horizontal) in [("flat", true), ("tall", false)] {
            let directory = folder.join(part).join(class);
            std::fs::create_dir_all(&directory).unwrap();
            for number in 0..count {
                let (width, height) = (20 + 3 * (number % 5), 24 + 2 * (number % 4));
                let pixels = bar_pixels(width, height, is_horizontal, number);
                if number % 2 == 0 {
                    write_png(&directory.join(format!("{number}.png")), width, height, &pixels);
                } else {
                    write_webp(&directory.join(format!("{number}.webp")), width, height, &pixels);
                }
            }
        }
    }
}

#[test]
fn images_of_several_sizes_and_formats_are_trained_on_and_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("bars");
    write_images(&images);
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let directory = images.to_str().unwrap();
    let refused = server.saggar(&["data", "push", directory]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("`--resize WIDTHxHEIGHT` converts all to one size"), "{text}");
    let pushed = server.saggar(&["data", "push", directory, "--resize", "16x16"]);
    let notes = String::from_utf8_lossy(&pushed.stderr);
    assert!(notes.contains("image uint8[16, 16, 3]"), "{notes}");
    assert!(notes.contains("note: 60 of 60 images were converted to 16 x 16 pixels in RGB"), "{notes}");
    let component = lenet();
    let run = ["run", component.to_str().unwrap(), "--data", "bars", "--device", "cpu", "--wait"];
    server.saggar_ok(&[&run[..], &["--", "model=bars", "epochs=40", "batch=8"]].concat());
    server.wait_for_version("bars", 1);
    for (file, expected) in [("test/flat/1.webp", "flat"), ("test/tall/2.png", "tall"), ("test/tall/3.webp", "tall")] {
        let path = images.join(file);
        let input = format!("image=@{}", path.display());
        let answer: Value =
            serde_json::from_str(&server.saggar_ok(&["predict", "bars", "-i", &input, "--json"])).unwrap();
        assert_eq!(answer["label_name"], expected, "{file}");
        let media = if file.ends_with("webp") { "image/webp" } else { "image/png" };
        let body = std::fs::read(&path).unwrap();
        let answered = server.request("POST", "/models/bars/predict", HttpPayload::Bytes(media, &body));
        assert_eq!(answered.status, 200, "{}", answered.text);
        assert_eq!(serde_json::from_str::<Value>(&answered.text).unwrap(), answer, "{file}");
    }
}
