//! The OpenAPI document compared with the route table.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use super::fixture::ServerFixture;
use crate::server;

/// Returns the methods of a route as the server reports them.
async fn allowed_methods(fixture: &ServerFixture, path: &str) -> BTreeSet<String> {
    let uri: String =
        path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/");
    let request = Request::builder().method("BREW").uri(&uri).body(Body::empty()).unwrap();
    let response = fixture.send(request).await;
    let allow = response.headers().get("allow").map(|allow| allow.to_str().unwrap().to_owned()).unwrap_or_default();
    allow.split(',').filter(|method| !["", "HEAD"].contains(method)).map(str::to_ascii_lowercase).collect()
}

/// Routes that accept every method and all paths below them, each with the prefix of its paths.
const ANY_METHOD_ROUTES: [(&str, &str); 3] = [("/v1/", "/v1/"), ("/v1/{*path}", "/v1/"), ("/V1/{*path}", "/v1/")];

#[tokio::test]
async fn the_document_describes_exactly_the_routes() {
    let fixture = ServerFixture::new();
    let document = fixture.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    let mut described: BTreeSet<(String, String)> = BTreeSet::new();
    for (path, item) in paths {
        let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
        described.extend(methods.map(|method| (path.clone(), method.clone())));
    }
    let mut routes = BTreeSet::new();
    // Reflection describes the methods of gRPC.
    for path in server::route_paths().into_iter().filter(|path| !server::is_grpc_path(path)) {
        if let Some((_, begin)) = ANY_METHOD_ROUTES.iter().find(|(open, _)| *open == path) {
            let below: Vec<_> = described.iter().filter(|(path, _)| path.starts_with(begin)).cloned().collect();
            assert!(!below.is_empty(), "nothing is described below {begin}");
            routes.extend(below);
            continue;
        }
        let found = allowed_methods(&fixture, path).await;
        assert!(!found.is_empty(), "{path} allows no methods");
        routes.extend(found.into_iter().map(|method| (path.replace("{*", "{"), method)));
    }
    let missing: Vec<_> = routes.difference(&described).collect();
    let untrue: Vec<_> = described.difference(&routes).collect();
    assert!(missing.is_empty(), "no protocol describes: {missing:?}");
    assert!(untrue.is_empty(), "described, but no routes: {untrue:?}");
}

/// Every reference resolves, and no two operations have the same name.
#[tokio::test]
async fn references_resolve_and_operation_names_are_unique() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let fixture = ServerFixture::with_digits_serving().await;
    fixture.publish("speaker", "plugin that speaks", 1);
    fixture.loader.run_once().await;
    let document = fixture.get("/openapi.json").await.json();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let operations =
        || document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let ids: Vec<&str> = operations().filter_map(|operation| operation["operationId"].as_str()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let schemas = &document["components"]["schemas"];
    let image = &schemas["model.digits.input"]["anyOf"][0]["properties"]["image"];
    assert_eq!((&image["minItems"], &image["items"]["maxItems"]), (&2.into(), &2.into()));
    assert_eq!(image["items"]["items"]["maximum"], 255);
    let prompt = &schemas["model.speaker.input"]["anyOf"][1];
    assert_eq!(prompt["properties"]["prompt"]["items"]["maxLength"], 8);
    assert_eq!(prompt["required"], serde_json::json!(["prompt"]));
    let body = &document["paths"]["/models/speaker/predict"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(body["schema"]["$ref"], "#/components/schemas/model.speaker.input");
}

#[tokio::test]
async fn every_property_has_a_schema() {
    fn check(value: &Value, place: &str) {
        for (name, property) in value["properties"].as_object().into_iter().flatten() {
            assert!(property.is_object() || property.is_boolean(), "{place}: {name} is {property}");
        }
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| check(member, &format!("{place}/{name}")))
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, place)),
            _ => {}
        }
    }
    let document = ServerFixture::with_digits_serving().await.get("/openapi.json").await.json();
    check(&document, "");
}
