//! `/api/v1/models`: models, their versions and their signatures. Commands are in [`crate::model_commands`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Every model with its versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Models")]
pub struct ModelListDocument {
    /// The models, without their signatures.
    pub models: Vec<ModelDocument>,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Model")]
pub struct ModelDocument {
    /// Its name.
    pub name: String,
    /// The version that default requests get.
    pub serving: Option<u64>,
    /// Its state.
    #[schemars(extend("enum" = ["READY", "LOADING", "ASLEEP", "UNLOADED", "FAILED"]))]
    pub state: String,
    /// The reason of the state, if it needs explaining.
    pub reason: String,
    /// Its versions, oldest first.
    pub versions: Vec<ModelVersionDocument>,
    /// Versions by alias.
    pub aliases: BTreeMap<String, u64>,
    /// The shares of default requests in percent, by alias or version. If empty, all go to the default.
    pub traffic: BTreeMap<String, u32>,
    /// The version that repeats a share of the requests.
    pub shadow: Option<ShadowDocument>,
    /// Whether the default follows the newest version.
    pub follows_newest: bool,
    /// States that published versions are not served automatically, and how to serve them; empty if they are.
    pub notice: String,
    /// The last change of the default version.
    pub last_swap: Option<VersionSwapDocument>,
    /// How it is served: the configured values, and the defaults for the others.
    pub config: ModelConfigDocument,
    /// Its inputs and outputs, if a version serves. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureDocument>,
    /// The device that it predicts on, if a version serves. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// How a model is served: the content of `model.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "ModelConfig")]
pub struct ModelConfigDocument(pub Map<String, Value>);

impl ModelConfigDocument {
    /// Returns the idle time after which the model is put to sleep, as text; empty if the server does not say.
    pub fn keep_alive(&self) -> &str {
        self.0.get("keep_alive").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the condition under which a published version becomes the default, or `None` if the newest does.
    pub fn promotion_condition(&self) -> Option<&str> {
        self.0.get("promote").and_then(Value::as_str)
    }

    /// Returns whether the model stays loaded even if other models need the memory.
    pub fn is_pinned(&self) -> bool {
        self.0.get("pin").and_then(Value::as_bool).unwrap_or_default()
    }
}

/// A version that repeats a share of the requests. Its responses are discarded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Shadow")]
pub struct ShadowDocument {
    /// An alias or a version.
    pub to: String,
    /// The share of requests that it repeats, in percent.
    pub percent: u32,
}

/// A change of the default version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionSwap")]
pub struct VersionSwapDocument {
    /// When it happened, in Unix milliseconds.
    pub at_ms: u64,
    /// The previous default.
    pub from: Option<u64>,
    /// The new default.
    pub to: Option<u64>,
    /// What was loaded: `full`, `weights`, `alias` if the version was already loaded, or `unload`.
    pub kind: String,
    /// Its cause, such as `NEWEST` or `PROMOTED`.
    pub reason: String,
    /// The seconds from the cause to the first possible answer.
    pub seconds: f64,
}

/// A version of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelVersion")]
pub struct ModelVersionDocument {
    /// The version.
    pub version: u64,
    /// Its state.
    #[schemars(extend("enum" = ["LOADING", "READY", "DRAINING", "UNLOADED", "FAILED"]))]
    pub state: String,
    /// The reason of the state, as text.
    pub reason: String,
    /// Why a stored, intact version is not loaded.
    #[schemars(extend("enum" = ["MODEL_UNLOADED", "ASLEEP", "NOT_PROMOTED", "CONDITION_NOT_MET", "SUPERSEDED", "PENDING", null]))]
    pub reason_code: Option<String>,
    /// The SHA-256 of its plugin.
    pub plugin: Option<String>,
    /// The SHA-256 of its weights.
    pub weights: Option<String>,
    /// When it was published, in Unix milliseconds.
    pub created_ms: Option<u64>,
    /// The job that published it.
    pub source_job: Option<String>,
    /// The last metrics of its training before it was published.
    pub metrics: Option<BTreeMap<String, Option<f64>>>,
    /// The most important metrics, as text.
    pub measured: String,
    /// The bytes that it uses on its device, if it is loaded.
    pub bytes: Option<u64>,
    /// Its aliases.
    pub aliases: Vec<String>,
    /// Its share of default requests in percent.
    pub traffic_percent: u32,
    /// When it last answered, in Unix milliseconds.
    pub last_used_ms: Option<u64>,
    /// The milliseconds until it is put to sleep if nothing requests it.
    pub expires_in_ms: Option<u64>,
}

/// The inputs and outputs of a model, for one item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Signature")]
pub struct SignatureDocument {
    /// The inputs.
    pub inputs: Vec<PortDocument>,
    /// The outputs.
    pub outputs: Vec<PortDocument>,
    /// The batch sizes that it computes.
    pub batch_sizes: Vec<usize>,
    /// The additional paths below `/models/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ModelRouteDocument>,
}

/// A path of a model, besides `/models/NAME/predict`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelRoute")]
pub struct ModelRouteDocument {
    /// The methods that it accepts.
    pub methods: Vec<String>,
    /// The path, such as `/hello/{name}`.
    pub path: String,
    /// `prediction`, or `handler` if the plugin answers with its own code.
    #[schemars(extend("enum" = ["prediction", "handler"]))]
    pub kind: String,
    /// What it does; can be empty.
    pub description: String,
}

/// An input or output of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Port")]
pub struct PortDocument {
    /// Its name.
    pub name: String,
    /// Its data type, such as `float32`.
    pub dtype: String,
    /// Its shape, without the dimension of items.
    pub shape: Vec<usize>,
    /// What it means, such as `image`.
    pub semantics: Option<String>,
    /// The names of the classes, if it has classes.
    pub classes: Vec<String>,
    /// The value of every element if the input is omitted.
    pub default: Option<f64>,
    /// How the server makes the plugin's input of an image; absent if the plugin gets the pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<ImagePreprocessingDocument>,
}

/// How an image becomes the input of a model's plugin, in training and in serving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ImagePreprocessing")]
pub struct ImagePreprocessingDocument {
    /// The size that images are resized to.
    pub resize: ImageResizeDocument,
    /// The colours that images are converted to.
    #[schemars(extend("enum" = ["grey", "rgb"]))]
    pub colors: String,
    /// How pixels, 0 to 255, become numbers.
    pub normalization: ImageNormalizationDocument,
    /// The order of the axes of the plugin's input.
    #[schemars(extend("enum" = ["nchw", "nhwc"]))]
    pub layout: String,
}

/// The size that images are resized to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ImageResize")]
pub struct ImageResizeDocument {
    /// The height in pixels.
    pub height: usize,
    /// The width in pixels.
    pub width: usize,
    /// What is done with an image of other proportions: it is stretched, or its edges are cut off.
    #[schemars(extend("enum" = ["stretch", "crop"]))]
    pub fit: String,
}

/// How pixels, 0 to 255, become numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ImageNormalization")]
pub enum ImageNormalizationDocument {
    /// `(pixel - mean) * scale` for each channel.
    MeanAndScale {
        /// The mean of each channel.
        mean: Vec<f32>,
        /// The scale of each channel, not 0.
        scale: Vec<f32>,
    },
    /// `(pixel - mean) / max(std, 1 / sqrt(N))` over the `N` elements of the image.
    PerImageStandardization,
}

impl ImagePreprocessingDocument {
    /// Returns the preprocessing in one line, such as `32 x 32 pixels, crop, rgb, per-image-standardization, nchw`; the
    /// height is first.
    pub fn summary(&self) -> String {
        let ImagePreprocessingDocument { resize, colors, normalization, layout } = self;
        let ImageResizeDocument { height, width, fit } = resize;
        let numbers = match normalization {
            ImageNormalizationDocument::MeanAndScale { mean, scale } => format!("mean {mean:?} and scale {scale:?}"),
            ImageNormalizationDocument::PerImageStandardization => "per-image-standardization".to_owned(),
        };
        format!("{height} x {width} pixels, {fit}, {colors}, {numbers}, {layout}")
    }
}

/// The form of an import with external data files. An import without them can send the ONNX file alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ModelImport")]
pub struct ModelImportForm {
    /// The ONNX file.
    #[schemars(extend("format" = "binary"))]
    pub model: String,
    /// External data files, each under the name that the model uses.
    #[serde(flatten)]
    pub files: BTreeMap<String, String>,
}

/// A version created by an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ImportedVersion")]
pub struct ImportedVersionDocument {
    /// The model's name.
    pub model: String,
    /// The version.
    pub version: u64,
    /// Whether it is new; false if an existing version has the same content.
    pub is_new: bool,
}

/// A version created from a plugin or a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "PublishedVersion")]
pub struct PublishedVersionDocument {
    /// The model's name.
    pub model: String,
    /// The version.
    pub version: u64,
    /// Whether it is new; false if an existing version has the same content.
    pub is_new: bool,
    /// Its state: `READY` if it serves.
    pub state: String,
    /// Why it does not serve.
    pub reason: String,
    /// Notes about the content, such as tensors of its weights that the plugin does not read.
    pub notes: Vec<String>,
}

/// Versions that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RemovedVersions")]
pub struct RemovedVersionsDocument {
    /// The versions, such as `digits@1`.
    pub removed: Vec<String>,
    /// The bytes that their removal freed.
    pub freed_bytes: u64,
}
