//! A client of gRPC without a connection: it sends requests to the router and reads messages and trailers.

use std::collections::HashMap;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request, Version};
use http_body_util::BodyExt;
use prost::Message;
use tower::ServiceExt;

pub(super) const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
pub(super) const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";
pub(super) const CHECK: &str = "/grpc.health.v1.Health/Check";

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferRequestMessage {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, ParameterMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(super) inputs: Vec<TensorMessage>,
    #[prost(message, repeated, tag = "6")]
    pub(super) outputs: Vec<TensorMessage>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub(super) raw_input_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ParameterMessage {
    #[prost(bool, optional, tag = "1")]
    pub(super) truth: Option<bool>,
    #[prost(int64, optional, tag = "2")]
    pub(super) int64: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(super) shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    pub(super) contents: Option<ContentsMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContentsMessage {
    #[prost(bool, repeated, tag = "1")]
    pub(super) bools: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub(super) ints: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub(super) int64s: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) uints: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) uint64s: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub(super) floats: Vec<f32>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) texts: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InferResponseMessage {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, ParameterMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(super) outputs: Vec<TensorMessage>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub(super) raw_output_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamResponseMessage {
    #[prost(string, tag = "1")]
    pub(super) error_message: String,
    #[prost(message, optional, tag = "2")]
    pub(super) infer_response: Option<InferResponseMessage>,
}

/// Returns an input of a test's request.
pub(super) fn input_tensor(
    name: &str,
    datatype: &str,
    shape: &[i64],
    contents: Option<ContentsMessage>,
) -> TensorMessage {
    TensorMessage { name: name.to_owned(), datatype: datatype.to_owned(), shape: shape.to_vec(), contents }
}

/// Returns a request for images of four pixels as raw bytes.
pub(super) fn image_request(first: u8, items: usize) -> InferRequestMessage {
    let shape = [i64::try_from(items).unwrap(), 2, 2];
    InferRequestMessage {
        model_name: "digits".to_owned(),
        id: "seven".to_owned(),
        inputs: vec![input_tensor("image", "UINT8", &shape, None)],
        raw_input_contents: vec![[first, 2, 3, 4].repeat(items)],
        ..InferRequestMessage::default()
    }
}

/// Returns a message with its prefix.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

pub(super) fn call_request(path: &str) -> Builder {
    Request::post(path).version(Version::HTTP_2).header("content-type", "application/grpc").header("te", "trailers")
}

/// The end of a call, and its messages.
#[derive(Debug)]
pub(super) struct GrpcAnswer {
    pub(super) headers: HeaderMap,
    pub(super) messages: Vec<Bytes>,
    trailers: HeaderMap,
}

impl GrpcAnswer {
    pub(super) async fn from_response(response: axum::response::Response) -> GrpcAnswer {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let (parts, body) = response.into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_else(|| parts.headers.clone());
        let (mut rest, mut messages) = (collected.to_bytes(), Vec::new());
        while !rest.is_empty() {
            let prefix = rest.split_to(5);
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
            messages.push(rest.split_to(length as usize));
        }
        GrpcAnswer { headers: parts.headers, messages, trailers }
    }

    /// Returns the code of the status.
    pub(super) fn code(&self) -> u8 {
        self.trailers["grpc-status"].to_str().unwrap().parse().unwrap()
    }

    /// Returns the text of the status.
    pub(super) fn text(&self) -> &str {
        self.trailers.get("grpc-message").map_or("", |text| text.to_str().unwrap())
    }

    /// Returns the only message of a call that succeeded.
    #[track_caller]
    pub(super) fn message<T: Message + Default>(&self) -> T {
        assert_eq!((self.code(), self.messages.len()), (0, 1), "{}", self.text());
        T::decode(self.messages[0].clone()).unwrap()
    }

    /// Returns the responses of a stream.
    pub(super) fn stream_responses(&self) -> Vec<StreamResponseMessage> {
        self.messages.iter().map(|message| StreamResponseMessage::decode(message.clone()).unwrap()).collect()
    }
}

pub(super) async fn send(router: &Router, request: Request<Body>) -> GrpcAnswer {
    GrpcAnswer::from_response(router.clone().oneshot(request).await.unwrap()).await
}

/// Calls a method with messages, which arrive in one piece.
pub(super) async fn call(router: &Router, path: &str, messages: &[&[u8]]) -> GrpcAnswer {
    let body = messages.iter().flat_map(|message| frame(message)).collect::<Vec<u8>>();
    send(router, call_request(path).body(Body::from(body)).unwrap()).await
}

/// Calls `ModelInfer`.
pub(super) async fn infer(router: &Router, request: &InferRequestMessage) -> GrpcAnswer {
    call(router, INFER, &[&request.encode_to_vec()]).await
}
