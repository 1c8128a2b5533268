//! Serialization of tensor descriptors in manifests.

use saggar_tensor::{DType, Descriptor, Shape};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A descriptor in JSON, such as `{"dtype": "float32", "shape": [2, 3]}`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptorJson {
    dtype: String,
    shape: Vec<usize>,
}

/// Serializes a [`Descriptor`], for `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(it: &Descriptor, serializer: S) -> Result<S::Ok, S::Error> {
    let text = DescriptorJson { dtype: it.dtype.name().to_owned(), shape: it.shape.dims().to_vec() };
    text.serialize(serializer)
}

/// Deserializes a [`Descriptor`], for `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Descriptor, D::Error> {
    let text = DescriptorJson::deserialize(from)?;
    let dtype = DType::from_name(&text.dtype)
        .ok_or_else(|| de::Error::custom(format!("no data type is called `{}`", text.dtype)))?;
    let shape = Shape::new(text.shape).map_err(de::Error::custom)?;
    Ok(Descriptor::new(dtype, shape))
}
