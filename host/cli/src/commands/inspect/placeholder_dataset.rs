//! A placeholder for a plugin's dataset: fields of the right shape and type with meaningless elements, so that graphs
//! can be built without data.

use saggar_store::dataset::{ColumnarDataset, DatasetField};
use saggar_tensor::{DType, Descriptor, Shape};

use crate::exit::CliError;

/// Maximum bytes of a placeholder dataset.
const PLACEHOLDER_BYTES_MAX: u64 = 1 << 30;
/// The number of classes of a field that does not give one.
const DEFAULT_CLASSES: usize = 10;
/// The default fields: those that the templates and reference plugins read.
const DEFAULT_FIELDS: [&str; 5] =
    ["image=uint8[28,28]", "label=int32:10", "text=uint8[64]", "source=uint8[64]", "target=uint8[64]"];

/// Returns a dataset with splits `train` and `test` of `items` items each, with these fields or, if empty, the default
/// ones.
///
/// # Errors
/// Fails if a field is not of the form `NAME=TYPE[SHAPE]`, or if the dataset exceeds [`PLACEHOLDER_BYTES_MAX`].
pub(super) fn placeholder_dataset(fields: &[String], items: u32) -> Result<ColumnarDataset, CliError> {
    let usual: Vec<String> = DEFAULT_FIELDS.map(str::to_owned).into();
    let fields = if fields.is_empty() { &usual } else { fields };
    let fields = fields.iter().map(|text| parse_field(text)).collect::<Result<Vec<_>, _>>()?;
    let count = u64::from(items) * 2;
    let bytes = fields
        .iter()
        .fold(0u64, |sum, (field, _)| sum.saturating_add((field.item.bytes() as u64).saturating_mul(count)));
    if bytes > PLACEHOLDER_BYTES_MAX {
        let message = format!("the placeholder dataset has {bytes} bytes; the maximum is {PLACEHOLDER_BYTES_MAX}");
        return Err(CliError::invalid(message).with_hint("use fewer --items, but at least one batch"));
    }
    let column = |(field, classes): (DatasetField, usize)| {
        let elements = fill_elements(field.item.dtype, field.item.shape.elements(), count as usize, classes);
        (field, elements)
    };
    let parts = [("train".to_owned(), u64::from(items)), ("test".to_owned(), u64::from(items))];
    ColumnarDataset::from_columns(fields.into_iter().map(column).collect(), &parts)
        .map_err(|error| CliError::invalid(error.to_string()))
}

/// Parses `image=uint8[28,28]`, `label=int32:10` or `x=float32`, and returns the field and its number of classes.
fn parse_field(text: &str) -> Result<(DatasetField, usize), CliError> {
    let wrong = |what: &str| {
        let hint = "fields are written image=uint8[28,28], x=float32 or, with classes, label=int32:10";
        CliError::invalid(format!("--field {text}: {what}")).with_hint(hint)
    };
    let (name, form) = text.split_once('=').ok_or_else(|| wrong("expected NAME=TYPE[SHAPE]"))?;
    let (form, classes) = match form.split_once(':') {
        None => (form, 0),
        Some((form, classes)) => {
            let count = classes.parse().ok().filter(|count| (1..=1000).contains(count));
            (form, count.ok_or_else(|| wrong("expected 1 to 1000 classes"))?)
        }
    };
    let (dtype, dims) = match form.split_once('[') {
        None => (form, Vec::new()),
        Some((dtype, dims)) => {
            let dims = dims.strip_suffix(']').ok_or_else(|| wrong("expected ] at the end of the shape"))?;
            let dim = |dim: &str| dim.trim().parse::<usize>().map_err(|_| wrong("dimensions are whole numbers"));
            (dtype, dims.split(',').filter(|dim| !dim.trim().is_empty()).map(dim).collect::<Result<_, _>>()?)
        }
    };
    let dtype = DType::from_name(dtype).ok_or_else(|| wrong("no such data type"))?;
    let shape = Shape::new(dims).map_err(|error| wrong(&error.to_string()))?;
    let item = Descriptor::new(dtype, shape);
    let names = (0..classes).map(|class| class.to_string()).collect();
    let classes = if classes == 0 { DEFAULT_CLASSES } else { classes };
    Ok((DatasetField { name: name.to_owned(), item, classes: names }, classes))
}

/// Returns letters and spaces for bytes, so that they are also valid text, and small whole numbers for other types.
fn fill_elements(dtype: DType, item: usize, count: usize, classes: usize) -> Vec<u8> {
    let number = |at: usize| (at % classes) as u32;
    let all = 0..item * count;
    match dtype {
        DType::U8 => {
            all.map(|at| if at % 6 == 5 { b' ' } else { b'a' + ((at + at / item.max(1)) % 26) as u8 }).collect()
        }
        DType::I8 => all.map(|at| number(at) as u8).collect(),
        DType::F16 => all.flat_map(|_| [0, 0x3c]).collect(),
        DType::F32 => all.flat_map(|at| (number(at) as f32 / classes as f32).to_le_bytes()).collect(),
        DType::I32 | DType::U32 => all.flat_map(|at| number(at).to_le_bytes()).collect(),
        DType::I64 | DType::U64 => all.flat_map(|at| u64::from(number(at)).to_le_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_fields_are_parsed_and_filled() {
        let usual = placeholder_dataset(&[], 8).unwrap();
        assert_eq!(usual.len(Some("train")).unwrap(), 8);
        assert_eq!(usual.field("label").unwrap().classes.len(), 10);
        let own = ["x=float32[2, 3]", "y=int64"].map(str::to_owned);
        let own = placeholder_dataset(&own, 4).unwrap();
        assert_eq!(own.field("x").unwrap().item.to_string(), "float32[2, 3]");
        assert_eq!(own.column("y").unwrap().len(), 64);
    }

    #[test]
    fn an_invalid_field_is_refused_with_the_expected_form() {
        for text in ["image", "image=u9", "x=float32[2", "x=float32[-1]", "label=int32:0", "x=uint8[100000,100000]"] {
            let failure = placeholder_dataset(&[text.to_owned()], 1).unwrap_err();
            assert!(failure.message.contains(text) && failure.hint.is_some(), "{failure}");
        }
        let many = placeholder_dataset(&["x=float32[1000000]".to_owned()], 1024).unwrap_err();
        assert!(many.message.contains("bytes"), "{many}");
    }
}
