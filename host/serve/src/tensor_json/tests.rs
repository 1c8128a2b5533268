//! The reader compared with a reference over trees of `serde_json`, which shares no code with it.

use std::sync::LazyLock;

use proptest::prelude::*;
use saggar_tensor::DType;
use saggar_tensor::interp::float16;
use serde_json::Value;

use super::decimal::ScannedDecimal;
use super::*;

const TYPES: [DType; 8] =
    [DType::F32, DType::F16, DType::I64, DType::U64, DType::I32, DType::U32, DType::I8, DType::U8];

static CLASSES: LazyLock<[String; 2]> = LazyLock::new(|| ["cat", "dog"].map(str::to_owned));

/// The limit of a tensor's bytes in these tests.
const BYTES_MAX: usize = 48;

/// What a reader returns: the shape, if it has one, and the elements.
type ReadTensor = Option<(Vec<usize>, Vec<u8>)>;

fn read(rules: ElementRules<'_>, text: &str) -> ReadTensor {
    let mut json = JsonTokenizer::standard(text.as_bytes());
    let mut reader = TensorReader::new(rules, 16);
    reader.read(&mut json).ok()?;
    json.expect_end().ok()?;
    let dims = if rules.nesting == ArrayNesting::Any { vec![reader.elements()] } else { reader.dims().collect() };
    Some((dims, reader.into_bytes()))
}

/// Returns what the reader must return for `text`.
fn read_by_reference(rules: ElementRules<'_>, text: &str) -> ReadTensor {
    let value = serde_json::from_str(text).ok()?;
    let mut bytes = Vec::new();
    let dims = reference_value(rules, &value, 0, &mut bytes)?;
    if rules.nesting == ArrayNesting::Rectangular {
        return Some((dims?, bytes));
    }
    let element_bytes = rules.text.map_or(rules.dtype.bytes(), |(_, bytes_max)| bytes_max);
    value.is_array().then(|| (vec![bytes.len() / element_bytes], bytes))
}

/// Appends a value's elements. Returns its shape, or `None` within for one that no shape describes.
fn reference_value(
    rules: ElementRules<'_>,
    value: &Value,
    level: usize,
    bytes: &mut Vec<u8>,
) -> Option<Option<Vec<usize>>> {
    let Value::Array(values) = value else {
        return reference_element(rules, value, bytes).map(Some);
    };
    if level == crate::limits::JSON_DEPTH_MAX {
        return None;
    }
    let mut inner: Option<Option<Vec<usize>>> = None;
    for value in values {
        let dims = reference_value(rules, value, level + 1, bytes)?;
        match &inner {
            None => inner = Some(dims),
            Some(before) if *before == dims => {}
            Some(_) if rules.nesting == ArrayNesting::Any => {}
            Some(_) => return None,
        }
    }
    let text = rules.text.filter(|(notation, _)| *notation != TextNotation::StringOrNumbers);
    let inner = inner.unwrap_or_else(|| Some(text.map(|(_, bytes_max)| bytes_max).into_iter().collect()));
    Some(inner.map(|inner| [&[values.len()], inner.as_slice()].concat()))
}

/// Appends an element. Returns its shape.
fn reference_element(rules: ElementRules<'_>, value: &Value, bytes: &mut Vec<u8>) -> Option<Vec<usize>> {
    if let Some((notation, bytes_max)) = rules.text {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Object(members) if notation == TextNotation::StringOrBase64 && members.len() == 1 => {
                String::from_utf8(base64::decode(members.get("b64")?.as_str()?)?).ok()?
            }
            _ if notation == TextNotation::StringOrNumbers => return reference_number(rules, value, bytes),
            _ => return None,
        };
        if text.len() > bytes_max || text.contains('\0') || bytes.len() + bytes_max > rules.bytes_max {
            return None;
        }
        bytes.extend(text.bytes().chain(std::iter::repeat(0)).take(bytes_max));
        return Some(vec![bytes_max]);
    }
    reference_number(rules, value, bytes)
}

