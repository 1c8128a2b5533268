//! One application of an operator: its operands and attributes, asked for by rules.

use std::borrow::Cow;

use crate::elem::ElementType;
use crate::error::{Error, OnnxErrorKind, Result, ValueSource};
use crate::proto::{AttributeProto, TensorProto};
use crate::value::{ConstantTensor, GraphValue, checked_size};

/// A node with the values of its operands.
#[derive(Debug)]
pub struct OperatorCall<'a> {
    /// The operator.
    pub op: &'a str,
    /// The version of its operator set.
    pub opset: i64,
    /// Attributes, those of the calling function put in.
    pub attributes: Vec<Cow<'a, AttributeProto>>,
    /// Operands; none where one is left out.
    pub inputs: Vec<Option<GraphValue>>,
    /// The operands' names.
    pub names: &'a [String],
    /// Which results are wanted.
    pub wanted: Vec<bool>,
}

/// Numbers of `AttributeProto.type`.
const INT: i32 = 2;
const FLOAT: i32 = 1;
/// Windows, steps and paddings at most: sums of a few of them and of a dimension stay within 32 bits.
const SIZE_MAX: usize = 1 << 20;

impl OperatorCall<'_> {
    /// The operand at `position`.
    ///
    /// # Errors
    /// `Invalid` if it is left out.
    pub fn input(&self, position: usize) -> Result<&GraphValue> {
        self.optional(position).ok_or_else(|| Error::invalid(format!("operand {position} is missing")))
    }

    /// The operand at `position`, if it is given.
    pub fn optional(&self, position: usize) -> Option<&GraphValue> {
        self.inputs.get(position)?.as_ref()
    }

    /// All operands, none of them left out.
    ///
    /// # Errors
    /// `Invalid` if one is left out or there are none.
    pub fn inputs(&self) -> Result<Vec<GraphValue>> {
        if self.inputs.is_empty() {
            return Err(Error::invalid("operands are missing"));
        }
        (0..self.inputs.len()).map(|position| self.input(position).cloned()).collect()
    }

    /// Whether the result at `position` is used.
    pub fn is_output_used(&self, position: usize) -> bool {
        self.wanted.get(position).copied().unwrap_or(false)
    }

    /// The operand at `position`, which must be known now.
    ///
    /// # Errors
    /// `Invalid` if it is left out; `NotKnown` if the model computes it.
    pub fn constant(&self, position: usize, role: &str) -> Result<&ConstantTensor> {
        match self.input(position)?.constant() {
            Some(constant) => Ok(constant),
            None => {
                let name = self.names.get(position).cloned().unwrap_or_default();
                let (role, source) = (role.to_owned(), ValueSource::default());
                Err(OnnxErrorKind::NotKnown { name, role, source }.into())
            }
        }
    }

    /// The integers of the operand at `position`, which must be known now; none if it is left out.
    ///
    /// # Errors
    /// `NotKnown`.
    pub fn known_ints(&self, position: usize, role: &str) -> Result<Option<Vec<i64>>> {
        match self.optional(position) {
            None => Ok(None),
            Some(_) => Ok(Some(self.constant(position, role)?.integers())),
        }
    }

    /// The numbers of the operand at `position`, which must be known now; none if it is left out.
    ///
    /// # Errors
    /// `NotKnown`.
    pub fn known_floats(&self, position: usize, role: &str) -> Result<Option<Vec<f64>>> {
        match self.optional(position) {
            None => Ok(None),
            Some(_) => Ok(Some(self.constant(position, role)?.floats())),
        }
    }

    /// The one number of the operand at `position`; `default` if it is left out.
    ///
    /// # Errors
    /// `NotKnown`; `Invalid` if it is not one number.
    pub fn known_scalar(&self, position: usize, role: &str, default: f64) -> Result<f64> {
        match self.known_floats(position, role)?.as_deref() {
            None => Ok(default),
            Some([value]) => Ok(*value),
            Some(values) => Err(Error::invalid(format!("{role} must be one number, not {}", values.len()))),
        }
    }

    /// Integers that were an attribute in older versions and are an operand in newer ones.
    ///
    /// # Errors
    /// `NotKnown`.
    pub fn ints_attribute_or_input(&self, attribute: &str, position: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(attribute) {
            Some(ints) => Ok(Some(ints.to_vec())),
            None => self.known_ints(position, attribute),
        }
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &**attribute)
    }

    /// An integer attribute.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.i)
    }

    /// An integer attribute that has no default.
    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// Whether an integer attribute is not 0.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, i64::from(default)) != 0
    }

    /// A float attribute.
    pub fn float(&self, name: &str, default: f32) -> f64 {
        f64::from(self.attribute(name).map_or(default, |attribute| attribute.f))
    }

    /// A number whose attribute is an integer or a float.
    pub fn number(&self, name: &str) -> Option<f64> {
        let attribute = self.attribute(name)?;
        match attribute.kind {
            INT => Some(attribute.i as f64),
            FLOAT => Some(f64::from(attribute.f)),
            _ => None,
        }
    }

    /// An attribute of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// An attribute of floats.
    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attribute(name).map(|attribute| attribute.floats.iter().map(|&value| f64::from(value)).collect())
    }

    /// A text attribute.
    pub fn string<'s>(&'s self, name: &str, default: &'s str) -> Cow<'s, str> {
        self.attribute(name).map_or(Cow::Borrowed(default), |attribute| String::from_utf8_lossy(&attribute.s))
    }

    /// A text attribute that is one of a few words; the first is the default.
    ///
    /// # Errors
    /// `Invalid`, naming the words, if it is another.
    pub fn choice<'s>(&self, name: &str, words: &[&'s str]) -> Result<&'s str> {
        let Some(attribute) = self.attribute(name) else { return Ok(words.first().copied().unwrap_or_default()) };
        words.iter().copied().find(|word| word.as_bytes() == attribute.s).ok_or_else(|| {
            let given = String::from_utf8_lossy(&attribute.s);
            Error::invalid(format!("attribute `{name}` of {} must be {}, not `{given}`", self.op, words.join(" or ")))
        })
    }

    /// An attribute of texts.
    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        let attribute = self.attribute(name)?;
        Some(attribute.strings.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name)?.t.as_ref()
    }

    /// An attribute that numbers an element type.
    ///
    /// # Errors
    /// `Unsupported`; `Invalid`.
    pub fn element_type(&self, name: &str) -> Result<Option<ElementType>> {
        let number = self.attribute(name).map(|attribute| attribute.i);
        number
            .filter(|&number| number != 0)
            .map(|number| ElementType::from_number(i32::try_from(number).unwrap_or(-1)))
            .transpose()
    }

    /// Sizes as an attribute, each at least `least` and no larger than an image could be; `default` as often as `count`
    /// where it is absent.
    ///
    /// # Errors
    /// `Invalid` if they are not `count`, or one is smaller.
    pub fn sizes(&self, name: &str, count: usize, default: usize, least: usize) -> Result<Vec<usize>> {
        let Some(given) = self.ints(name).filter(|ints| !ints.is_empty()) else { return Ok(vec![default; count]) };
        let sizes = given.iter().map(|&value| checked_size(value, name)).collect::<Result<Vec<_>>>()?;
        if sizes.len() != count || sizes.iter().any(|&size| size < least || size > SIZE_MAX) {
            return Err(Error::invalid(format!("`{name}` must be {count} numbers of at least {least}, not {given:?}")));
        }
        Ok(sizes)
    }
}
