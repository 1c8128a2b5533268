//! The operands and attributes of one node, as its operator's rule reads them.

use std::borrow::Cow;

use crate::elem::ElementType;
use crate::error::{Error, OnnxErrorKind, Result, ValueSource};
use crate::proto::{AttributeProto, TensorProto};
use crate::value::{ConstantTensor, GraphValue, checked_size};

/// A node with the values of its operands.
#[derive(Debug)]
pub struct OperatorCall<'a> {
    /// The operator's name.
    pub op: &'a str,
    /// The version of the operator set.
    pub opset: i64,
    /// The attributes, with those of the calling function resolved.
    pub attributes: Vec<Cow<'a, AttributeProto>>,
    /// The operands. `None` is an optional operand that the node omits.
    pub inputs: Vec<Option<GraphValue>>,
    /// The operands' names.
    pub names: &'a [String],
    /// Whether each result is used.
    pub wanted: Vec<bool>,
}

/// Values of `AttributeProto.type`.
const INT: i32 = 2;
const FLOAT: i32 = 1;
/// The maximum window, stride and padding. The sum of a few of them and a dimension fits in 32 bits.
const SIZE_MAX: usize = 1 << 20;

impl OperatorCall<'_> {
    /// Returns the operand at `position`.
    ///
    /// # Errors
    /// Returns `Invalid` if the operand is omitted.
    pub fn input(&self, position: usize) -> Result<&GraphValue> {
        self.optional(position).ok_or_else(|| Error::invalid(format!("operand {position} is missing")))
    }

    /// Returns the operand at `position`, or `None` if it is omitted.
    pub fn optional(&self, position: usize) -> Option<&GraphValue> {
        self.inputs.get(position)?.as_ref()
    }

    /// Returns all operands.
    ///
    /// # Errors
    /// Returns `Invalid` if an operand is omitted or there are no operands.
    pub fn inputs(&self) -> Result<Vec<GraphValue>> {
        if self.inputs.is_empty() {
            return Err(Error::invalid("operands are missing"));
        }
        (0..self.inputs.len()).map(|position| self.input(position).cloned()).collect()
    }

    /// Returns whether the result at `position` is used.
    pub fn is_output_used(&self, position: usize) -> bool {
        self.wanted.get(position).copied().unwrap_or(false)
    }

    /// Returns the operand at `position`, which must be a constant.
    ///
    /// # Errors
    /// Returns `Invalid` if the operand is omitted; `NotKnown` if the model computes it.
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

    /// Returns the integers of the operand at `position`, which must be a constant, or `None` if it is omitted.
    ///
    /// # Errors
    /// Returns `NotKnown` if the operand is not constant.
    pub fn known_ints(&self, position: usize, role: &str) -> Result<Option<Vec<i64>>> {
        match self.optional(position) {
            None => Ok(None),
            Some(_) => Ok(Some(self.constant(position, role)?.integers())),
        }
    }

    /// Returns the numbers of the operand at `position`, which must be a constant, or `None` if it is omitted.
    ///
    /// # Errors
    /// Returns `NotKnown` if the operand is not constant.
    pub fn known_floats(&self, position: usize, role: &str) -> Result<Option<Vec<f64>>> {
        match self.optional(position) {
            None => Ok(None),
            Some(_) => Ok(Some(self.constant(position, role)?.floats())),
        }
    }

    /// Returns the single number of the operand at `position`, or `default` if it is omitted.
    ///
    /// # Errors
    /// Returns `NotKnown` if the operand is not constant; `Invalid` if it is not one number.
    pub fn known_scalar(&self, position: usize, role: &str, default: f64) -> Result<f64> {
        match self.known_floats(position, role)?.as_deref() {
            None => Ok(default),
            Some([value]) => Ok(*value),
            Some(values) => Err(Error::invalid(format!("{role} must be one number, not {}", values.len()))),
        }
    }

    /// Returns integers that are an attribute in older versions of the operator set and an operand in newer ones.
    ///
    /// # Errors
    /// Returns `NotKnown` if the operand is not constant.
    pub fn ints_attribute_or_input(&self, attribute: &str, position: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(attribute) {
            Some(ints) => Ok(Some(ints.to_vec())),
            None => self.known_ints(position, attribute),
        }
    }

    /// Returns the attribute `name`, or `None` if the node does not set it.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &**attribute)
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.i)
    }

    /// Returns an integer attribute without a default.
    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// Returns whether an integer attribute is not 0.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, i64::from(default)) != 0
    }

    /// Returns a float attribute.
    pub fn float(&self, name: &str, default: f32) -> f64 {
        f64::from(self.attribute(name).map_or(default, |attribute| attribute.f))
    }

    /// Returns a number whose attribute is an integer or a float.
    pub fn number(&self, name: &str) -> Option<f64> {
        let attribute = self.attribute(name)?;
        match attribute.kind {
            INT => Some(attribute.i as f64),
            FLOAT => Some(f64::from(attribute.f)),
            _ => None,
        }
    }

    /// Returns an attribute that is a list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// Returns an attribute that is a list of floats.
    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attribute(name).map(|attribute| attribute.floats.iter().map(|&value| f64::from(value)).collect())
    }

    /// Returns a string attribute.
    pub fn string<'s>(&'s self, name: &str, default: &'s str) -> Cow<'s, str> {
        self.attribute(name).map_or(Cow::Borrowed(default), |attribute| String::from_utf8_lossy(&attribute.s))
    }

    /// Returns a string attribute that must be one of `words`. The first word is the default.
    ///
    /// # Errors
    /// Returns `Invalid`, listing the words, if the attribute has another value.
    pub fn choice<'s>(&self, name: &str, words: &[&'s str]) -> Result<&'s str> {
        let Some(attribute) = self.attribute(name) else { return Ok(words.first().copied().unwrap_or_default()) };
        words.iter().copied().find(|word| word.as_bytes() == attribute.s).ok_or_else(|| {
            let given = String::from_utf8_lossy(&attribute.s);
            Error::invalid(format!("attribute `{name}` of {} must be {}, not `{given}`", self.op, words.join(" or ")))
        })
    }

    /// Returns an attribute that is a list of strings.
    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        let attribute = self.attribute(name)?;
        Some(attribute.strings.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// Returns a tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.attribute(name)?.t.as_ref()
    }

    /// Returns an attribute that is an element type.
    ///
    /// # Errors
    /// Returns `Unsupported` if the plugin does not support the type; `Invalid` if there is no such type.
    pub fn element_type(&self, name: &str) -> Result<Option<ElementType>> {
        let number = self.attribute(name).map(|attribute| attribute.i);
        number
            .filter(|&number| number != 0)
            .map(|number| ElementType::from_number(i32::try_from(number).unwrap_or(-1)))
            .transpose()
    }

    /// Returns an attribute of `count` sizes, each at least `least` and within the limit of an image. Returns `default`
    /// for each of them if the attribute is absent.
    ///
    /// # Errors
    /// Returns `Invalid` if there are not `count` sizes or one of them is out of range.
    pub fn sizes(&self, name: &str, count: usize, default: usize, least: usize) -> Result<Vec<usize>> {
        let Some(given) = self.ints(name).filter(|ints| !ints.is_empty()) else { return Ok(vec![default; count]) };
        let sizes = given.iter().map(|&value| checked_size(value, name)).collect::<Result<Vec<_>>>()?;
        if sizes.len() != count || sizes.iter().any(|&size| size < least || size > SIZE_MAX) {
            return Err(Error::invalid(format!("`{name}` must be {count} numbers of at least {least}, not {given:?}")));
        }
        Ok(sizes)
    }
}
