//! Which process of a batch job this is, if a batch system started several for one attempt.

/// A process of a batch job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTask {
    /// The batch job, and its restart: only processes of one start belong together.
    pub batch_job: String,
    /// The number of the process, from 0. The first one claims the job.
    pub number: u32,
}

/// The variable with the name of the batch job, for a batch system other than Slurm.
pub const BATCH_JOB_VARIABLE: &str = "SAGGAR_BATCH_JOB";

impl BatchTask {
    /// Returns the process that the variables of a batch system describe: `SLURM_PROCID`, or `JOB_COMPLETION_INDEX` of an
    /// indexed Job of Kubernetes with [`BATCH_JOB_VARIABLE`]. Returns `None` without them.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<BatchTask> {
        let number = |name: &str| variable(name)?.parse().ok();
        if let Some((number, batch_job)) = number("JOB_COMPLETION_INDEX").zip(variable(BATCH_JOB_VARIABLE)) {
            return Some(BatchTask { batch_job, number });
        }
        let (number, job) = number("SLURM_PROCID").zip(variable("SLURM_JOB_ID"))?;
        let restart = variable("SLURM_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
        Some(BatchTask { batch_job: format!("slurm {job}.{restart}"), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variables: &[(&str, &str)]) -> Option<(String, u32)> {
        let find = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
        BatchTask::from_variables(find).map(|task| (task.batch_job, task.number))
    }

    #[test]
    fn a_process_knows_its_number_and_its_batch_job() {
        assert_eq!(task(&[]), None);
        assert_eq!(task(&[("SLURM_PROCID", "1"), ("SLURM_JOB_ID", "7")]), Some(("slurm 7.0".to_owned(), 1)));
        let restarted = [("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7"), ("SLURM_RESTART_COUNT", "2")];
        assert_eq!(task(&restarted), Some(("slurm 7.2".to_owned(), 0)));
        let indexed = [("JOB_COMPLETION_INDEX", "3"), ("SAGGAR_BATCH_JOB", "saggar-a-1")];
        assert_eq!(task(&indexed), Some(("saggar-a-1".to_owned(), 3)));
        assert_eq!(task(&[("JOB_COMPLETION_INDEX", "3")]), None, "processes of other jobs are not taken for its own");
    }
}
