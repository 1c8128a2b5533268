//! The reason for which a stored version is not served: a code for programs, and a sentence for people that says how to
//! change it.

use crate::promotion_gate::refusal_message;

/// The version that default requests get if no user promoted one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowPolicy {
    /// The newest one, as soon as it is published.
    #[default]
    Newest,
    /// The previous default. A published version is served once it is promoted.
    Promoted,
}

/// The reason for which a stored and complete version is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnservedReason {
    /// A user unloaded the model.
    ModelUnloaded,
    /// The model is asleep, for the reason in [`Residency::Asleep`](crate::model_state::Residency::Asleep).
    Asleep(&'static str),
    /// The default is another version until this one is promoted. `None` if no version is the default yet.
    NotPromoted {
        /// The default.
        default: Option<u64>,
    },
    /// Its metrics do not meet the condition of the model's configuration.
    ConditionNotMet,
    /// The default is another version, and this one is older.
    Superseded {
        /// The default.
        default: u64,
    },
    /// It is loaded at the next reconciliation.
    Pending,
}

impl UnservedReason {
    /// Returns the reason's code.
    pub const fn code(self) -> &'static str {
        match self {
            UnservedReason::ModelUnloaded => "MODEL_UNLOADED",
            UnservedReason::Asleep(_) => "ASLEEP",
            UnservedReason::NotPromoted { .. } => "NOT_PROMOTED",
            UnservedReason::ConditionNotMet => "CONDITION_NOT_MET",
            UnservedReason::Superseded { .. } => "SUPERSEDED",
            UnservedReason::Pending => "PENDING",
        }
    }

    /// Returns the reason for version `version` of `model` as a sentence for people.
    pub fn message(self, model: &str, version: u64) -> String {
        match self {
            UnservedReason::ModelUnloaded => {
                format!("unloaded by `saggar models unload`; `saggar models load {model}` loads the model")
            }
            UnservedReason::Asleep(cause) => {
                let cause = match cause {
                    "IDLE" => "no request used it",
                    "MEMORY" => "other models needed its memory",
                    "DEVICE" => "its device was lost",
                    other => other,
                };
                format!("asleep: {cause}; a prediction wakes it")
            }
            UnservedReason::NotPromoted { default: Some(default) } => {
                format!("version {default} stays the default until `saggar models promote {model} {version}`")
            }
            UnservedReason::NotPromoted { default: None } => {
                format!("it waits for `saggar models promote {model} {version}`")
            }
            UnservedReason::ConditionNotMet => {
                refusal_message("its metrics do not meet the condition `promote` of the model", model, version)
            }
            UnservedReason::Superseded { default } => {
                format!("older than version {default}; `saggar models load {model} {version}` loads it too")
            }
            UnservedReason::Pending => "waits to be loaded".to_owned(),
        }
    }
}
