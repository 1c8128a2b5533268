//! Transactions on annotations and experiments.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{TransactionResult, job, row};
use crate::limits::EXPERIMENT_MEMBERS_MAX;
use crate::records::{AnnotationChange, ExperimentCount, ExperimentMember, ExperimentMembers, JobAnnotations};

pub(super) fn annotate(
    tx: &Transaction<'_>,
    name_or_id: &str,
    change: &AnnotationChange,
) -> TransactionResult<JobAnnotations> {
    let id = job::get(tx, name_or_id)?.id;
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

pub(super) fn read(tx: &Transaction<'_>, id: &str) -> TransactionResult<JobAnnotations> {
    let mut statement = tx.prepare_cached("SELECT tags, note FROM annotations WHERE job = ?1")?;
    let found = statement.query_row([id], |row| Ok((row.get::<_, String>(0)?, row.get(1)?))).optional()?;
    let Some((tags, note)) = found else { return Ok(JobAnnotations::default()) };
    // The column is written by this module alone.
    Ok(JobAnnotations { tags: serde_json::from_str(&tags).unwrap_or_default(), note })
}

pub(super) fn experiments(tx: &Transaction<'_>) -> TransactionResult<Vec<ExperimentCount>> {
    let mut statement = tx.prepare_cached(
        "SELECT count(*), experiment, project, state, min(created_ms), \
         max(coalesce(finished_ms, started_ms, created_ms)) FROM jobs WHERE experiment IS NOT NULL \
         GROUP BY experiment, project, state ORDER BY experiment, project, state",
    )?;
    let rows = statement.query_map([], |it| {
        let ms = |at| it.get::<_, i64>(at).map(|ms| u64::try_from(ms).unwrap_or(0));
        Ok(ExperimentCount {
            jobs: row::count_from_row(it)?,
            experiment: it.get(1)?,
            project: it.get(2)?,
            state: it.get(3)?,
            created_ms: ms(4)?,
            changed_ms: ms(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn experiment_members(
    tx: &Transaction<'_>,
    experiment: &str,
    projects: Option<&[String]>,
) -> TransactionResult<ExperimentMembers> {
    // A step whose result was reused names the job of the other run.
    let runs = "SELECT runs.name, runs.project, runs.state, runs.created_ms, count(DISTINCT jobs.id) FROM jobs \
        JOIN pipeline_steps AS steps ON steps.job = jobs.name JOIN pipeline_runs AS runs ON runs.id = steps.run \
        WHERE jobs.experiment = ?1 AND (?2 IS NULL OR instr(?2, ',' || runs.project || ',') > 0) \
        GROUP BY runs.id ORDER BY runs.cursor DESC LIMIT ?3";
    let sweeps = "SELECT sweeps.name, sweeps.project, sweeps.state, sweeps.created_ms, count(*) FROM jobs \
        JOIN trials ON trials.job = jobs.id JOIN sweeps ON sweeps.id = trials.sweep \
        WHERE jobs.experiment = ?1 AND (?2 IS NULL OR instr(?2, ',' || sweeps.project || ',') > 0) \
        GROUP BY sweeps.id ORDER BY sweeps.cursor DESC LIMIT ?3";
    // Names contain no commas.
    let projects = projects.map(|projects| format!(",{},", projects.join(",")));
    let members = |sql: &str| -> TransactionResult<Vec<ExperimentMember>> {
        let mut statement = tx.prepare_cached(sql)?;
        let rows = statement.query_map(params![experiment, projects, EXPERIMENT_MEMBERS_MAX], member_from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    Ok(ExperimentMembers { pipeline_runs: members(runs)?, sweeps: members(sweeps)? })
}

fn member_from_row(row: &Row<'_>) -> rusqlite::Result<ExperimentMember> {
    let number = |at: usize| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(ExperimentMember {
        name: row.get(0)?,
        project: row.get(1)?,
        state: row.get(2)?,
        created_ms: number(3)?,
        jobs: number(4)?,
    })
}
