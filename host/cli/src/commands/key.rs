//! `saggar key`: creates, lists and revokes keys in the state directory.

pub(crate) mod signing;

use std::sync::Arc;

use saggar_clock::{Clock, SystemClock, UnixMillis};
use saggar_rest::keys::KeyListDocument;
use saggar_serve::limits::AUDIT_FLUSH_TIME_MAX;
use saggar_serve::{Actor, ApiError, AuditAction, AuditLog, key_document};
use saggar_store::keys::{KeyError, KeyScope, KeyUsageFile, NewKey, RateLimit, RequestQuota};
use saggar_store::records::{AuditRecords, DocumentRecords};
use saggar_store::{KeyFile, StateDir};
use serde::Serialize;

use crate::args::{KeyCommand, KeyCreateArgs, KeyHomeArgs, KeyRevokeArgs};
use crate::database::open_database;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::units::{format_age, format_duration};

pub(crate) fn key(args: &KeyCommand, output: CliOutput) -> Result<(), CliError> {
    match args {
        KeyCommand::Create(args) => create_key(args, output),
        KeyCommand::Ls(args) => list_keys(args, output),
        KeyCommand::Revoke(args) => revoke_key(args, output),
        KeyCommand::Pair(args) => signing::make_key_pair(args, output),
        KeyCommand::Sign(args) => signing::sign_file(args, output),
    }
}

fn open_state_dir(args: &KeyHomeArgs) -> Result<StateDir, CliError> {
    StateDir::open(&args.home).map_err(|error| CliError::new(exit::UNEXPECTED, "home", error.to_string()))
}

/// Opens the keys of a state directory, which are a copy of those in a database if several servers have them in common.
fn open_keys(args: &KeyHomeArgs, home: &StateDir) -> Result<KeyFile, CliError> {
    let database = args.database.as_ref().filter(|url| !url.is_empty());
    let Some(database) = database else { return Ok(home.keys()) };
    let records: Arc<dyn DocumentRecords> = open_database(database)?;
    home.keys().share(records).map_err(|error| CliError::new(exit::UNEXPECTED, "keys", error.to_string()))
}

/// Writes the change to the audit log and converts its failure.
fn audit_key_change<T>(
    place: &KeyHomeArgs,
    home: &StateDir,
    action: AuditAction,
    name: &str,
    detail: &str,
    done: Result<T, KeyError>,
) -> Result<T, CliError> {
    let done = done.map_err(ApiError::from);
    let audit = AuditLog::new(home.audit_log(), Arc::new(SystemClock));
    let audit = match place.database.as_ref().filter(|url| !url.is_empty()) {
        // The line is in the file in any case.
        Some(database) => open_database(database)
            .ok()
            .and_then(|records| audit.share(records as Arc<dyn AuditRecords>, "").ok())
            .unwrap_or(audit),
        None => audit,
    };
    audit.record(&Actor::cli(), action, name, detail, &done);
    audit.flush(AUDIT_FLUSH_TIME_MAX);
    done.map_err(|error| {
        let exit = match &error {
            ApiError::Key(KeyError::NotFound { .. }) => exit::NOT_FOUND,
            ApiError::Key(KeyError::Exists { .. } | KeyError::TooMany { .. }) => exit::CONFLICT,
            ApiError::Key(KeyError::Store(_) | KeyError::Shared(_) | KeyError::Damaged { .. }) => exit::UNEXPECTED,
            _ => exit::INVALID,
        };
        CliError::new(exit, error.code().as_str(), error.to_string())
    })
}

/// A created key as JSON.
#[derive(Serialize)]
struct CreatedKey {
    name: String,
    key: String,
    scopes: Vec<KeyScope>,
    projects: Option<Vec<String>>,
    rate: Option<RateLimit>,
    quota: Option<RequestQuota>,
    max_running_jobs: Option<u32>,
    gpu_seconds: Option<u64>,
    expires_ms: Option<UnixMillis>,
}

/// A revoked key as JSON.
#[derive(Serialize)]
struct RevokedKey<'a> {
    name: &'a str,
    revoked: bool,
}

