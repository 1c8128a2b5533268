//! The trial and the pipeline step that a job was submitted for.

/// What a job was submitted for, apart from itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobMembership {
    /// The trial, if a sweep submitted it.
    pub trial: Option<TrialMembership>,
    /// The step, if a pipeline run submitted it.
    pub step: Option<StepMembership>,
}

/// A job as a trial of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialMembership {
    /// The identifier of the sweep.
    pub sweep: String,
    /// The number of the trial, from 1.
    pub number: u32,
}

/// A job as a step of a pipeline run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepMembership {
    /// The name of the run.
    pub run: String,
    /// The name of the step.
    pub step: String,
}
