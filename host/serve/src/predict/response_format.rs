//! The format in which a client wants the response to a prediction.

use axum::http::{HeaderMap, header};

use super::image_encoder::JpegOptions;

/// Returns whether the client prefers server-sent events.
pub(crate) fn wants_events(headers: &HeaderMap) -> bool {
    ResponseFormat::from_accept(headers) == ResponseFormat::Events
}

/// The response format that the client prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    Json,
    /// Server-sent events with chunks of the outputs as they are computed.
    Events,
    /// A PNG, if the model outputs images.
    Png,
    /// A JPEG, if the model outputs images.
    Jpeg(JpegOptions),
}

impl ResponseFormat {
    /// Returns the first accepted type that is supported, else JSON.
    pub(super) fn from_accept(headers: &HeaderMap) -> ResponseFormat {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let kind = |range: &str| {
            let range = range.to_ascii_lowercase();
            let mut parts = range.split(';').map(str::trim);
            match parts.next().unwrap_or_default() {
                "text/event-stream" => Some(ResponseFormat::Events),
                "image/png" | "image/*" => Some(ResponseFormat::Png),
                "image/jpeg" => Some(ResponseFormat::Jpeg(jpeg_options(parts))),
                "application/json" => Some(ResponseFormat::Json),
                _ => None,
            }
        };
        accept.split(',').find_map(kind).unwrap_or(ResponseFormat::Json)
    }
}

/// Reads the parameters of `image/jpeg`: `chroma=444` and `quality=80`. Others are ignored, as in every media range.
fn jpeg_options<'a>(parameters: impl Iterator<Item = &'a str>) -> JpegOptions {
    let mut options = JpegOptions::default();
    for (name, value) in parameters.filter_map(|parameter| parameter.split_once('=')) {
        match (name.trim(), value.trim()) {
            ("chroma", "444") => options.has_full_chroma = true,
            ("quality", quality) => {
                options.quality = quality.parse().map_or(options.quality, |it: u8| it.clamp(1, 100))
            }
            _ => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_supported_type_is_chosen_with_its_parameters() {
        let jpeg = |quality, has_full_chroma| ResponseFormat::Jpeg(JpegOptions { quality, has_full_chroma });
        for (accept, format) in [
            ("", ResponseFormat::Json),
            ("text/html, image/png;q=0.5", ResponseFormat::Png),
            ("image/*", ResponseFormat::Png),
            ("image/jpeg", jpeg(90, false)),
            ("IMAGE/JPEG; Chroma=444; quality=70", jpeg(70, true)),
            ("image/jpeg;chroma=420;quality=0", jpeg(1, false)),
            ("image/jpeg;quality=best", jpeg(90, false)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(ResponseFormat::from_accept(&headers), format, "{accept}");
        }
    }
}
