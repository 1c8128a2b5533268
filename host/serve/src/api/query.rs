//! Parameters of query strings and paths.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use std::str::FromStr;

use saggar_store::digest::Digest;

use crate::error::ApiError;

/// Parses a digest in a path; `name` is the parameter that errors report.
pub(crate) fn parse_digest(name: &'static str, text: &str) -> Result<Digest, ApiError> {
    let expected = "64 lower-case hexadecimal digits";
    text.parse().map_err(|_| ApiError::Parameter { name, expected, got: text.chars().take(80).collect() })
}

/// The parameters, in order. If a name is repeated, the last value counts.
#[derive(Debug)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryParameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParameters, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(pairs) = query.map_err(|error| ApiError::Parameter {
            name: "query",
            expected: "name=value pairs",
            got: error.body_text().chars().take(80).collect(),
        })?;
        Ok(QueryParameters(pairs))
    }
}

impl QueryParameters {
    /// Returns the value of a parameter if it is present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns every value of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Parses a parameter as a number or another type.
    pub(crate) fn parse<T: FromStr>(&self, name: &'static str, expected: &'static str) -> Result<Option<T>, ApiError> {
        let parse = |value: &str| {
            let got = value.chars().take(80).collect();
            value.parse().map_err(|_| ApiError::Parameter { name, expected, got })
        };
        self.get(name).map(parse).transpose()
    }

    /// Returns whether a flag is set: `?follow`, `?follow=1`, `?follow=true`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| !matches!(value.as_str(), "0" | "false" | "no"))
    }
}
