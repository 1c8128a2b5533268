//! Recorded rights of jobs and schedules.

use super::*;
use crate::rights::AccessRights;
use crate::rights::tests::key_rights as of_key;

/// A job has the recorded rights of its key. Earlier records contain only the key's name, or nothing without a key.
pub(super) fn a_job_keeps_the_rights_that_it_was_submitted_with(records: &dyn JobRecords) {
    let rights = of_key(&[crate::KeyScope::JobsWrite], &["p"]);
    let owner = Some("k".to_owned());
    let submitted = NewJob { owner: owner.clone(), rights: rights.clone(), ..new_job("p") };
    assert_eq!(records.submit(&submitted, 1).unwrap().rights, rights);
    assert_eq!(records.get("p-1").unwrap().rights, rights);
    assert_eq!(records.submit(&new_job("p"), 1).unwrap().rights, AccessRights::default());
    assert_eq!(records.submit(&NewJob { owner, ..new_job("p") }, 1).unwrap().rights, AccessRights::from_key_name("k"));
    let claim = claim_next(records, 2).unwrap();
    assert_eq!(claim.job.rights, rights, "its attempts have them");
    let reason = StateReason::new("PREEMPTED", "");
    assert_eq!(records.requeue(&claim.lease, &reason, 3, 3).unwrap().rights, rights);
}
