//! The network, for training and for prediction.

use saggar_plugin::layers::{Conv2d, Linear};
use saggar_plugin::{
    Classes, DataType, Error, Graph, ImageColors, ImageFit, ImageNormalization, ImagePreprocessing, InputOperandLayout,
    Inputs, Model, Operand, Params, Port, Result, Variables,
};

/// The height and width of the convolutions' filters. The padding keeps the image's size.
const FILTER_SIDE: u32 = 5;
const PADDING: u32 = FILTER_SIDE / 2;
/// The minimum height and width: two poolings by 2 would leave nothing of a smaller image.
const IMAGE_SIDE_MIN: u32 = 4;

/// The configuration of a model version, which determines the network's shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct LenetConfig {
    /// The image height in pixels.
    pub height: u32,
    /// The image width in pixels.
    pub width: u32,
    /// The number of image channels: 1 for grey, 3 for RGB.
    pub colors: u32,
    /// The channels of the first convolution. The second has twice as many.
    pub channels: u32,
    /// The features between the linear layers.
    pub hidden: u32,
    /// Whether each image is standardized by its own mean and deviation, by a declaration that the host applies.
    /// Otherwise the network scales bytes to -1 to 1.
    pub per_image: bool,
    /// The classes.
    pub classes: Classes,
}

impl LenetConfig {
    /// Reads the configuration of a model version.
    ///
    /// # Errors
    /// Returns `MissingParameter` or `Parameter` if a value is missing or invalid.
    pub fn from_params(config: &Params) -> Result<Self> {
        Ok(Self {
            height: config.require("height")?,
            width: config.require("width")?,
            // Versions published before RGB support have no `colors`; their images are grey.
            colors: config.get("colors", 1)?,
            channels: config.require("channels")?,
            hidden: config.require("hidden")?,
            per_image: config.get("per_image", false)?,
            classes: Classes::new(config.require("classes")?),
        })
    }

    /// Returns the shape of an image: `[height, width]` for grey, `[height, width, 3]` for RGB.
    pub fn image_shape(&self) -> Vec<u32> {
        match self.colors {
            1 => vec![self.height, self.width],
            colors => vec![self.height, self.width, colors],
        }
    }

    /// Returns the preprocessing that the host applies to images, or `None` if it applies none.
    pub fn preprocessing(&self) -> Option<ImagePreprocessing> {
        self.per_image.then_some(ImagePreprocessing {
            height: self.height,
            width: self.width,
            fit: ImageFit::Stretch,
            colors: if self.colors == 1 { ImageColors::Grey } else { ImageColors::Rgb },
            normalization: ImageNormalization::PerImageStandardization,
            layout: InputOperandLayout::Nchw,
        })
    }

    /// Returns the configuration of a model version.
    pub fn to_params(&self) -> Params {
        let params = Params::new();
        // Versions without it have the same configuration as before there was a choice.
        let params = if self.per_image { params.with("per_image", true) } else { params };
        params
            .with("height", self.height)
            .with("width", self.width)
            .with("colors", self.colors)
            .with("channels", self.channels)
            .with("hidden", self.hidden)
            .with("classes", self.classes.names().to_vec())
    }
}

/// The network.
#[derive(Debug)]
pub struct Lenet {
    architecture: LenetConfig,
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
}

