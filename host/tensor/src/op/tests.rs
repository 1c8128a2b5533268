use std::collections::BTreeSet;

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{
    BinaryFacts, BinaryOp, ContractOp, ConvolutionOp, IndexOp, MovementOp, NeutralOperand, Op, OperandTypes,
    OperatorSmoothness, PoolKind, RandomDistribution, ReduceKind, ReduceOp, ScatterCombine, SourceOp, UnaryFacts,
    UnaryOp,
};
use crate::DType;

/// Returns the names of an enum's variants, as its derived `Deserialize` passes them.
fn variant_names<T: for<'de> Deserialize<'de>>() -> BTreeSet<&'static str> {
    struct VariantNames<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for VariantNames<'_> {
        type Error = Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("not an enum"))
        }
        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            variants: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            *self.0 = variants;
            Err(Error::custom("only the names are read"))
        }
        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map struct identifier ignored_any
        }
    }

    let mut names: &[&str] = &[];
    assert!(T::deserialize(VariantNames(&mut names)).is_err() && !names.is_empty());
    names.iter().copied().collect()
}

/// Returns the names of the variants of these values.
fn variants_of<T: std::fmt::Debug>(values: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    let name = |value| format!("{value:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect();
    values.into_iter().map(name).collect()
}

fn check_complete<T: for<'de> Deserialize<'de> + std::fmt::Debug>(values: impl IntoIterator<Item = T>) {
    let (all, listed) = (variant_names::<T>(), variants_of(values));
    assert!(all.iter().copied().eq(listed.iter().map(String::as_str)), "{all:?} are the variants, not {listed:?}");
}

#[test]
fn prototypes_have_every_variant_of_every_family() {
    check_complete(Op::prototypes());
    check_complete(SourceOp::prototypes());
    check_complete(UnaryOp::prototypes());
    check_complete(BinaryOp::ALL.iter().copied());
    check_complete(ReduceOp::prototypes());
    check_complete(MovementOp::prototypes());
    check_complete(ContractOp::prototypes());
    check_complete(ConvolutionOp::prototypes());
    check_complete(IndexOp::prototypes());
    check_complete(ReduceKind::ALL);
    check_complete(ScatterCombine::ALL);
    check_complete(RandomDistribution::ALL);
    check_complete([PoolKind::Max, PoolKind::Sum]);
}

#[test]
fn prototypes_have_names_of_lower_case_words() {
    for op in Op::prototypes() {
        let is_plain =
            |word: &str| !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        assert!(op.name().split('-').all(is_plain), "{}", op.name());
    }
}

#[test]
fn operand_types_contain_what_they_describe() {
    let names = |types: OperandTypes| types.dtypes().map(DType::name).collect::<Vec<_>>().join(" ");
    assert_eq!(names(OperandTypes::Any), "float32 float16 int64 uint64 int32 uint32 int8 uint8");
    assert_eq!(names(OperandTypes::Float), "float32 float16");
    assert_eq!(names(OperandTypes::Signed), "float32 float16 int64 int32 int8");
    assert_eq!(names(OperandTypes::Boolean), "uint8");
}

#[test]
fn only_results_of_the_operand_type_have_a_neutral_operand() {
    for op in BinaryOp::ALL {
        let facts = op.facts();
        assert!(!facts.is_boolean || facts.neutral == NeutralOperand::Absent, "{}", op.name());
    }
}

/// Returns the text for where a float operator has a derivative.
fn derivative(smoothness: OperatorSmoothness) -> &'static str {
    match smoothness {
        OperatorSmoothness::Smooth => "everywhere",
        OperatorSmoothness::Kinked => "except at kinks",
        OperatorSmoothness::Stepped => "0",
    }
}

/// Returns the page that lists the primitive operators.
fn operators_page() -> String {
    let mut page = "# Primitive operators

This page lists the primitive operators with the facts that the compiler and the tests read. A test generates it from \
`host/tensor/src/op` and compares it. `UPDATE_EXPECT=1` rewrites it.

- **Work** is the work for each element, in additions. It decides whether the compiler computes an element again or \
stores it.
- **Tolerance** is the largest error of a device, in the units of [Conformance](conformance.md#the-device-suite).
- All other operators are composites of these. [Add an operator](add-an-operator.md) says where each is defined.

## Element-wise operators

| operator | operands | result | derivative | work | tolerance |
|---|---|---|---|---|---|
"
    .to_owned();
    for op in UnaryOp::prototypes() {
        let UnaryFacts { operands, smoothness, cost, error_units, .. } = op.facts();
        let result = if let UnaryOp::Cast(_) = op { "the given type" } else { "same" };
        let slope = if op.has_zero_slope() { "0" } else { derivative(smoothness) };
        let (name, operands) = (op.name(), operands.description());
        page += &format!("| `{name}` | {operands} | {result} | {slope} | {cost} | {error_units} |\n");
    }
    for op in BinaryOp::ALL {
        let BinaryFacts { operands, is_boolean, smoothness, cost, error_units, .. } = op.facts();
        let (name, operands, slope) = (op.name(), operands.description(), derivative(smoothness));
        let result = if is_boolean { "uint8" } else { "same" };
        page += &format!("| `{name}` | two of {operands} | {result} | {slope} | {cost} | {error_units} |\n");
    }
    page += "\n## Other operators\n\n| operator | family | tolerance |\n|---|---|---|\n";
    let mut names = BTreeSet::new();
    for op in Op::prototypes().into_iter().filter(|op| op.as_unary().is_none() && op.as_binary().is_none()) {
        if names.insert(op.name()) {
            let family = format!("{op:?}").split('(').next().unwrap_or_default().to_lowercase();
            page += &format!("| `{}` | {family} | {} |\n", op.name(), op.error_units());
        }
    }
    page + "\n## Related pages\n\n- [Add an operator](add-an-operator.md)\n- [Conformance](conformance.md)\n"
}

#[test]
fn the_page_of_operators_is_up_to_date() {
    expect_test::expect_file!["../../../docs/internals/operators.md"].assert_eq(&operators_page());
}
