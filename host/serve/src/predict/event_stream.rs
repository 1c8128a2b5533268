//! Streaming responses as server-sent events: `piece` for each chunk that the plugin sends early, then `done` with the
//! whole response, or `error`.
//!
//! The response head is sent with the first chunk, so a prediction that fails before that gets an error status like any
//! other. Events wait in a bounded queue. While it is full the plugin blocks, until its deadline. When the client
//! disconnects, the plugin is notified. Source of the format: WHATWG HTML, server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use saggar_plugin::{ModelPort, PieceSink};
use saggar_serving::{MemoryCharge, PredictionCall, PredictionInputs};
use saggar_tensor::Shape;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::encode;
use super::piece_sink::{EncodedPieceSink, PieceEncoder};
use super::respond::{add_version_headers, add_warnings};
use crate::error::ApiError;
use crate::limits::PIECES_WAITING_MAX;
use crate::request_id::RequestId;
use crate::request_memory::ResponseCharge;

const EVENT_STREAM_TYPE: &str = "text/event-stream";

/// Computes the prediction and responds with events once there is a first one.
///
/// # Errors
/// Returns any error that occurs before the first event.
pub(super) async fn respond_with_events(
    call: PredictionCall,
    inputs: PredictionInputs,
    id: RequestId,
) -> Result<Response, ApiError> {
    let serving = Arc::clone(call.live_version());
    let warnings = inputs.warnings.clone();
    let (mut pieces, working) = spawn_streaming(call, inputs);
    let mut charge_later = None;
    // The channel yields chunks until the task drops its sender.
    let body = match pieces.recv().await {
        Some(first) => event_body(first, pieces, working, id),
        None => {
            let EncodedPrediction { json, charge } = wait_for_response(working).await?;
            charge_later = Some(charge);
            Body::from(format_event("done", &json))
        }
    };
    let mut response = Response::new(body);
    if let Some(charge) = charge_later {
        response.extensions_mut().insert(ResponseCharge::new(charge));
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    add_version_headers(&serving, headers);
    add_warnings(&warnings, headers);
    Ok(response)
}

/// Computes in a separate task. Returns the channel of chunks as JSON, and the task.
pub(crate) fn spawn_streaming(
    call: PredictionCall,
    inputs: PredictionInputs,
) -> (mpsc::Receiver<String>, StreamingTask) {
    let (queue, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let sink = EncodedPieceSink::new(&call, inputs.items, JsonPieces, queue);
    // Dropping the set aborts its task: if nothing reads the response, the computation stops.
    let mut working = JoinSet::new();
    working.spawn(run_streaming(call, inputs, Arc::new(sink)));
    (pieces, working)
}

/// The computing task. It returns the whole response as JSON.
pub(crate) type StreamingTask = JoinSet<Result<EncodedPrediction, ApiError>>;

/// The whole response as JSON, and its memory charge.
#[derive(Debug)]
pub(crate) struct EncodedPrediction {
    pub(crate) json: String,
    charge: MemoryCharge,
}

/// Waits for the whole response.
///
/// # Errors
/// Returns the error of the task.
pub(crate) async fn wait_for_response(mut work: StreamingTask) -> Result<EncodedPrediction, ApiError> {
    let lost = |cause: String| ApiError::Internal { cause: format!("predicting: {cause}") };
    let ended = work.join_next().await.ok_or_else(|| lost("the task is gone".to_owned()))?;
    ended.map_err(|error| lost(error.to_string()))?
}

/// Returns a body that streams every chunk and the final event. Dropping it, as when the client disconnects, cancels
/// the plugin's call.
fn event_body(first: String, mut pieces: mpsc::Receiver<String>, work: StreamingTask, id: RequestId) -> Body {
    let later = stream::poll_fn(move |context| pieces.poll_recv(context));
    let pieces = stream::iter([first]).chain(later).map(|json| format_event("piece", &json));
    // Held until the stream is dropped, because the client can read the last event slowly.
    let end_charge = Arc::new(Mutex::new(None));
    let charge_of_end = Arc::clone(&end_charge);
    let end = stream::once(async move {
        match wait_for_response(work).await {
            Ok(EncodedPrediction { json, charge }) => {
                *charge_of_end.lock() = Some(charge);
                format_event("done", &json)
            }
            // The head is already sent, so the status cannot be reported.
            Err(error) => format_event("error", &error.body().json(&id.0)),
        }
    });
    Body::from_stream(pieces.chain(end).map(move |event| {
        let _charge = &end_charge;
        Ok::<String, Infallible>(event)
    }))
}

/// Formats an event. JSON has no line breaks outside strings, and escapes those inside.
fn format_event(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

/// Computes and encodes. A disconnected client is detected at the next chunk, which notifies the plugin.
async fn run_streaming(
    call: PredictionCall,
    inputs: PredictionInputs,
    sink: Arc<EncodedPieceSink<JsonPieces>>,
) -> Result<EncodedPrediction, ApiError> {
    let pieces: Arc<dyn PieceSink> = Arc::<EncodedPieceSink<JsonPieces>>::clone(&sink);
    let mut answer = call.run_with_sink(inputs, Some(pieces)).await?;
    sink.send_remaining_text().await;
    let json = answer.encode(|answer| {
        encode::encode_json(answer.signature(), &answer.tensors, answer.items).map_err(ApiError::from)
    })?;
    let charge = answer.take_response_charge(Some(json.len() as u64));
    Ok(EncodedPrediction { json, charge })
}

/// Encodes chunks as the data of events.
#[derive(Debug)]
struct JsonPieces;

impl PieceEncoder for JsonPieces {
    type EncodedPiece = String;

    fn encode_elements(&self, port: &ModelPort, item: Option<usize>, shape: &Shape, bytes: &[u8]) -> String {
        encode::encode_piece(port, item, shape, bytes)
    }

    fn encode_text(&self, port: &ModelPort, item: Option<usize>, text: &str) -> String {
        encode::encode_text_piece(port, item, text)
    }
}
