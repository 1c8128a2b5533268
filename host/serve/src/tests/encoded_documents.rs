//! Responses whose tensors are encoded without their document: they have exactly the members that the document declares.

use saggar_rest::oip::OipInferResponse;
use saggar_rest::tfs::{
    TfsClassifyResponse, TfsMetadataDocument, TfsModelList, TfsPredictResponse, TfsRegressResponse, TfsStatusDocument,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fixture::{ServerFixture, TestResponse};
use crate::openapi::operation::OpenApiOperation;
use crate::server::PROTOCOLS;

/// Asserts that a response is a document of type `T`, without further members.
fn assert_document<T: Serialize + DeserializeOwned>(answer: &TestResponse) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let document: T = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(serde_json::to_value(&document).unwrap(), answer.json());
}

#[tokio::test]
async fn encoded_responses_have_the_members_of_their_documents() {
    let fixture = ServerFixture::with_digits_serving().await;
    for formula in ["half_plus_two", "above"] {
        fixture.publish(formula, &format!("plugin that computes {formula}"), 1);
    }
    fixture.loader.run_once().await;
    let post = async |path: &str, body: &str| fixture.post_json(path, body).await;
    let input =
        r#"{"id": "7", "inputs": [{"name": "image", "shape": [1, 2, 2], "datatype": "UINT8", "data": [1, 2, 3, 4]}]}"#;
    assert_document::<OipInferResponse>(&post("/v2/models/digits/infer", input).await);
    for body in [r#"{"instances": [1, 2]}"#, r#"{"inputs": [1, 2]}"#] {
        assert_document::<TfsPredictResponse>(&post("/v1/models/half_plus_two:predict", body).await);
    }
    let examples = r#"{"examples": [{"x": 2.0}, {"x": -1}]}"#;
    assert_document::<TfsClassifyResponse>(&post("/v1/models/above:classify", examples).await);
    assert_document::<TfsRegressResponse>(&post("/v1/models/half_plus_two:regress", examples).await);
    assert_document::<TfsModelList>(&fixture.get("/v1/models").await);
    assert_document::<TfsStatusDocument>(&fixture.get("/v1/models/above").await);
    assert_document::<TfsMetadataDocument>(&fixture.get("/v1/models/above/metadata").await);
}

/// Every other operation has the documents of its handler's type.
#[test]
fn only_operations_with_encoded_tensors_declare_documents() {
    let operations = PROTOCOLS.iter().flat_map(|protocol| protocol.areas).flat_map(|area| (area.operations)());
    for operation in operations.filter(OpenApiOperation::declares_document) {
        let path = &operation.path;
        // A logged item is a picture or the document of its kind.
        let is_logged_item = path.contains("/logged/");
        assert!(path.starts_with("/v1/models") || path.ends_with("/infer") || is_logged_item, "{path}");
    }
}