fn create_key(args: &KeyCreateArgs, output: CliOutput) -> Result<(), CliError> {
    let home = open_state_dir(&args.place)?;
    let now_ms = SystemClock.now_ms();
    let life = |life: std::time::Duration| now_ms.saturating_add(u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
    let new = NewKey {
        name: args.name.clone(),
        scopes: args.scope.clone(),
        projects: (!args.project.is_empty()).then(|| args.project.clone()),
        rate: args.rate,
        quota: args.quota,
        max_running_jobs: args.max_running_jobs,
        gpu_seconds: args.gpu_seconds,
        expires_ms: args.expires.map(life),
    };
    let detail = new.summary();
    let created = open_keys(&args.place, &home)?.create(new, now_ms);
    let (record, text) = audit_key_change(&args.place, &home, AuditAction::KeyCreate, &args.name, &detail, created)?;
    if output.json {
        output.print_json(&CreatedKey {
            name: record.name,
            key: text,
            scopes: record.scopes,
            projects: record.projects,
            rate: record.rate,
            quota: record.quota,
            max_running_jobs: record.max_running_jobs,
            gpu_seconds: record.gpu_seconds,
            expires_ms: record.expires_ms,
        });
        return Ok(());
    }
    output.print_line(&text);
    output.print_note(&format!("{} may {detail}. The key is shown this once; clients send", record.name));
    output.print_note("  Authorization: Bearer sgr_...        (saggar: --key or SAGGAR_API_KEY)");
    Ok(())
}

fn list_keys(args: &KeyHomeArgs, output: CliOutput) -> Result<(), CliError> {
    let home = open_state_dir(args)?;
    let failed = |error: String| CliError::new(exit::UNEXPECTED, "keys", error);
    let keys = open_keys(args, &home)?.read().map_err(|error| failed(error.to_string()))?;
    let usage: KeyUsageFile = home.key_usage();
    let usage = usage.read().map_err(|error| failed(error.to_string()))?;
    let now_ms = SystemClock.now_ms();
    let used =
        |key: &saggar_store::KeyRecord| key.requests_used(usage.get(&key.id).copied().unwrap_or_default(), now_ms);
    if output.json {
        let keys = keys.iter().map(|key| key_document(key, used(key))).collect();
        output.print_json(&KeyListDocument { keys });
        return Ok(());
    }
    if output.quiet {
        keys.iter().for_each(|key| output.print_line(&key.name));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
            let none = || "-".to_owned();
            let quota = key.quota.map_or_else(none, |quota| format!("{} of {quota}", used(key)));
            let expires = key.expires_ms.map_or_else(none, |end| match end.saturating_sub(now_ms) {
                0 => "expired".to_owned(),
                left => format!("in {}", format_duration(left as f64 / 1000.0)),
            });
            let rate = key.rate.map_or_else(none, |rate| rate.to_string());
            let projects = key.projects.as_ref().map_or_else(|| "all".to_owned(), |projects| projects.join(","));
            vec![key.name.clone(), scopes.join(","), projects, rate, quota, expires, format_age(key.created_ms, now_ms)]
        })
        .collect();
    output.print_table(&["KEY", "SCOPES", "PROJECTS", "RATE", "QUOTA USED", "EXPIRES", "CREATED"], &rows);
    if rows.is_empty() {
        output.print_note("No keys yet: `saggar key create NAME --scope predict` creates one.");
    }
    Ok(())
}

fn revoke_key(args: &KeyRevokeArgs, output: CliOutput) -> Result<(), CliError> {
    let home = open_state_dir(&args.place)?;
    let revoked = open_keys(&args.place, &home)?.revoke(&args.name);
    audit_key_change(&args.place, &home, AuditAction::KeyRevoke, &args.name, "", revoked)?;
    if output.json {
        output.print_json(&RevokedKey { name: &args.name, revoked: true });
        return Ok(());
    }
    output.print_note(&format!("{} is revoked and no longer valid.", args.name));
    Ok(())
}
