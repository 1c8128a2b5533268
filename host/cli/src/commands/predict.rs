//! `saggar predict`: sends one request, built from values or files, or submits a job for a dataset.

mod job;
pub(crate) mod saved_response;
mod stream;

use std::path::Path;

use saggar_store::image_decoder::ImageFormat;
use serde_json::{Map, Value};

use crate::args::PredictArgs;
use crate::ascii_picture;
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::{self, CliError};
use crate::multipart::{self, FormPart};
use crate::output::CliOutput;

/// The value of one input.
pub(crate) enum InputValue {
    Json(Value),
    File { name: String, content_type: &'static str, bytes: Vec<u8> },
}

impl InputValue {
    fn form_part(&self) -> FormPart<'_> {
        match self {
            InputValue::Json(value) => FormPart {
                file_name: None,
                content_type: "application/json",
                bytes: value.to_string().into_bytes().into(),
            },
            InputValue::File { name, content_type, bytes } => {
                FormPart { file_name: Some(name.into()), content_type, bytes: bytes.into() }
            }
        }
    }
}

pub(crate) fn predict(args: &PredictArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match &args.dataset {
        Some(dataset) => job::submit_prediction_job(args, dataset, client, output),
        None => predict_once(args, client, output).map(|()| 0),
    }
}

fn predict_once(args: &PredictArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let inputs: Vec<(String, InputValue)> =
        args.input.iter().map(|text| parse_input(text)).collect::<Result<_, _>>()?;
    if args.show && !output.json {
        let files = args.input.iter().filter_map(|text| text.split_once("=@"));
        files
            .filter_map(|(_, file)| ascii_picture::draw_picture(Path::new(file)))
            .for_each(|drawn| output.print_note(&drawn));
    }
    let path = match &args.model {
        None => "/predict".to_owned(),
        Some(model) => format!("/models/{}/predict", encode_path_segment(model)),
    };
    let request = PredictRequest::from_inputs(&inputs)?;
    if args.stream {
        let (headers, events) = client.post_for_events(&path, request.request_body())?;
        print_model_headers(&headers, output);
        return stream::show_events(events, output);
    }
    let (headers, answer) = client.post_for_text(&path, request.request_body())?;
    if let Some(file) = &args.save {
        saved_response::write_response(file, &headers, &answer)?;
    }
    if let Some(file) = &args.output {
        std::fs::write(file, &answer)
            .map_err(|error| CliError::new(exit::UNEXPECTED, "write", format!("{}: {error}", file.display())))?;
        return Ok(());
    }
    print_model_headers(&headers, output);
    let value: Value = serde_json::from_str(&answer)
        .map_err(|error| CliError::new(exit::UNEXPECTED, "bad_answer", format!("the answer is not JSON: {error}")))?;
    if output.json {
        output.print_json(&value);
    } else {
        print_outputs(&value, args.top_k, output);
    }
    Ok(())
}

/// Prints the version and device that answered.
fn print_model_headers(headers: &ureq::http::HeaderMap, output: CliOutput) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("?").to_owned();
    output.print_note(&format!("{} on {}", header("x-saggar-model"), header("x-saggar-device")));
    for warning in headers.get_all("x-saggar-warning") {
        output.print_note(&format!("warning: {}", String::from_utf8_lossy(warning.as_bytes())));
    }
}

/// The body of a request: JSON, or a form if there are files.
pub(crate) enum PredictRequest {
    Json(Value),
    Form { content_type: String, bytes: Vec<u8> },
}

impl PredictRequest {
    pub(crate) fn from_inputs(inputs: &[(String, InputValue)]) -> Result<PredictRequest, CliError> {
        if inputs.iter().any(|(_, part)| matches!(part, InputValue::File { .. })) {
            let (content_type, bytes) =
                multipart::encode_form(inputs.iter().map(|(name, part)| (name.as_str(), part.form_part())))?;
            return Ok(PredictRequest::Form { content_type, bytes });
        }
        let mut object = Map::new();
        for (name, part) in inputs {
            if let InputValue::Json(value) = part {
                object.insert(name.clone(), value.clone());
            }
        }
        Ok(PredictRequest::Json(Value::Object(object)))
    }

    pub(crate) fn request_body(&self) -> RequestBody<'_> {
        match self {
            PredictRequest::Json(value) => RequestBody::json(value),
            PredictRequest::Form { content_type, bytes } => RequestBody::Bytes { content_type, bytes },
        }
    }
}

/// Parses `name=value` and `name=@file`.
pub(crate) fn parse_input(text: &str) -> Result<(String, InputValue), CliError> {
    let wrong = || {
        CliError::invalid(format!("-i {text:?} is not an input"))
            .with_hint("expected name=value or name=@file, for example image=@7.png or prompt=\"To be\"")
    };
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(wrong());
    }
    let Some(file) = value.strip_prefix('@') else {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        return Ok((name.to_owned(), InputValue::Json(value)));
    };
    let bytes = std::fs::read(file)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "no_file", format!("-i {text}: {file}: {error}")))?;
    if file.ends_with(".json") {
        let value = serde_json::from_slice(&bytes).map_err(|error| CliError::invalid(format!("{file}: {error}")))?;
        return Ok((name.to_owned(), InputValue::Json(value)));
    }
    let content_type = ImageFormat::detect(&bytes).map_or("application/octet-stream", ImageFormat::media_type);
    let base = Path::new(file).file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned());
    Ok((name.to_owned(), InputValue::File { name: base, content_type, bytes }))
}

/// Prints one output per line, and the most probable classes instead of a long list of probabilities.
fn print_outputs(answer: &Value, top_k: Option<usize>, output: CliOutput) {
    for (name, value) in answer.as_object().into_iter().flatten() {
        let numbers: Option<Vec<f64>> = value.as_array().map(|list| list.iter().filter_map(Value::as_f64).collect());
        match (numbers, top_k) {
            (Some(numbers), Some(k)) if numbers.len() == value.as_array().map_or(0, Vec::len) => {
                let largest = rank_classes(numbers).take(k);
                largest.for_each(|(class, value)| output.print_line(&format!("{name}[{class}]  {value:.4}")));
            }
            _ => output.print_line(&format!("{name}  {value}")),
        }
    }
}

/// Returns class numbers and their values, the largest value first; ties are in class order.
fn rank_classes(numbers: Vec<f64>) -> impl Iterator<Item = (usize, f64)> {
    let mut ranked: Vec<(usize, f64)> = numbers.into_iter().enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predict_inputs_are_values_or_files() {
        assert!(matches!(parse_input("x=[1,2]"), Ok((name, InputValue::Json(Value::Array(_)))) if name == "x"));
        assert!(matches!(parse_input("name=Ada"), Ok((_, InputValue::Json(Value::String(_))))));
        assert_eq!(parse_input("image=@no/such.png").err().unwrap().exit_code, exit::NOT_FOUND);
        for bad in ["image", "=1", "a b=1"] {
            assert_eq!(parse_input(bad).err().unwrap().exit_code, exit::INVALID, "{bad}");
        }
    }

    #[test]
    fn classes_are_ranked_by_value_and_ties_keep_their_order() {
        let top: Vec<(usize, f64)> = rank_classes(vec![0.1, 0.35, 0.2, 0.35]).take(3).collect();
        assert_eq!(top, [(1, 0.35), (3, 0.35), (2, 0.2)]);
    }
}