impl Lenet {
    /// Creates the network over these variables.
    ///
    /// # Errors
    /// Returns `Shape` if the image is too small or neither grey nor RGB; `Host` if the variables exist with other
    /// shapes.
    pub fn new(v: &Variables, architecture: LenetConfig) -> Result<Self> {
        let LenetConfig { height, width, colors, channels, hidden, .. } = architecture;
        if height < IMAGE_SIDE_MIN || width < IMAGE_SIDE_MIN {
            let what = "an image".to_owned();
            return Err(Error::Shape { what, expected: "at least 4 by 4", given: architecture.image_shape() });
        }
        if colors != 1 && colors != 3 {
            let what = "an image".to_owned();
            return Err(Error::Shape { what, expected: "grey or RGB", given: architecture.image_shape() });
        }
        let filter = [FILTER_SIDE, FILTER_SIDE];
        let padding = [PADDING, PADDING];
        let wide = channels.saturating_mul(2);
        let features = wide.saturating_mul(height / 4).saturating_mul(width / 4);
        let classes = architecture.classes.count();
        Ok(Self {
            conv1: Conv2d::new(&v.scope("conv1"), (colors, channels), filter)?.padding(padding),
            conv2: Conv2d::new(&v.scope("conv2"), (channels, wide), filter)?.padding(padding),
            fc1: Linear::new(&v.scope("fc1"), features, hidden)?,
            fc2: Linear::new(&v.scope("fc2"), hidden, classes)?,
            architecture,
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &LenetConfig {
        &self.architecture
    }

    /// Returns the logits of the model's input. Shape: `uint8[batch, image...]`, or `float32[batch, colors, height,
    /// width]` if the host standardizes images, -> `float32[batch, classes]`.
    ///
    /// # Errors
    /// Returns `Host` if the image has another size.
    pub fn logits(&self, image: &Operand) -> Result<Operand> {
        if self.architecture.per_image {
            return self.logits_from_planes(&image.cast(image.graph().float())?);
        }
        self.logits_from_floats(&image.cast(image.graph().float())?.div_scalar(255.0)?)
    }

    /// Returns the logits of an image of numbers from 0, dark, to 1, light. Shape: `float32[batch, image...]` ->
    /// `float32[batch, classes]`.
    ///
    /// # Errors
    /// Returns `Host` if the image has another size.
    pub fn logits_from_floats(&self, image: &Operand) -> Result<Operand> {
        let LenetConfig { height, width, colors, .. } = self.architecture;
        let batch = image.shape().first().copied().unwrap_or_default();
        let x = if self.architecture.per_image {
            image.mul_scalar(255.0)?.per_image_standardization()?
        } else {
            // Scaled to -1 to 1. With 0 to 1, the same training of small images ends one percent lower.
            image.mul_scalar(2.0)?.add_scalar(-1.0)?
        };
        self.logits_from_planes(&x.reshape(&[batch, height, width, colors])?.transpose(&[0, 3, 1, 2])?)
    }

    /// Shape: `float32[batch, colors, height, width]` -> `float32[batch, classes]`.
    fn logits_from_planes(&self, x: &Operand) -> Result<Operand> {
        let x = self.conv1.forward(x)?.relu()?.max_pool2d([2, 2])?;
        let x = self.conv2.forward(&x)?.relu()?.max_pool2d([2, 2])?;
        let x = self.fc1.forward(&x.flatten(1)?)?.relu()?;
        self.fc2.forward(&x)
    }
}

impl Model for Lenet {
    fn load(variables: &Variables, config: &Params) -> Result<Self> {
        Self::new(variables, LenetConfig::from_params(config)?)
    }

    fn inputs(&self) -> Vec<Port> {
        let LenetConfig { height, width, colors, per_image, .. } = self.architecture;
        if per_image {
            return vec![Port::new("image", DataType::Float32, [colors, height, width])];
        }
        vec![Port::new("image", DataType::Uint8, self.architecture.image_shape()).semantics("image")]
    }

    fn outputs(&self) -> Vec<Port> {
        self.architecture.classes.ports()
    }

    fn predict(&self, _: &Graph, inputs: &Inputs) -> Result<Vec<(&'static str, Operand)>> {
        self.architecture.classes.outputs(&self.logits(inputs.get("image")?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lenet_config_round_trips_through_params() {
        let classes = Classes::new(vec!["zero".to_owned(), "one".to_owned()]);
        for per_image in [false, true] {
            let classes = classes.clone();
            let architecture =
                LenetConfig { height: 28, width: 20, colors: 3, channels: 8, hidden: 64, per_image, classes };
            let config = Params::parse(&architecture.to_params().to_string()).unwrap();
            assert_eq!(LenetConfig::from_params(&config).unwrap(), architecture);
            config.check().unwrap();
        }
    }

    #[test]
    fn an_incomplete_lenet_config_is_refused() {
        let missing = LenetConfig::from_params(&Params::new().with("height", 8u32)).unwrap_err();
        assert_eq!(missing.to_string(), "parameter `width` is missing: it must be an integer from 0 to 4294967295");
    }
}
