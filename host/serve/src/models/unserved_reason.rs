//! Why a version that is stored does not serve: a word for programs, and a sentence for people that says what helps.

/// Which version default requests get where no user promoted one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowPolicy {
    /// The newest one, as soon as it is published.
    #[default]
    Newest,
    /// The one that served before. A version that is published is served once it is promoted.
    Promoted,
}

/// Why a version that is stored and whole does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnservedReason {
    /// A user unloaded the model.
    ModelUnloaded,
    /// The model sleeps, for the reason in [`Rest::Asleep`](super::state::Rest::Asleep).
    Asleep(&'static str),
    /// The default is another version until this one is promoted; `None` where there is no default yet.
    NotPromoted {
        /// The default.
        default: Option<u64>,
    },
    /// The default is another version, and this one is older.
    Superseded {
        /// The default.
        default: u64,
    },
    /// It is brought up at the next look.
    Pending,
}

impl UnservedReason {
    /// The reason in a word.
    pub const fn code(self) -> &'static str {
        match self {
            UnservedReason::ModelUnloaded => "MODEL_UNLOADED",
            UnservedReason::Asleep(_) => "ASLEEP",
            UnservedReason::NotPromoted { .. } => "NOT_PROMOTED",
            UnservedReason::Superseded { .. } => "SUPERSEDED",
            UnservedReason::Pending => "PENDING",
        }
    }

    /// The reason for people, of version `version` of `model`.
    pub fn message(self, model: &str, version: u64) -> String {
        match self {
            UnservedReason::ModelUnloaded => {
                format!("unloaded by `saggar models unload`; `saggar models load {model}` loads the model")
            }
            UnservedReason::Asleep(cause) => {
                let cause = match cause {
                    "IDLE" => "nobody asked for it",
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
            UnservedReason::Superseded { default } => {
                format!("older than version {default}; `saggar models load {model} {version}` loads it too")
            }
            UnservedReason::Pending => "waits to be loaded".to_owned(),
        }
    }
}