fn reference_number(rules: ElementRules<'_>, value: &Value, bytes: &mut Vec<u8>) -> Option<Vec<usize>> {
    let class = |text: &str| rules.classes.iter().position(|class| class == text);
    let value = match value {
        Value::Bool(truth) if rules.booleans => Value::from(u8::from(*truth)),
        Value::String(text) => Value::from(class(text)?),
        other => other.clone(),
    };
    if bytes.len() >= rules.bytes_max {
        return None;
    }
    let number = value.as_f64()?;
    let accepts = |is_finite: bool| is_finite || rules.numbers.overflow_is_infinite;
    let mut whole = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    if whole.is_none() && rules.numbers.whole_floats && number.fract() == 0.0 {
        whole = Some(number as i128);
    }
    let whole = |min: i128, max: i128| whole.filter(|whole| (min..=max).contains(whole));
    match rules.dtype {
        DType::F32 if accepts((number as f32).is_finite()) => bytes.extend((number as f32).to_le_bytes()),
        DType::F16 if accepts(float16::from_bits(float16::to_bits(number)).is_finite()) => {
            bytes.extend(float16::to_bits(number).to_le_bytes());
        }
        DType::F32 | DType::F16 => return None,
        DType::I64 => bytes.extend((whole(i64::MIN.into(), i64::MAX.into())? as i64).to_le_bytes()),
        DType::U64 => bytes.extend((whole(0, u64::MAX.into())? as u64).to_le_bytes()),
        DType::I32 => bytes.extend((whole(i32::MIN.into(), i32::MAX.into())? as i32).to_le_bytes()),
        DType::U32 => bytes.extend((whole(0, u32::MAX.into())? as u32).to_le_bytes()),
        DType::I8 => bytes.extend((whole(-128, 127)? as i8).to_le_bytes()),
        DType::U8 => bytes.push(whole(0, 255)? as u8),
    }
    Some(Vec::new())
}

/// Rules of every kind of tensor.
fn any_rules() -> impl Strategy<Value = ElementRules<'static>> {
    let notation =
        prop::sample::select(vec![TextNotation::StringOrNumbers, TextNotation::String, TextNotation::StringOrBase64]);
    let text = prop::option::weighted(0.3, (notation, 1..4_usize));
    let numbers = (any::<bool>(), any::<bool>())
        .prop_map(|(whole_floats, overflow_is_infinite)| NumberRules { whole_floats, overflow_is_infinite });
    let nesting = prop::sample::select(vec![ArrayNesting::Rectangular, ArrayNesting::Any]);
    let dtype = prop::sample::select(TYPES.to_vec());
    (dtype, text, numbers, any::<bool>(), any::<bool>(), nesting).prop_map(
        |(dtype, text, numbers, booleans, has_classes, nesting)| {
            // Arrays of bytes are texts only where nesting has a meaning.
            let is_flat = nesting == ArrayNesting::Any;
            let text = text.filter(|(notation, _)| !(is_flat && *notation == TextNotation::StringOrNumbers));
            let dtype = if text.is_some() { DType::U8 } else { dtype };
            let classes = if has_classes && text.is_none() { CLASSES.as_slice() } else { &[] };
            ElementRules { dtype, text, classes, numbers, booleans, nesting, bytes_max: BYTES_MAX }
        },
    )
}

