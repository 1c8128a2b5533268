//! Expands the short form of the files to OpenAPI.

use serde_json::{Map, Value, json};

/// Expands all methods of a path.
pub(super) fn expand_path(path: &str, methods: &Value, tag: &str) -> Value {
    let mut item = Map::new();
    let parameters: Vec<Value> = path_parameter_names(path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": path_parameter(name) }))
        .collect();
    if !parameters.is_empty() {
        item.insert("parameters".to_owned(), parameters.into());
    }
    for (method, short) in methods.as_object().into_iter().flatten() {
        item.insert(method.clone(), operation(path, method, short, tag));
    }
    Value::Object(item)
}

/// Returns the names of the parameters in a path's template.
fn path_parameter_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

fn path_parameter(name: &str) -> Value {
    match name {
        "version" => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        "sha256" => json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

fn operation(path: &str, method: &str, short: &Value, tag: &str) -> Value {
    let id: String = path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let id = format!("{method}_{}", id.trim_start_matches('_'));
    let mut operation = json!({ "operationId": id, "tags": [tag], "summary": short["summary"] });
    if let Some(description) = short.get("description") {
        operation["description"] = description.clone();
    }
    let mut parameters = Vec::new();
    for (place, key) in [("query", "query"), ("header", "headers")] {
        for (name, found) in short[key].as_object().into_iter().flatten() {
            parameters.push(json!({ "name": name, "in": place, "required": false, "schema": expand_schema(found) }));
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = short.get("body") {
        operation["requestBody"] = json!({ "required": true, "content": content(body) });
    }
    let mut responses = Map::new();
    for (status, types) in short["answers"].as_object().into_iter().flatten() {
        let mut response = json!({ "description": "The answer." });
        if types.as_object().is_some_and(|types| !types.is_empty()) {
            response["content"] = content(types);
        }
        responses.insert(status.clone(), response);
    }
    for status in short["errors"].as_array().into_iter().flatten() {
        // The response of a status can be overridden.
        responses.entry(status.to_string()).or_insert_with(|| json!({ "$ref": "#/components/responses/Error" }));
    }
    operation["responses"] = Value::Object(responses);
    operation
}

fn content(types: &Value) -> Value {
    let media = |(name, found): (&String, &Value)| (name.clone(), json!({ "schema": expand_schema(found) }));
    types.as_object().into_iter().flatten().map(media).collect::<Map<String, Value>>().into()
}

fn expand_schema(short: &Value) -> Value {
    match short.as_str() {
        Some(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
        None => short.clone(),
    }
}

/// Returns the schema of every error's body.
pub(super) fn error_schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "description": "An error.",
        "content": { "application/json": { "schema": {
            "type": "object",
            "required": ["error", "code", "hint", "request_id"],
            "properties": {
                "error": text("What is wrong, as text."),
                "code": text("What is wrong, from a closed set."),
                "hint": text("How to fix it; can be empty."),
                "request_id": text("The request's identifier, which the server's log contains too."),
            },
        } } },
    })
}
