//! Numbers in the JSON form of protocol buffers.
//!
//! Source: Protocol Buffers, "ProtoJSON Format".

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 64-bit integer. It is written as a number, and read as a number or text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MlflowInteger(pub i64);

/// A 64-bit float. NaN and infinities are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MlflowFloat(pub f64);

impl Serialize for MlflowInteger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl Serialize for MlflowFloat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => serializer.serialize_f64(value),
            value if value.is_nan() => serializer.serialize_str("NaN"),
            value if value > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

impl<'de> Deserialize<'de> for MlflowInteger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MlflowInteger, D::Error> {
        deserializer.deserialize_any(IntegerVisitor).map(MlflowInteger)
    }
}

impl<'de> Deserialize<'de> for MlflowFloat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MlflowFloat, D::Error> {
        deserializer.deserialize_any(FloatVisitor).map(MlflowFloat)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 64-bit integer, as a number or text")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        let whole = number as i64;
        // A float of 2^63 saturates.
        if whole as f64 == number && number < i64::MAX as f64 {
            return Ok(whole);
        }
        Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

struct FloatVisitor;

impl Visitor<'_> for FloatVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or NaN, Infinity or -Infinity as text")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        match text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => {
                let finite = text.parse().ok().filter(|number: &f64| number.is_finite());
                finite.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
    }
}

impl JsonSchema for MlflowInteger {
    fn schema_name() -> Cow<'static, str> {
        "MlflowInteger".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "format": "int64", "pattern": "^-?[0-9]{1,18}$" })
    }
}

impl JsonSchema for MlflowFloat {
    fn schema_name() -> Cow<'static, str> {
        "MlflowFloat".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_numbers_or_text_and_written_alike() {
        for (text, expected) in [("7", 7), ("\"-7\"", -7), ("1e3", 1000), ("\"9223372036854775807\"", i64::MAX)] {
            assert_eq!(serde_json::from_str::<MlflowInteger>(text).unwrap().0, expected, "{text}");
        }
        for bad in ["1.5", "\"x\"", "1e300", "null", "18446744073709551615", "9223372036854775808.0"] {
            assert!(serde_json::from_str::<MlflowInteger>(bad).is_err(), "{bad}");
        }
        for text in ["0.5", "\"NaN\"", "\"Infinity\"", "\"-Infinity\""] {
            let number: MlflowFloat = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&number).unwrap(), text);
        }
        assert!(serde_json::from_str::<MlflowFloat>("\"inf\"").is_err());
    }
}