/// Elements of which `serde_json` reads every number exactly.
fn element_text() -> impl Strategy<Value = String> {
    let other = ["true", "false", "null", "\"cat\"", "\"\\u0064og\"", "\"a\"", "\"\"", "\"\\u0000\"", "{}"];
    let objects = ["{\"b64\": \"aGk=\"}", "{\"b64\":\"/w==\"}", "{\"b64\":\"a\"}", "{\"b64\":\"aGk=\",\"a\":1}"];
    let edges = ["255", "256", "-128", "-129", "2147483648", "65519", "65520", "1e39", "-0", "18446744073709551615"];
    prop_oneof![
        12 => "-?(0|[1-9][0-9]{0,3})",
        4 => "-?(0|[1-9][0-9]{0,11})(\\.[0-9]{1,3})?([eE][+-]?[0-9])?",
        2 => prop::sample::select(edges.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(other.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(objects.to_vec()).prop_map(str::to_owned),
    ]
}

/// Texts of nested arrays, most of them rectangular.
fn tensor_text() -> impl Strategy<Value = String> {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let ragged =
        element_text().prop_recursive(4, 24, 4, move |inner| prop::collection::vec(inner, 0..4).prop_map(list));
    let grid = prop::collection::vec(1..4_usize, 0..4).prop_flat_map(|dims| {
        let count = dims.iter().product::<usize>();
        prop::collection::vec(element_text(), count).prop_map(move |elements| {
            let fold = |items: Vec<String>, dim: &usize| {
                items.chunks(*dim).map(|row| format!("[ {} ]", row.join(" , "))).collect()
            };
            dims.iter().rev().fold(elements, fold).concat()
        })
    });
    prop_oneof![3 => grid, 2 => ragged, 1 => "[\\[\\]{}:,\" a.0-9eE-]{0,24}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tensors_are_read_as_by_the_reference(rules in any_rules(), text in tensor_text()) {
        prop_assert_eq!(read(rules, &text), read_by_reference(rules, &text), "{:?} {}", rules, text);
    }

    /// The fast conversions round like the standard library, whatever the number of digits.
    #[test]
    fn decimals_are_the_nearest_floats(text in "-?(0|[1-9][0-9]{0,22})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?") {
        let (number, end) = ScannedDecimal::scan(text.as_bytes(), 0).unwrap();
        let expected: f64 = text.parse().unwrap();
        prop_assert_eq!(end, text.len());
        prop_assert_eq!(number.to_f64().to_bits(), expected.to_bits());
        prop_assert_eq!(number.to_f32().to_bits(), (expected as f32).to_bits());
        prop_assert_eq!(number.to_u64(), text.parse().ok().filter(|_| text.len() < 20));
    }

    /// An element of a run has the same bits as one that is read alone.
    #[test]
    fn runs_of_numbers_are_read_as_single_numbers(
        numbers in prop::collection::vec("-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?", 3),
    ) {
        for dtype in TYPES {
            let rules = number_rules(dtype);
            let single: Option<Vec<u8>> = numbers.iter().map(|number| Some(read(rules, number)?.1)).collect::<Option<Vec<_>>>().map(|all| all.concat());
            prop_assert_eq!(read(rules, &format!("[{}]", numbers.join(", "))).map(|(_, bytes)| bytes), single);
        }
    }
}

fn number_rules(dtype: DType) -> ElementRules<'static> {
    ElementRules {
        dtype,
        text: None,
        classes: &[],
        numbers: NumberRules { whole_floats: true, overflow_is_infinite: false },
        booleans: false,
        nesting: ArrayNesting::Rectangular,
        bytes_max: BYTES_MAX,
    }
}

#[test]
fn errors_have_a_position_and_the_value() {
    let check = |text: &str, kind: TensorErrorKind, path: &[usize], value: &str| {
        let mut json = JsonTokenizer::standard(text.as_bytes());
        let error = TensorReader::new(number_rules(DType::U8), 0).read(&mut json).unwrap_err();
        assert_eq!((error.kind, error.path.as_slice()), (kind, path), "{text}");
        assert_eq!(error.describe_value(&json), value, "{text}");
    };
    check("[[1,2],[3, 256]]", TensorErrorKind::Element, &[1, 1], "256");
    check("[[1,2],[3, \"a\"]]", TensorErrorKind::Element, &[1, 1], "the string \"a\"");
    check("[[1,2], [3]]", TensorErrorKind::Ragged { level: 1, expected: 2, got: 1 }, &[1], "an array");
    check("[[1,2], 3]", TensorErrorKind::ElementAmongArrays { level: 1, rank: 2 }, &[1], "3");
    check("[[], 3]", TensorErrorKind::ElementAmongArrays { level: 1, rank: 2 }, &[1], "3");
    check("[1, [2]]", TensorErrorKind::ArrayAmongElements { level: 1, rank: 1 }, &[1], "an array");
    check("[1, 1e999]", TensorErrorKind::NumberOutOfRange, &[1], "inf");
    check(&"[".repeat(100), TensorErrorKind::TooDeep, &[0; 9], "an array");
}

#[test]
fn elements_beyond_the_limit_are_refused() {
    let too_large = |rules: ElementRules<'_>, text: String| {
        // The expected size is only a hint, so it must not allocate more than the limit.
        let mut reader = TensorReader::new(rules, usize::MAX);
        reader
            .read(&mut JsonTokenizer::new(text.as_bytes()))
            .is_err_and(|error| error.kind == TensorErrorKind::TooLarge)
    };
    for (dtype, most) in [(DType::U8, BYTES_MAX), (DType::I64, BYTES_MAX / 8)] {
        assert!(!too_large(number_rules(dtype), format!("[{}1]", "1,".repeat(most - 1))));
        assert!(too_large(number_rules(dtype), format!("[{}1]", "1,".repeat(most))));
    }
    let texts = ElementRules { text: Some((TextNotation::String, 16)), ..number_rules(DType::U8) };
    assert!(!too_large(texts, r#"["a","b","c"]"#.to_owned()) && too_large(texts, r#"["a","b","c","d"]"#.to_owned()));
}

/// Rows are joined, and each has its own shape.
#[test]
fn one_reader_reads_several_values() {
    let mut reader = TensorReader::new(number_rules(DType::U8), 0);
    for (text, dims) in [("[1, 2]", &[2][..]), ("3", &[]), ("[[4], [5]]", &[2, 1]), ("[[], []]", &[2, 0])] {
        reader.read(&mut JsonTokenizer::new(text.as_bytes())).unwrap();
        assert_eq!(reader.dims().collect::<Vec<_>>(), dims, "{text}");
    }
    assert_eq!((reader.elements(), reader.into_bytes()), (5, vec![1, 2, 3, 4, 5]));
}
