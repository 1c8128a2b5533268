//! The optimizations that can be switched off, by name: the one list of them, for the compiler, the devices, the server
//! and jobs.
//!
//! Every computation has the same results without them, within the tolerance of the conformance tests: sums can be
//! added up in another order. The switches exist so that the effect of an optimization can be measured, and so that a
//! suspected one can be left out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The part of the host that an optimization belongs to. It decides where the optimization can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizationScope {
    /// The compilation of graphs and the kernels of a device: servers, single models, jobs, measurements.
    Program,
    /// What a process stores for the next one: servers and jobs.
    Storage,
    /// Trainings: jobs and their measurements.
    Training,
    /// Answers to predictions: servers and single models.
    Serving,
}

/// Declares the optimizations with their scopes, names and descriptions.
macro_rules! optimizations {
    ($($scope:ident $variant:ident $name:literal $description:literal;)*) => {
        /// An optimization that can be switched off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Optimization {
            $(#[doc = $description] $variant,)*
        }

        impl Optimization {
            /// Every optimization.
            pub const ALL: &[Optimization] = &[$(Optimization::$variant,)*];

            /// Returns the name by which it is switched off.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Optimization::$variant => $name,)*
                }
            }

            /// Returns the part of the host that it belongs to.
            pub const fn scope(self) -> OptimizationScope {
                match self {
                    $(Optimization::$variant => OptimizationScope::$scope,)*
                }
            }

            /// Returns what it does.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Optimization::$variant => $description,)*
                }
            }
        }
    };
}

optimizations! {
    Program Fusion "fusion" "Computes several operators in one kernel, without storing the values between them.";
    Program FusedMatMul "fused-matmul" "Computes attention and its gradients without storing the scores, on adapters.";
    Program ReluMaxPool "relu-max-pool" "Applies a ReLU before the max pooling that it follows, in the kernel of the operator before.";
    Program ReluSlope "relu-slope" "Takes the slope of a ReLU from its result, so that its operand need not be stored.";
    Program ChannelsLast "channels-last" "Stores images with their channels last, on the processor.";
    Program InPlace "in-place" "Writes results over operands that nothing reads later, on the processor.";
    Program Winograd "winograd" "Computes convolutions with fewer multiplications by Winograd's method, on the processor.";
    Program DirectConvolution "direct-convolution" "Computes small convolutions without gathering windows, on the processor.";
    Program Prepack "prepack" "Packs weights once for matrix products and convolutions, on the processor.";
    Program OneHotSum "one-hot-sum" "Reads only the element that an index selects from a row, on the processor.";
    Program Tiles "tiles" "Stages tiles of products in workgroup memory, on adapters.";
    Program SplitK "split-k" "Splits the depth of products with few results between workgroups, on adapters.";
    Program Subgroups "subgroups" "Folds in the registers of subgroups, on adapters.";
    Program CooperativeMatrices "cooperative-matrices" "Multiplies small matrices of 16-bit floats with the adapter's matrix units.";
    Program Autotune "autotune" "Benchmarks the candidates of large kernels and uses the fastest one, on adapters.";
    Storage ShaderCache "shader-cache" "Stores the driver's compiled shaders and the results of autotuning, on adapters.";
    Storage ComponentCache "component-cache" "Stores compiled components, so that a component is compiled once.";
    Training DatasetResidency "dataset-residency" "Keeps a dataset's columns in an adapter's memory and gathers batches there.";
    Serving ProgramCache "program-cache" "Shares compiled programs between the instances of a model.";
    Serving SharedInstances "shared-instances" "Loads new weights of a plugin into the instances of its last version.";
    Serving Batching "batching" "Computes predictions that arrive together as one batch.";
    Serving ResponseCache "response-cache" "Answers repeated inputs from a model's response cache, if it has one.";
}

const _: () = assert!(Optimization::ALL.len() <= 32, "the set has 32 bits");

/// A name that is no optimization.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no optimization `{name}`; there are {}", all_names())]
pub struct UnknownOptimizationError {
    /// The name.
    pub name: String,
}

fn all_names() -> String {
    Optimization::ALL.iter().map(|optimization| optimization.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Optimization {
    type Err = UnknownOptimizationError;

    fn from_str(name: &str) -> Result<Optimization, UnknownOptimizationError> {
        let found = Optimization::ALL.iter().copied().find(|optimization| optimization.name() == name);
        found.ok_or_else(|| UnknownOptimizationError { name: name.to_owned() })
    }
}

impl fmt::Display for Optimization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of optimizations that are switched off. By default it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct DisabledOptimizations(u32);

impl DisabledOptimizations {
    /// The empty set.
    pub const NONE: DisabledOptimizations = DisabledOptimizations(0);

    /// Returns the set with this optimization.
    #[must_use]
    pub const fn with(self, optimization: Optimization) -> DisabledOptimizations {
        DisabledOptimizations(self.0 | 1 << optimization as u32)
    }

    /// Returns the optimizations of either set.
    #[must_use]
    pub const fn union(self, other: DisabledOptimizations) -> DisabledOptimizations {
        DisabledOptimizations(self.0 | other.0)
    }

    /// Returns whether the optimization is used, because it is not in this set.
    pub const fn enables(self, optimization: Optimization) -> bool {
        self.0 & 1 << optimization as u32 == 0
    }

    /// Returns whether all optimizations are used.
    pub const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Returns the optimizations that are switched off, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Optimization> {
        Optimization::ALL.iter().copied().filter(move |&optimization| !self.enables(optimization))
    }
}

impl FromIterator<Optimization> for DisabledOptimizations {
    fn from_iter<I: IntoIterator<Item = Optimization>>(all: I) -> DisabledOptimizations {
        all.into_iter().fold(DisabledOptimizations::NONE, DisabledOptimizations::with)
    }
}

impl From<DisabledOptimizations> for Vec<String> {
    fn from(set: DisabledOptimizations) -> Vec<String> {
        set.iter().map(|optimization| optimization.name().to_owned()).collect()
    }
}

impl TryFrom<Vec<String>> for DisabledOptimizations {
    type Error = UnknownOptimizationError;

    fn try_from(names: Vec<String>) -> Result<DisabledOptimizations, UnknownOptimizationError> {
        names.iter().map(|name| name.parse::<Optimization>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizations_are_switched_off_by_name() {
        let set: DisabledOptimizations = serde_json::from_str("[\"winograd\", \"fusion\"]").unwrap();
        assert!(!set.enables(Optimization::Winograd) && !set.enables(Optimization::Fusion));
        assert!(set.enables(Optimization::Batching) && DisabledOptimizations::NONE.is_empty());
        assert_eq!(serde_json::to_string(&set).unwrap(), "[\"fusion\",\"winograd\"]");
        let all: DisabledOptimizations = Optimization::ALL.iter().copied().collect();
        assert_eq!(all.iter().count(), Optimization::ALL.len());
        assert_eq!(set.union(DisabledOptimizations::NONE.with(Optimization::Tiles)).iter().count(), 3);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let refused = "warp".parse::<Optimization>().unwrap_err().to_string();
        assert!(refused.starts_with("there is no optimization `warp`; there are fusion, fused-matmul, "), "{refused}");
        assert!(Optimization::ALL.iter().all(|optimization| refused.contains(optimization.name())));
        assert!(serde_json::from_str::<DisabledOptimizations>("[\"warp\"]").is_err());
    }

    #[test]
    fn names_are_distinct_lower_case_words() {
        let mut names: Vec<&str> = Optimization::ALL.iter().map(|it| it.name()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Optimization::ALL.len());
    }
}
