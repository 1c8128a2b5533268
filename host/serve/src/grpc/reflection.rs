//! Server reflection, `grpc.reflection.v1` and `v1alpha`, which have the same messages: the services of the server and
//! the files that describe them, for tools such as grpcurl.
//!
//! The files are `host/serve/proto`, compiled into the file set `descriptors.bin`. A test compiles them again and
//! compares.

use std::sync::OnceLock;

use axum::extract::{Request, State};
use axum::response::Response;
use futures::stream;
use prost::Message;
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::sync::watch;

use super::call_head::CallHead;
use super::response::{FramedMessage, stream_response};
use super::status::{GrpcCode, GrpcStatus};
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::GRPC_REQUEST_BYTES_MAX;
use crate::request_body::message_stream::MessageStream;

/// The compiled files.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/descriptors.bin");

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuery", tags = "3, 4, 5, 6, 7")]
    query: Option<ReflectionQuery>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionQuery {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(message, tag = "5")]
    FileContainingExtension(ExtensionQuery),
    #[prost(string, tag = "6")]
    ExtensionNumbersOfType(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ExtensionQuery {
    #[prost(string, tag = "1")]
    containing_type: String,
    #[prost(int32, tag = "2")]
    extension_number: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionResponse {
    #[prost(string, tag = "1")]
    valid_host: String,
    #[prost(message, optional, tag = "2")]
    original_request: Option<ReflectionRequest>,
    #[prost(oneof = "ReflectionAnswer", tags = "4, 5, 6, 7")]
    answer: Option<ReflectionAnswer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionAnswer {
    #[prost(message, tag = "4")]
    Files(EncodedFiles),
    #[prost(message, tag = "5")]
    ExtensionNumbers(ExtensionNumbers),
    #[prost(message, tag = "6")]
    Services(ServiceList),
    #[prost(message, tag = "7")]
    Error(ReflectionError),
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncodedFiles {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ExtensionNumbers {
    #[prost(string, tag = "1")]
    base_type_name: String,
    #[prost(int32, repeated, tag = "2")]
    numbers: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceList {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionError {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The compiled files as their bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct CompiledFiles {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

/// The names in a compiled file. Source: protobuf, `descriptor.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct FileNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<TypeNames>,
    #[prost(message, repeated, tag = "5")]
    enumerations: Vec<SymbolName>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<ServiceNames>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TypeNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<TypeNames>,
    #[prost(message, repeated, tag = "4")]
    enumerations: Vec<SymbolName>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceNames {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<SymbolName>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SymbolName {
    #[prost(string, tag = "1")]
    name: String,
}

/// A file with its name and the symbols that it declares.
struct DescribedFile {
    name: String,
    encoded: Vec<u8>,
    symbols: Vec<String>,
    services: Vec<String>,
}

/// Handles `ServerReflectionInfo`: answers each request of the stream.
pub(crate) async fn server_reflection(State(app): State<AppState>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let head = CallHead::read(&parts)?;
    let messages = app.body_reader().messages(&parts, body, head.coding, GRPC_REQUEST_BYTES_MAX);
    Ok(stream_response(stream::try_unfold((messages, app.shutdown()), next_answer), None))
}

type ReflectionState = (MessageStream, watch::Receiver<bool>);

async fn next_answer(state: ReflectionState) -> Result<Option<(FramedMessage, ReflectionState)>, GrpcStatus> {
    let (mut messages, mut stopping) = state;
    let received = tokio::select! {
        received = messages.next() => received,
        () = wait_for_shutdown(&mut stopping) => Err(ApiError::Stopping),
    };
    let Some(message) = received.map_err(|error| GrpcStatus::from_error(&error.body()))? else { return Ok(None) };
    let request = ReflectionRequest::decode(message.bytes);
    let request = request.map_err(|_| GrpcStatus {
        code: GrpcCode::InvalidArgument,
        message: "the message is not a request of this method".to_owned(),
    })?;
    let answer = Some(answer_query(request.query.as_ref()));
    let response = ReflectionResponse { valid_host: request.host.clone(), original_request: Some(request), answer };
    Ok(Some((FramedMessage::from_message(&response), (messages, stopping))))
}

fn answer_query(query: Option<&ReflectionQuery>) -> ReflectionAnswer {
    let found = match query {
        Some(ReflectionQuery::FileByFilename(name)) => described_files().iter().find(|file| file.name == *name),
        Some(ReflectionQuery::FileContainingSymbol(symbol)) => {
            described_files().iter().find(|file| file.symbols.contains(symbol))
        }
        Some(ReflectionQuery::ExtensionNumbersOfType(name)) if has_symbol(name) => {
            return ReflectionAnswer::ExtensionNumbers(ExtensionNumbers {
                base_type_name: name.clone(),
                numbers: Vec::new(),
            });
        }
        Some(ReflectionQuery::ListServices(_)) => return ReflectionAnswer::Services(service_list()),
        Some(ReflectionQuery::FileContainingExtension(_) | ReflectionQuery::ExtensionNumbersOfType(_)) | None => None,
    };
    match found {
        Some(file) => ReflectionAnswer::Files(EncodedFiles { files: vec![file.encoded.clone()] }),
        None => ReflectionAnswer::Error(ReflectionError {
            code: GrpcCode::NotFound as i32,
            message: "the server does not have it".to_owned(),
        }),
    }
}

fn has_symbol(name: &str) -> bool {
    described_files().iter().any(|file| file.symbols.iter().any(|symbol| symbol == name))
}

fn service_list() -> ServiceList {
    let names = described_files().iter().flat_map(|file| &file.services);
    ServiceList { services: names.map(|name| ServiceName { name: name.clone() }).collect() }
}

/// Returns the files. No file imports another one.
fn described_files() -> &'static [DescribedFile] {
    static FILES: OnceLock<Vec<DescribedFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let compiled = CompiledFiles::decode(DESCRIPTORS).expect("a test checks the files");
        compiled.files.into_iter().map(describe_file).collect()
    })
}

fn describe_file(encoded: Vec<u8>) -> DescribedFile {
    let names = FileNames::decode(&*encoded).expect("a test checks the files");
    let (mut symbols, mut services) = (Vec::new(), Vec::new());
    for message in &names.messages {
        push_type_symbols(&mut symbols, &names.package, message);
    }
    symbols.extend(names.enumerations.iter().map(|it| format!("{}.{}", names.package, it.name)));
    for service in &names.services {
        let full = format!("{}.{}", names.package, service.name);
        symbols.extend(service.methods.iter().map(|method| format!("{full}.{}", method.name)));
        symbols.push(full.clone());
        services.push(full);
    }
    DescribedFile { name: names.name, encoded, symbols, services }
}

fn push_type_symbols(symbols: &mut Vec<String>, scope: &str, message: &TypeNames) {
    let full = format!("{scope}.{}", message.name);
    message.nested.iter().for_each(|nested| push_type_symbols(symbols, &full, nested));
    symbols.extend(message.enumerations.iter().map(|it| format!("{full}.{}", it.name)));
    symbols.push(full);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::grpc_protocol::GRPC;

    /// Tools list exactly the methods that the server has.
    #[test]
    fn the_described_methods_are_the_routes() {
        let methods: BTreeSet<String> = described_files()
            .iter()
            .flat_map(|file| {
                let is_method =
                    |symbol: &&String| file.services.iter().any(|name| symbol.starts_with(&format!("{name}.")));
                file.symbols.iter().filter(is_method).map(|symbol| {
                    let (service, method) = symbol.rsplit_once('.').unwrap();
                    format!("/{service}/{method}")
                })
            })
            .collect();
        let routes: BTreeSet<String> = (GRPC.routes)().into_iter().map(|route| route.path.to_owned()).collect();
        assert_eq!(methods, routes);
    }

    #[test]
    fn queries_find_files_by_name_and_by_symbol() {
        let file = |query| match answer_query(Some(&query)) {
            ReflectionAnswer::Files(EncodedFiles { files }) => FileNames::decode(&*files[0]).unwrap().name,
            other => panic!("{other:?}"),
        };
        let name =
            file(ReflectionQuery::FileContainingSymbol("inference.ModelInferRequest.InferInputTensor".to_owned()));
        assert_eq!(file(ReflectionQuery::FileByFilename(name.clone())), name);
        assert_eq!(
            file(ReflectionQuery::FileContainingSymbol("grpc.health.v1.Health.Check".to_owned())),
            "health.proto"
        );
        for missing in [None, Some(ReflectionQuery::FileByFilename("x.proto".to_owned()))] {
            assert!(matches!(answer_query(missing.as_ref()), ReflectionAnswer::Error(_)));
        }
    }
}
