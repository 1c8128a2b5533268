//! Reads WebNN cases from files.

use std::path::Path;

use saggar_tensor::interp::{InterpElements, InterpTensor};
use saggar_tensor::{DType, Descriptor, Shape};
use serde_json::{Map, Value as Json};

/// One case.
#[derive(Clone, Debug)]
pub struct WebnnCase {
    /// The file's operator and a number.
    pub id: String,
    /// The title of the case.
    pub name: String,
    /// Input tensors by name.
    pub inputs: Map<String, Json>,
    /// The operators, in order.
    pub steps: Vec<Json>,
    /// Expected tensors by name.
    pub expected: Map<String, Json>,
    /// The tolerance, if the case states one.
    pub tolerance: Option<Tolerance>,
}

/// The tolerance of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Units in the last place.
    Ulp(u64),
    /// Absolute difference.
    Absolute(f64),
}

impl WebnnCase {
    /// Returns the names of all data types in the case.
    pub fn data_types(&self) -> impl Iterator<Item = &str> {
        self.inputs.values().chain(self.expected.values()).filter_map(|tensor| tensor["dtype"].as_str())
    }
}

/// Returns the cases of every `.json` file in `folder`, by file name.
///
/// # Errors
/// Returns the file or case that is not valid.
pub fn read_cases(folder: &Path) -> Result<Vec<WebnnCase>, String> {
    let listing = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: Json = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let op = file["op"].as_str().unwrap_or("?");
        let listed = file["cases"].as_array().ok_or_else(|| format!("{}: no list of cases", path.display()))?;
        for (number, json) in listed.iter().enumerate() {
            let id = json["id"].as_str().map_or_else(|| format!("{op}/{number}"), str::to_owned);
            cases.push(parse_case(&id, json).ok_or_else(|| format!("{}: {id} is not a case", path.display()))?);
        }
    }
    Ok(cases)
}

fn parse_case(id: &str, json: &Json) -> Option<WebnnCase> {
    let tolerance = match (json["tolerance"]["metric"].as_str(), &json["tolerance"]["value"]) {
        (Some("ULP"), value) => Some(Tolerance::Ulp(value.as_u64()?)),
        (Some("ATOL"), value) => Some(Tolerance::Absolute(value.as_f64()?)),
        (Some(_), _) => return None,
        (None, _) => None,
    };
    Some(WebnnCase {
        id: id.to_owned(),
        name: json["name"].as_str()?.to_owned(),
        inputs: json["inputs"].as_object()?.clone(),
        steps: json["steps"].as_array()?.clone(),
        expected: json["expected"].as_object()?.clone(),
        tolerance,
    })
}

/// Returns the data type and shape of a tensor in a case.
pub(super) fn descriptor(tensor: &Json) -> Result<Descriptor, String> {
    let name = tensor["dtype"].as_str().unwrap_or("nothing");
    let dtype = DType::from_name(name).ok_or_else(|| format!("{name} is not a data type"))?;
    let dims = tensor["shape"].as_array().into_iter().flatten();
    let dims: Vec<usize> = dims.filter_map(|dim| dim.as_u64()).map(|dim| dim as usize).collect();
    Ok(Descriptor::new(dtype, Shape::new(dims).map_err(|error| error.to_string())?))
}

/// Returns a tensor in a case. Its elements are listed one by one, or one value stands for all.
pub(super) fn value(tensor: &Json) -> Result<InterpTensor, String> {
    let descriptor = descriptor(tensor)?;
    let count = descriptor.shape.elements();
    let listed: Vec<&Json> = match tensor.get("fill") {
        Some(one) => vec![one; count],
        None => tensor["data"].as_array().into_iter().flatten().collect(),
    };
    let elements = if descriptor.dtype.is_float() {
        let rounded = |json| {
            parse_number(json)
                .map(|number| if descriptor.dtype == DType::F32 { f64::from(number as f32) } else { number })
        };
        InterpElements::Float(listed.into_iter().map(rounded).collect::<Result<_, _>>()?)
    } else {
        InterpElements::Int(listed.into_iter().map(parse_integer).collect::<Result<_, _>>()?)
    };
    InterpTensor::new(descriptor, elements).map_err(|error| error.to_string())
}

/// Parses a number. Infinities, NaN and integers that JSON cannot represent are strings.
pub(super) fn parse_number(json: &Json) -> Result<f64, String> {
    let named = json.as_str().map(|text| text.trim_end_matches('n')).and_then(|text| text.parse().ok());
    json.as_f64().or(named).ok_or_else(|| format!("{json} is not a number"))
}

fn parse_integer(json: &Json) -> Result<i128, String> {
    let named = json.as_str().map(|text| text.trim_end_matches('n')).and_then(|text| text.parse().ok());
    let whole = json.as_i64().map(i128::from).or(json.as_u64().map(i128::from));
    let float = json.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i128);
    whole.or(float).or(named).ok_or_else(|| format!("{json} is not an integer"))
}
