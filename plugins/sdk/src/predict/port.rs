//! Ports as part of a configuration, and ports for the items of a dataset.

use super::Port;
use crate::bindings::tensors::{DataType, Descriptor};
use crate::dataset::Field;
use crate::json::Json;
use crate::params::FromJson;
use crate::tensor::descriptor;

/// The WebNN name of every data type.
const DATA_TYPE_NAMES: [(DataType, &str); 8] = [
    (DataType::Float32, "float32"),
    (DataType::Float16, "float16"),
    (DataType::Int64, "int64"),
    (DataType::Uint64, "uint64"),
    (DataType::Int32, "int32"),
    (DataType::Uint32, "uint32"),
    (DataType::Int8, "int8"),
    (DataType::Uint8, "uint8"),
];

/// Returns the WebNN name of a data type, such as `float32`.
pub fn data_type_name(data_type: DataType) -> &'static str {
    DATA_TYPE_NAMES.iter().find(|(known, _)| *known == data_type).map_or("", |(_, name)| name)
}

/// Returns the data type with this WebNN name, or `None` if there is no such type.
pub fn parse_data_type(name: &str) -> Option<DataType> {
    DATA_TYPE_NAMES.iter().find(|(_, known)| *known == name).map(|(data_type, _)| *data_type)
}

impl Port {
    /// Returns a port for the items of a dataset's field. A `uint8` field with the shape `[height, width]`,
    /// `[height, width, 1]` or `[height, width, 3]` has the semantics `image`.
    pub fn of(field: &Field) -> Self {
        let Descriptor { data_type, shape } = &field.item;
        let port = Self::new(&field.name, *data_type, shape.as_slice()).classes(&field.classes);
        match (data_type, shape.as_slice()) {
            (DataType::Uint8, [_, _] | [_, _, 1 | 3]) => port.semantics("image"),
            _ => port,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the data type and shape of an item.
    pub fn item(&self) -> &Descriptor {
        &self.item
    }
}

impl From<&Port> for Json {
    fn from(port: &Port) -> Self {
        let name = data_type_name(port.item.data_type);
        let member = |name: &str, value: Json| (name.to_owned(), value);
        Self::Object(vec![
            member("name", port.name.as_str().into()),
            member("data-type", name.into()),
            member("shape", port.item.shape.clone().into()),
            member("semantics", port.semantics.as_deref().map_or(Self::Null, Self::from)),
            member("classes", port.classes.clone().into()),
            member("default", port.default.map_or(Self::Null, Self::from)),
        ])
    }
}

impl FromJson for Port {
    const EXPECTED: &'static str = "a port: name, data-type, shape, semantics, classes, default";

    fn from_json(value: &Json) -> Option<Self> {
        let Json::Object(members) = value else { return None };
        let member = |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        let text = |name: &str| member(name).and_then(String::from_json);
        let data_type = parse_data_type(&text("data-type")?)?;
        Some(Self {
            name: text("name")?,
            item: descriptor(data_type, Vec::from_json(member("shape")?)?),
            semantics: text("semantics"),
            classes: Vec::from_json(member("classes")?)?,
            default: member("default").and_then(f64::from_json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    fn item_port(data_type: DataType, shape: &[u32]) -> Port {
        Port::of(&Field { name: "x".to_owned(), item: descriptor(data_type, shape), classes: Vec::new() })
    }

    #[test]
    fn bytes_shaped_like_an_image_have_image_semantics() {
        for shape in [[8, 8].as_slice(), &[32, 32, 3], &[8, 8, 1]] {
            assert_eq!(item_port(DataType::Uint8, shape).semantics.as_deref(), Some("image"), "{shape:?}");
        }
        assert_eq!(item_port(DataType::Uint8, &[8, 8, 4]).semantics, None);
        assert_eq!(item_port(DataType::Float32, &[8, 8]).semantics, None);
    }

    #[test]
    fn a_port_round_trips_through_a_configuration() {
        let classes = ["a".to_owned()];
        for port in [
            item_port(DataType::Uint8, &[32, 32, 3]),
            item_port(DataType::Int64, &[]).classes(&classes).default_value(0.5),
        ] {
            let config = Params::parse(&Params::new().with("input", &port).to_string()).unwrap();
            let read: Port = config.require("input").unwrap();
            assert_eq!((read.name(), format!("{:?}", read.item())), (port.name(), format!("{:?}", port.item())));
            assert_eq!((read.semantics, read.classes, read.default), (port.semantics, port.classes, port.default));
        }
        let wrong = Params::parse(r#"{"input": {"name": "x", "data-type": "float64", "shape": [], "classes": []}}"#);
        let refused = wrong.unwrap().require::<Port>("input").unwrap_err().to_string();
        assert!(refused.starts_with("parameter `input` must be a port: name,"), "{refused}");
    }
}
