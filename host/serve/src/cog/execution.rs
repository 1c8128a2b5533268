//! Computes a prediction in a separate task, which outlives the request that started it.

use std::sync::Arc;
use std::time::Instant;

use saggar_serving::{PredictionCall, PredictionInputs};

use super::prediction::CogPrediction;
use super::prediction_status::CogPredictionOutcome;
use super::predictions::CogPredictions;
use super::shared_json::SharedJson;
use super::webhook::PredictionWebhook;
use crate::app::AppState;
use crate::error::ApiError;
use crate::predict::{encode, event_stream};

/// Computes `inputs` as `prediction`. With `pieces`, chunks of outputs become events as they are produced.
pub(super) fn spawn_prediction(
    app: &AppState,
    prediction: &Arc<CogPrediction>,
    call: PredictionCall,
    inputs: PredictionInputs,
    pieces: bool,
    webhook: Option<PredictionWebhook>,
) {
    let (work, of) = (app.clone(), Arc::clone(prediction));
    let task = tokio::spawn(async move {
        of.mark_started(work.now_ms());
        if pieces { run_streaming(&of, call, inputs).await } else { run_whole(call, inputs).await }
    });
    prediction.set_task(task.abort_handle());
    let (app, prediction) = (app.clone(), Arc::clone(prediction));
    tokio::spawn(async move {
        if let Some(webhook) = &webhook {
            webhook.send_started(|| prediction.to_json());
        }
        let end = match task.await {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => CogPredictionOutcome::Failed(error.body().error),
            Err(stopped) if stopped.is_cancelled() => CogPredictionOutcome::Canceled,
            Err(panicked) => {
                let cause = format!("predicting: {panicked}");
                CogPredictionOutcome::Failed(ApiError::Internal { cause }.body().error)
            }
        };
        let (end, completed_ms) = match &app.predictions().shared {
            Some(shared) => shared.settle(&prediction, end, app.now_ms()).await,
            None => (end, app.now_ms()),
        };
        prediction.finish(end, completed_ms);
        app.predictions().store.mark_finished(&prediction, Instant::now());
        if let Some(webhook) = webhook {
            webhook.send_completed(|| prediction.to_json());
        }
    });
}

async fn run_whole(call: PredictionCall, inputs: PredictionInputs) -> Result<CogPredictionOutcome, ApiError> {
    let mut answer = call.run(inputs).await?;
    let json = answer.encode(|answer| {
        encode::encode_json(answer.signature(), &answer.tensors, answer.items).map_err(ApiError::from)
    })?;
    Ok(CogPredictionOutcome::Succeeded(checked_output(json)?, answer.timings.compute))
}

/// Returns the encoded outputs of a model as a part of a document.
fn checked_output(json: String) -> Result<SharedJson, ApiError> {
    SharedJson::new(json).map_err(|error| ApiError::Internal { cause: format!("encoded outputs: {error}") })
}

async fn run_streaming(
    prediction: &CogPrediction,
    call: PredictionCall,
    inputs: PredictionInputs,
) -> Result<CogPredictionOutcome, ApiError> {
    let (mut pieces, work) = event_stream::spawn_streaming(call, inputs);
    let began = Instant::now();
    while let Some(piece) = pieces.recv().await {
        prediction.push_output_piece(&piece);
    }
    let output = checked_output(event_stream::wait_for_response(work).await?.json)?;
    Ok(CogPredictionOutcome::Succeeded(output, began.elapsed()))
}

/// Cancels a prediction when it is dropped. It is used if no other client can read the result.
#[derive(Debug)]
pub(super) struct CancelPredictionOnDrop {
    prediction: Arc<CogPrediction>,
    app: AppState,
}

impl CancelPredictionOnDrop {
    pub(super) fn new(app: &AppState, prediction: &Arc<CogPrediction>) -> CancelPredictionOnDrop {
        CancelPredictionOnDrop { prediction: Arc::clone(prediction), app: app.clone() }
    }
}

impl Drop for CancelPredictionOnDrop {
    fn drop(&mut self) {
        CogPredictions::cancel_prediction(&self.prediction, self.app.now_ms());
    }
}
