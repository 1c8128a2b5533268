//! `saggar verify`: checks a stored answer against the registry of models.

use saggar_rest::model_versions::VersionDetailDocument;
use saggar_store::regular_file;
use serde::Serialize;
use serde_json::Value;

use crate::args::VerifyArgs;
use crate::client::{ApiClient, encode_path_segment};
use crate::commands::key::signing::read_error;
use crate::commands::predict::saved_response::{RESPONSE_BYTES_MAX, SavedResponse};
use crate::commands::predict::{InputValue, PredictRequest, parse_input};
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// The result of a check, as JSON.
#[derive(Serialize)]
struct VerifiedAnswer {
    model: String,
    version: u64,
    plugin: String,
    weights: String,
    device: String,
    /// Whether the version exists, has these digests and intact files.
    unchanged: bool,
    /// Whether the version gave the same answer again; null if that was not requested.
    same_answer: Option<bool>,
}

/// What an answer says about the version that made it.
struct AnswerOrigin {
    model: String,
    version: u64,
    plugin: String,
    weights: String,
    device: String,
}

pub(crate) fn verify(args: &VerifyArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let file = regular_file::read(&args.file, RESPONSE_BYTES_MAX).map_err(|error| read_error(&args.file, &error))?;
    let invalid = |reason: String| {
        CliError::invalid(format!("{}: {reason}", args.file.display())).with_hint(
            "`saggar predict MODEL -i INPUT=VALUE --save FILE` and `curl -i` store answers with their headers",
        )
    };
    let answer = SavedResponse::parse(&file).map_err(invalid)?;
    let origin = answer_origin(&answer).map_err(invalid)?;
    check_version(&origin, client)?;
    let same = args.recompute.then(|| recompute(args, &origin, &answer, client)).transpose()?;
    let AnswerOrigin { model, version, plugin, weights, device } = origin;
    if output.json {
        let (unchanged, same_answer) = (true, same);
        output.print_json(&VerifiedAnswer { model, version, plugin, weights, device, unchanged, same_answer });
        return Ok(());
    }
    output.print_line(&format!("made by     {model}@{version} on {device}"));
    output.print_line(&format!("plugin      {plugin}"));
    output.print_line(&format!("weights     {weights}"));
    output.print_line("version     there and unchanged: all digests match");
    if same.is_some() {
        output.print_line("answer      the same when computed again");
    } else {
        output.print_note("The answer itself was not compared: --recompute -i INPUT=VALUE computes it again.");
    }
    Ok(())
}

/// Returns what the headers say.
fn answer_origin(answer: &SavedResponse) -> Result<AnswerOrigin, String> {
    if answer.status != 200 {
        return Err(format!("it has status {}: only answers with status 200 can be verified", answer.status));
    }
    let digest = |header: &str| match answer.header(header).strip_prefix("sha256:") {
        Some(digest) if digest.len() == 64 => Ok(digest.to_owned()),
        _ => Err(format!("its header {header} has no SHA-256: {:.80?}", answer.header(header))),
    };
    let named = answer.header("x-saggar-model");
    let (model, version) = named
        .split_once('@')
        .and_then(|(model, version)| Some((model.to_owned(), version.parse().ok()?)))
        .ok_or_else(|| format!("its header x-saggar-model names no version: {named:.80?}"))?;
    let (plugin, weights) = (digest("x-saggar-plugin")?, digest("x-saggar-digest")?);
    Ok(AnswerOrigin { model, version, plugin, weights, device: answer.header("x-saggar-device").to_owned() })
}

/// Checks that the version exists, has these digests and intact files.
fn check_version(origin: &AnswerOrigin, client: &ApiClient) -> Result<(), CliError> {
    let AnswerOrigin { model, version, .. } = origin;
    let path = format!("/api/v1/models/{}/versions/{version}?verify=true", encode_path_segment(model));
    let detail: VersionDetailDocument = client.get(&path).map_err(|error| match error.exit_code {
        exit::NOT_FOUND => CliError::new(
            exit::NOT_FOUND,
            "version_gone",
            format!("{model}@{version}, which made it, does not exist here"),
        )
        .with_hint("ask the server that made it, or import the version from its bundle"),
        _ => error,
    })?;
    let changed = |what: &str, found: Option<&str>, expected: &str| {
        let found = found.unwrap_or("unknown");
        let message = format!("{model}@{version} has other {what} now: {found}; the answer was made by {expected}");
        CliError::new(exit::CONFLICT, "version_changed", message)
    };
    for (what, found, expected) in [
        ("a plugin", detail.version.plugin.as_deref(), &origin.plugin),
        ("weights", detail.version.weights.as_deref(), &origin.weights),
    ] {
        if found != Some(expected.as_str()) {
            return Err(changed(what.trim_start_matches("a "), found, expected));
        }
    }
    if detail.intact != Some(true) {
        let message = format!("{model}@{version} is damaged: {}", detail.damage);
        return Err(CliError::new(exit::CONFLICT, "damaged", message));
    }
    Ok(())
}

/// Computes the answer again with the version that made it. Returns true, or the error that names the first difference.
fn recompute(
    args: &VerifyArgs,
    origin: &AnswerOrigin,
    answer: &SavedResponse,
    client: &ApiClient,
) -> Result<bool, CliError> {
    let inputs: Vec<(String, InputValue)> =
        args.input.iter().map(|text| parse_input(text)).collect::<Result<_, _>>()?;
    let request = PredictRequest::from_inputs(&inputs)?;
    let named = format!("{}@{}", origin.model, origin.version);
    let path = format!("/models/{}/predict", encode_path_segment(&named));
    let (headers, again) = client.post_for_text(&path, request.request_body())?;
    let device = headers.get("x-saggar-device").and_then(|device| device.to_str().ok()).unwrap_or_default();
    if answer.body == again.as_bytes() {
        return Ok(true);
    }
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let difference = match (parse(&answer.body), parse(again.as_bytes())) {
        (Some(stored), Some(again)) if stored == again => return Ok(true),
        (Some(stored), Some(again)) => first_difference(&stored, &again),
        _ => "the stored body is not the JSON that /predict answers".to_owned(),
    };
    let mut failure =
        CliError::new(exit::CONFLICT, "answer_differs", format!("computed again, it differs: {difference}"));
    if device != origin.device {
        failure = failure.with_hint(format!(
            "it was made on {}, and computed again on {device}: other devices can round differently",
            origin.device
        ));
    }
    Err(failure)
}

/// Returns the first output that differs.
fn first_difference(stored: &Value, again: &Value) -> String {
    let name = |value: &Value, name: &str| value.get(name).map_or_else(|| "nothing".to_owned(), Value::to_string);
    let outputs = stored.as_object().into_iter().chain(again.as_object()).flat_map(|outputs| outputs.keys());
    let mut outputs = outputs.filter(|output| stored.get(output.as_str()) != again.get(output.as_str()));
    match outputs.next() {
        Some(output) => {
            let (before, now) = (name(stored, output), name(again, output));
            format!("{output} is {before:.120} in the file and {now:.120} now")
        }
        None => "the file has another form".to_owned(),
    }
}
