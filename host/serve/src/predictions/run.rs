//! Computing a prediction in a task of its own, which goes on without the request that began it.

use std::sync::Arc;
use std::time::Instant;

use super::Predictions;
use super::prediction::{End, Prediction};
use super::webhook::Webhook;
use crate::app::App;
use crate::error::ApiError;
use crate::predict::call::Call;
use crate::predict::decode::Inputs;
use crate::predict::{encode, stream};

/// Computes `inputs` as `prediction`. With `pieces`, parts of outputs become events as they come.
pub(super) fn start(
    app: &App,
    prediction: &Arc<Prediction>,
    call: Call,
    inputs: Inputs,
    pieces: bool,
    webhook: Option<Webhook>,
) {
    let (work, of) = (app.clone(), Arc::clone(prediction));
    let task = tokio::spawn(async move {
        of.start(work.now_ms());
        if pieces { in_pieces(&of, call, inputs).await } else { whole(call, inputs).await }
    });
    prediction.process(task.abort_handle());
    let (app, prediction) = (app.clone(), Arc::clone(prediction));
    tokio::spawn(async move {
        if let Some(webhook) = &webhook {
            webhook.started(|| prediction.json());
        }
        let end = match task.await {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => End::Failed(error.body().error),
            Err(stopped) if stopped.is_cancelled() => End::Canceled,
            Err(panicked) => {
                let cause = format!("predicting: {panicked}");
                End::Failed(ApiError::Internal { cause }.body().error)
            }
        };
        prediction.end(end, app.now_ms());
        app.predictions().store.ended(&prediction, Instant::now());
        if let Some(webhook) = webhook {
            webhook.completed(|| prediction.json());
        }
    });
}

async fn whole(call: Call, inputs: Inputs) -> Result<End, ApiError> {
    let mut answer = call.run(inputs).await?;
    let json = answer.encode(|answer| encode::json(answer.signature(), &answer.tensors, answer.items))?;
    Ok(End::Succeeded(json, answer.times.compute))
}

async fn in_pieces(prediction: &Prediction, call: Call, inputs: Inputs) -> Result<End, ApiError> {
    let (mut pieces, work) = stream::begin(call, inputs);
    let began = Instant::now();
    while let Some(piece) = pieces.recv().await {
        prediction.piece(&piece);
    }
    Ok(End::Succeeded(stream::ended(work).await?.json, began.elapsed()))
}

/// Cancels a prediction when it is dropped: nobody else knows of it, so nobody would read what it gives.
#[derive(Debug)]
pub(super) struct Guard {
    prediction: Arc<Prediction>,
    app: App,
}

impl Guard {
    pub(super) fn new(app: &App, prediction: &Arc<Prediction>) -> Guard {
        Guard { prediction: Arc::clone(prediction), app: app.clone() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        Predictions::cancel(&self.prediction, self.app.now_ms());
    }
}
