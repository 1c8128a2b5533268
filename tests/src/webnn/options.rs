//! Parses the arguments and options of a step, with WebNN's defaults.

use std::collections::HashMap;

use saggar_tensor::nn;
use saggar_tensor::op::Conv2d;
use saggar_tensor::{DType, NodeId};
use serde_json::Value as Json;

use super::case::parse_number;

/// A step's arguments by name.
pub(super) struct StepArguments<'a> {
    pub(super) step: &'a Json,
    pub(super) nodes: &'a HashMap<String, NodeId>,
}

type ArgumentResult<T> = Result<T, String>;

impl StepArguments<'_> {
    fn positional(&self, name: &str) -> Option<&Json> {
        self.step["args"].as_array()?.iter().find(|argument| argument["name"] == name)
    }

    fn named(&self, name: &str) -> ArgumentResult<NodeId> {
        self.nodes.get(name).copied().ok_or_else(|| format!("there is no operand {name}"))
    }

    /// Returns the operand that argument number `position` names.
    pub(super) fn operand(&self, position: usize) -> ArgumentResult<NodeId> {
        let name = self.step["args"][position]["ref"].as_str();
        self.named(name.ok_or_else(|| format!("argument {position} is no operand"))?)
    }

    /// Returns the operands that argument number `position` names.
    pub(super) fn operands(&self, position: usize) -> ArgumentResult<Vec<NodeId>> {
        let names = self.step["args"][position]["refs"].as_array().into_iter().flatten();
        names.map(|name| self.named(name.as_str().unwrap_or("?"))).collect()
    }

    /// Returns the operand that an option names, or `None` without the option.
    pub(super) fn optional(&self, option: &str) -> ArgumentResult<Option<NodeId>> {
        self.step["options"][option]["ref"].as_str().map(|name| self.named(name)).transpose()
    }

    fn value(&self, name: &str) -> Option<&Json> {
        let value = self.positional(name).or_else(|| self.step["options"].get(name))?.get("value")?;
        (!value.is_null()).then_some(value)
    }

    /// Returns a numeric argument or option.
    pub(super) fn number(&self, name: &str) -> ArgumentResult<Option<f64>> {
        self.value(name).map(parse_number).transpose()
    }

    /// Returns an argument or option that is a size.
    pub(super) fn size(&self, name: &str) -> ArgumentResult<Option<usize>> {
        Ok(self.number(name)?.map(|number| number as usize))
    }

    /// Returns an argument or option that is a list of sizes.
    pub(super) fn sizes(&self, name: &str) -> ArgumentResult<Option<Vec<usize>>> {
        let listed = self.value(name).and_then(Json::as_array);
        listed
            .map(|list| list.iter().map(|json| parse_number(json).map(|number| number as usize)).collect())
            .transpose()
    }

    /// Returns an argument or option that is two sizes.
    pub(super) fn pair(&self, name: &str) -> ArgumentResult<Option<[usize; 2]>> {
        let wrong = |list: Vec<usize>| format!("{name} {list:?} are not two");
        self.sizes(name)?.map(|list| list.try_into().map_err(wrong)).transpose()
    }

    /// Returns an argument or option that is a word.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_str()
    }

    /// Returns a boolean option.
    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.value(name).and_then(Json::as_bool).unwrap_or(default)
    }

    /// Returns an argument or option that names a data type.
    pub(super) fn dtype(&self, name: &str) -> ArgumentResult<Option<DType>> {
        let unknown = |word: &str| format!("{word} is no data type");
        self.word(name).map(|word| DType::from_name(word).ok_or_else(|| unknown(word))).transpose()
    }

    /// Returns the layout of images.
    pub(super) fn layout(&self, name: &str) -> ArgumentResult<nn::InputLayout> {
        match self.word(name) {
            None | Some("nchw") => Ok(nn::InputLayout::Nchw),
            Some("nhwc") => Ok(nn::InputLayout::Nhwc),
            Some(other) => Err(format!("{other} is no layout of images")),
        }
    }

    fn conv(&self) -> ArgumentResult<Conv2d> {
        let padding = self.sizes("padding")?.unwrap_or_else(|| vec![0; 4]);
        Ok(Conv2d {
            padding: padding.try_into().map_err(|list| format!("padding {list:?} is not four"))?,
            strides: self.pair("strides")?.unwrap_or([1, 1]),
            dilations: self.pair("dilations")?.unwrap_or([1, 1]),
            groups: self.size("groups")?.unwrap_or(1),
        })
    }

    pub(super) fn conv2d(&self) -> ArgumentResult<nn::Conv2dOptions> {
        let filter_layout = match self.word("filterLayout") {
            None | Some("oihw") => nn::FilterLayout::Oihw,
            Some("hwio") => nn::FilterLayout::Hwio,
            Some("ohwi") => nn::FilterLayout::Ohwi,
            Some("ihwo") => nn::FilterLayout::Ihwo,
            Some(other) => return Err(format!("{other} is no layout of filters")),
        };
        Ok(nn::Conv2dOptions { conv: self.conv()?, input_layout: self.layout("inputLayout")?, filter_layout })
    }

    pub(super) fn conv_transpose2d(&self) -> ArgumentResult<nn::ConvTranspose2dOptions> {
        let filter_layout = match self.word("filterLayout") {
            None | Some("iohw") => nn::TransposeFilterLayout::Iohw,
            Some("hwoi") => nn::TransposeFilterLayout::Hwoi,
            Some("ohwi") => nn::TransposeFilterLayout::Ohwi,
            Some(other) => return Err(format!("{other} is no layout of transposed filters")),
        };
        Ok(nn::ConvTranspose2dOptions {
            conv: self.conv()?,
            output_padding: self.pair("outputPadding")?.unwrap_or([0, 0]),
            output_sizes: self.pair("outputSizes")?,
            input_layout: self.layout("inputLayout")?,
            filter_layout,
        })
    }

    pub(super) fn pool2d(&self) -> ArgumentResult<nn::Pool2dOptions> {
        let Conv2d { padding, strides, dilations, .. } = self.conv()?;
        let rounding = match self.word("outputShapeRounding").or(self.word("roundingType")) {
            None | Some("floor") => nn::PoolRounding::Floor,
            Some("ceil") => nn::PoolRounding::Ceil,
            Some(other) => return Err(format!("{other} is no rounding")),
        };
        Ok(nn::Pool2dOptions {
            window: self.pair("windowDimensions")?,
            padding,
            strides,
            dilations,
            layout: self.layout("layout")?,
            rounding,
            output_sizes: self.pair("outputSizes")?,
        })
    }

    pub(super) fn gemm(&self) -> ArgumentResult<nn::GemmOptions> {
        Ok(nn::GemmOptions {
            alpha: self.number("alpha")?.unwrap_or(1.0),
            beta: self.number("beta")?.unwrap_or(1.0),
            transpose_a: self.flag("aTranspose", false),
            transpose_b: self.flag("bTranspose", false),
        })
    }

    pub(super) fn resample2d(&self) -> ArgumentResult<nn::Resample2dOptions> {
        let mode = match self.word("mode") {
            None | Some("nearest-neighbor") => nn::ResampleInterpolation::Nearest,
            Some("linear") => nn::ResampleInterpolation::Linear,
            Some(other) => return Err(format!("{other} is no interpolation")),
        };
        let scales = self.value("scales").and_then(Json::as_array).cloned().unwrap_or_default();
        let scales: Vec<f64> = scales.iter().map(parse_number).collect::<Result<_, _>>()?;
        Ok(nn::Resample2dOptions {
            mode,
            scales: scales.try_into().unwrap_or([1.0, 1.0]),
            sizes: self.pair("sizes")?,
            axes: self.pair("axes")?.unwrap_or([2, 3]),
        })
    }

    pub(super) fn direction(&self) -> ArgumentResult<nn::RecurrentDirection> {
        match self.word("direction") {
            None | Some("forward") => Ok(nn::RecurrentDirection::Forward),
            Some("backward") => Ok(nn::RecurrentDirection::Backward),
            Some("both") => Ok(nn::RecurrentDirection::Both),
            Some(other) => Err(format!("{other} is no direction")),
        }
    }

    fn activations<const N: usize>(
        &self,
        default: [nn::RecurrentActivation; N],
    ) -> ArgumentResult<[nn::RecurrentActivation; N]> {
        let Some(listed) = self.value("activations").and_then(Json::as_array) else { return Ok(default) };
        let one = |json: &Json| match json.as_str() {
            Some("relu") => Ok(nn::RecurrentActivation::Relu),
            Some("sigmoid") => Ok(nn::RecurrentActivation::Sigmoid),
            Some("tanh") => Ok(nn::RecurrentActivation::Tanh),
            Some(_) | None => Err(format!("{json} is no activation")),
        };
        let list: Vec<nn::RecurrentActivation> = listed.iter().map(one).collect::<Result<_, _>>()?;
        list.try_into().map_err(|list| format!("{list:?} are not {N} activations"))
    }

    pub(super) fn gru(&self) -> ArgumentResult<nn::GruOptions> {
        let default = nn::GruOptions::default();
        Ok(nn::GruOptions {
            bias: self.optional("bias")?,
            recurrent_bias: self.optional("recurrentBias")?,
            reset_after: self.flag("resetAfter", default.reset_after),
            layout: match self.word("layout") {
                None | Some("zrn") => nn::GruLayout::Zrn,
                Some("rzn") => nn::GruLayout::Rzn,
                Some(other) => return Err(format!("{other} is no order of gates")),
            },
            activations: self.activations(default.activations)?,
        })
    }

    pub(super) fn lstm(&self) -> ArgumentResult<nn::LstmOptions> {
        let default = nn::LstmOptions::default();
        Ok(nn::LstmOptions {
            bias: self.optional("bias")?,
            recurrent_bias: self.optional("recurrentBias")?,
            peephole: self.optional("peepholeWeight")?,
            layout: match self.word("layout") {
                None | Some("iofg") => nn::LstmLayout::Iofg,
                Some("ifgo") => nn::LstmLayout::Ifgo,
                Some(other) => return Err(format!("{other} is no order of gates")),
            },
            activations: self.activations(default.activations)?,
        })
    }
}
