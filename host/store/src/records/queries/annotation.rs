//! Transactions on annotations and experiments.

use super::{comma_list, job, row};
use crate::limits::EXPERIMENT_MEMBERS_MAX;
use crate::records::session::{SqlRow, SqlSession, TransactionResult, params};
use crate::records::{AnnotationChange, ExperimentCount, ExperimentMember, ExperimentMembers, JobAnnotations};

pub(super) fn annotate(
    tx: &dyn SqlSession,
    name_or_id: &str,
    change: &AnnotationChange,
) -> TransactionResult<JobAnnotations> {
    let id = job::get_locked(tx, name_or_id)?.id;
    let mut annotations = read(tx, &id)?;
    annotations.apply(change)?;
    let tags = serde_json::to_string(&annotations.tags).expect("tags are text");
    tx.execute(
        "INSERT INTO annotations (job, tags, note) VALUES (?1, ?2, ?3) \
         ON CONFLICT (job) DO UPDATE SET tags = ?2, note = ?3",
        params![id, tags, annotations.note],
    )?;
    Ok(annotations)
}

fn read(tx: &dyn SqlSession, id: &str) -> TransactionResult<JobAnnotations> {
    let sql = "SELECT tags, note FROM annotations WHERE job = ?1";
    Ok(tx.query_optional(sql, params![id], annotations_from_row)?.unwrap_or_default())
}

/// Returns annotations from `tags, note`.
pub(super) fn annotations_from_row(row: &dyn SqlRow) -> TransactionResult<JobAnnotations> {
    // The column is written by this module alone.
    let tags = serde_json::from_str(&row.get::<String>(0)?).unwrap_or_default();
    Ok(JobAnnotations { tags, note: row.get(1)? })
}

pub(super) fn experiments(tx: &dyn SqlSession) -> TransactionResult<Vec<ExperimentCount>> {
    tx.query_all(
        "SELECT count(*), experiment, project, state, min(created_ms), \
         max(coalesce(finished_ms, started_ms, created_ms)) FROM jobs WHERE experiment IS NOT NULL \
         GROUP BY experiment, project, state ORDER BY experiment, project, state",
        params![],
        |it| {
            Ok(ExperimentCount {
                jobs: row::count_from_row(it)?,
                experiment: it.get(1)?,
                project: it.get(2)?,
                state: it.get(3)?,
                created_ms: it.get(4)?,
                changed_ms: it.get(5)?,
            })
        },
    )
}

pub(super) fn experiment_members(
    tx: &dyn SqlSession,
    experiment: &str,
    projects: Option<&[String]>,
) -> TransactionResult<ExperimentMembers> {
    // A step whose result was reused names the job of the other run.
    let runs = "SELECT runs.name, runs.project, runs.state, runs.created_ms, count(DISTINCT jobs.id) FROM jobs \
        JOIN pipeline_steps AS steps ON steps.job = jobs.name JOIN pipeline_runs AS runs ON runs.id = steps.run \
        WHERE jobs.experiment = ?1 AND (CAST(?2 AS TEXT) IS NULL OR instr(?2, ',' || runs.project || ',') > 0) \
        GROUP BY runs.id ORDER BY runs.cursor DESC LIMIT ?3";
    let sweeps = "SELECT sweeps.name, sweeps.project, sweeps.state, sweeps.created_ms, count(*) FROM jobs \
        JOIN trials ON trials.job = jobs.id JOIN sweeps ON sweeps.id = trials.sweep \
        WHERE jobs.experiment = ?1 AND (CAST(?2 AS TEXT) IS NULL OR instr(?2, ',' || sweeps.project || ',') > 0) \
        GROUP BY sweeps.id ORDER BY sweeps.cursor DESC LIMIT ?3";
    let projects = projects.map(comma_list);
    let members = |sql: &str| -> TransactionResult<Vec<ExperimentMember>> {
        tx.query_all(sql, params![experiment, projects, EXPERIMENT_MEMBERS_MAX], member_from_row)
    };
    Ok(ExperimentMembers { pipeline_runs: members(runs)?, sweeps: members(sweeps)? })
}

fn member_from_row(row: &dyn SqlRow) -> TransactionResult<ExperimentMember> {
    Ok(ExperimentMember {
        name: row.get(0)?,
        project: row.get(1)?,
        state: row.get(2)?,
        created_ms: row.get(3)?,
        jobs: row.get(4)?,
    })
}
