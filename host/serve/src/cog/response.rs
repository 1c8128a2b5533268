//! The responses of the routes of predictions.

use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::prediction::{CogPrediction, CogPredictionDocument};
use crate::error::AcceptedResponse;
use crate::openapi::described_response::DescribedResponse;
use crate::openapi::operation_response::{OperationResponse, SchemaSource};

/// The response to a request for a prediction that exists or has just ended.
pub(super) enum PredictionResponse {
    /// Its state.
    State(Arc<CogPrediction>),
    /// Its events.
    Events(Response),
}

impl IntoResponse for PredictionResponse {
    fn into_response(self) -> Response {
        match self {
            PredictionResponse::State(prediction) => Json(prediction.document()).into_response(),
            PredictionResponse::Events(events) => events,
        }
    }
}

impl DescribedResponse for PredictionResponse {
    fn responses() -> Vec<OperationResponse> {
        let mut responses = Json::<CogPredictionDocument>::responses();
        responses.push(OperationResponse::new(200, "text/event-stream", SchemaSource::Text));
        responses
    }
}

/// The response to a request that creates a prediction.
pub(super) enum CreatePredictionResponse {
    /// The prediction has ended, or its events follow.
    Response(PredictionResponse),
    /// The prediction continues, and the client polls it.
    Continues(Arc<CogPrediction>),
}

impl IntoResponse for CreatePredictionResponse {
    fn into_response(self) -> Response {
        let prediction = match self {
            CreatePredictionResponse::Response(response) => return response.into_response(),
            CreatePredictionResponse::Continues(prediction) => prediction,
        };
        let mut response = AcceptedResponse(prediction.document()).into_response();
        let headers = response.headers_mut();
        if let Ok(location) = HeaderValue::try_from(format!("/predictions/{}", prediction.id)) {
            headers.insert(header::LOCATION, location);
        }
        let applied = HeaderName::from_static("preference-applied");
        headers.insert(applied, HeaderValue::from_static("respond-async"));
        response
    }
}

impl DescribedResponse for CreatePredictionResponse {
    fn responses() -> Vec<OperationResponse> {
        let mut responses = PredictionResponse::responses();
        responses.extend(AcceptedResponse::<CogPredictionDocument>::responses());
        responses
    }
}
