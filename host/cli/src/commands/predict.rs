//! `saggar predict`: one request, from values or files; or a job for a dataset.

mod job;
mod stream;

use std::path::Path;

use saggar_store::picture::PictureFormat;
use serde_json::{Map, Value};

use crate::args::Predict;
use crate::client::{Client, Payload, segment};
use crate::exit::{self, Failure};
use crate::multipart::{self, FormPart};
use crate::output::Output;
use crate::picture;

/// A value that is sent for one input.
enum Part {
    Json(Value),
    File { name: String, content_type: &'static str, bytes: Vec<u8> },
}

impl Part {
    fn form(&self) -> FormPart<'_> {
        match self {
            Part::Json(value) => FormPart {
                file_name: None,
                content_type: "application/json",
                bytes: value.to_string().into_bytes().into(),
            },
            Part::File { name, content_type, bytes } => {
                FormPart { file_name: Some(name.into()), content_type, bytes: bytes.into() }
            }
        }
    }
}

pub(crate) fn predict(args: &Predict, client: &Client, output: Output) -> Result<i32, Failure> {
    match &args.dataset {
        Some(dataset) => job::submit(args, dataset, client, output),
        None => one(args, client, output).map(|()| 0),
    }
}

fn one(args: &Predict, client: &Client, output: Output) -> Result<(), Failure> {
    let inputs: Vec<(String, Part)> = args.input.iter().map(|text| input(text)).collect::<Result<_, _>>()?;
    if args.show && !output.json {
        let files = args.input.iter().filter_map(|text| text.split_once("=@"));
        files.filter_map(|(_, file)| picture::draw(Path::new(file))).for_each(|drawn| output.note(&drawn));
    }
    let path = match &args.model {
        None => "/predict".to_owned(),
        Some(model) => format!("/models/{}/predict", segment(model)),
    };
    let request = Request::of(&inputs)?;
    if args.stream {
        let (headers, events) = client.post_for_events(&path, request.payload())?;
        whence(&headers, output);
        return stream::show(events, output);
    }
    let (headers, answer) = client.post_for_text(&path, request.payload())?;
    if let Some(file) = &args.output {
        std::fs::write(file, &answer)
            .map_err(|error| Failure::new(exit::UNEXPECTED, "write", format!("{}: {error}", file.display())))?;
        return Ok(());
    }
    whence(&headers, output);
    let value: Value = serde_json::from_str(&answer)
        .map_err(|error| Failure::new(exit::UNEXPECTED, "bad_answer", format!("the answer is no JSON: {error}")))?;
    if output.json {
        output.json(&value);
    } else {
        print(&value, args.top_k, output);
    }
    Ok(())
}

/// Says which version answered, and where.
fn whence(headers: &ureq::http::HeaderMap, output: Output) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("?").to_owned();
    output.note(&format!("{} on {}", header("x-saggar-model"), header("x-saggar-device")));
    for warning in headers.get_all("x-saggar-warning") {
        output.note(&format!("warning: {}", String::from_utf8_lossy(warning.as_bytes())));
    }
}

/// A request's body: JSON, or a form where there are files.
enum Request {
    Json(Value),
    Form { content_type: String, bytes: Vec<u8> },
}

impl Request {
    fn of(inputs: &[(String, Part)]) -> Result<Request, Failure> {
        if inputs.iter().any(|(_, part)| matches!(part, Part::File { .. })) {
            let (content_type, bytes) =
                multipart::body(inputs.iter().map(|(name, part)| (name.as_str(), part.form())))?;
            return Ok(Request::Form { content_type, bytes });
        }
        let mut object = Map::new();
        for (name, part) in inputs {
            if let Part::Json(value) = part {
                object.insert(name.clone(), value.clone());
            }
        }
        Ok(Request::Json(Value::Object(object)))
    }

    fn payload(&self) -> Payload<'_> {
        match self {
            Request::Json(value) => Payload::Json(value),
            Request::Form { content_type, bytes } => Payload::Bytes { content_type, bytes },
        }
    }
}

/// Reads `name=value` and `name=@file`.
fn input(text: &str) -> Result<(String, Part), Failure> {
    let wrong = || {
        Failure::invalid(format!("-i {text:?} is no input"))
            .hint("expected name=value or name=@file, such as image=@7.png or prompt=\"To be\"")
    };
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(wrong());
    }
    let Some(file) = value.strip_prefix('@') else {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        return Ok((name.to_owned(), Part::Json(value)));
    };
    let bytes = std::fs::read(file)
        .map_err(|error| Failure::new(exit::NOT_FOUND, "no_file", format!("-i {text}: {file}: {error}")))?;
    if file.ends_with(".json") {
        let value = serde_json::from_slice(&bytes).map_err(|error| Failure::invalid(format!("{file}: {error}")))?;
        return Ok((name.to_owned(), Part::Json(value)));
    }
    let content_type = match PictureFormat::of(&bytes) {
        Some(PictureFormat::Png) => "image/png",
        Some(PictureFormat::Jpeg) => "image/jpeg",
        None => "application/octet-stream",
    };
    let base = Path::new(file).file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned());
    Ok((name.to_owned(), Part::File { name: base, content_type, bytes }))
}

/// Prints an output a line; the most probable classes instead of a long list of probabilities.
fn print(answer: &Value, top_k: Option<usize>, output: Output) {
    for (name, value) in answer.as_object().into_iter().flatten() {
        let numbers: Option<Vec<f64>> = value.as_array().map(|list| list.iter().filter_map(Value::as_f64).collect());
        match (numbers, top_k) {
            (Some(numbers), Some(k)) if numbers.len() == value.as_array().map_or(0, Vec::len) => {
                let largest = largest(numbers).take(k);
                largest.for_each(|(class, value)| output.line(&format!("{name}[{class}]  {value:.4}")));
            }
            _ => output.line(&format!("{name}  {value}")),
        }
    }
}

/// Classes with their numbers, the largest first; of equals the first class.
fn largest(numbers: Vec<f64>) -> impl Iterator<Item = (usize, f64)> {
    let mut ranked: Vec<(usize, f64)> = numbers.into_iter().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_values_or_files() {
        assert!(matches!(input("x=[1,2]"), Ok((name, Part::Json(Value::Array(_)))) if name == "x"));
        assert!(matches!(input("name=Ada"), Ok((_, Part::Json(Value::String(_))))));
        assert_eq!(input("image=@no/such.png").err().unwrap().exit, exit::NOT_FOUND);
        for bad in ["image", "=1", "a b=1"] {
            assert_eq!(input(bad).err().unwrap().exit, exit::INVALID, "{bad}");
        }
    }

    #[test]
    fn the_largest_come_first_and_equals_in_order() {
        let top: Vec<(usize, f64)> = largest(vec![0.1, 0.35, 0.2, 0.35]).take(3).collect();
        assert_eq!(top, [(1, 0.35), (3, 0.35), (2, 0.2)]);
    }
}
