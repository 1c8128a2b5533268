//! `saggar key`: making, listing and ending keys, in the state directory.

use std::sync::Arc;

use saggar_serve::{Action, Actor, ApiError, Audit};
use saggar_store::keys::{KeyError, NewKey, UsageFile};
use saggar_store::{Clock, Home, SystemClock};
use serde_json::{Value, json};

use crate::args::{Key, KeyCreate, KeyHome, KeyRevoke};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::units::{show_age, show_duration};

pub(crate) fn key(args: &Key, output: Output) -> Result<(), Failure> {
    match args {
        Key::Create(args) => create(args, output),
        Key::Ls(args) => list(args, output),
        Key::Revoke(args) => revoke(args, output),
    }
}

fn home(args: &KeyHome) -> Result<Home, Failure> {
    Home::open(&args.home).map_err(|error| Failure::new(exit::UNEXPECTED, "home", error.to_string()))
}

/// The failure, and the line of the audit log.
fn recorded<T>(home: &Home, action: Action, name: &str, detail: &str, done: Result<T, KeyError>) -> Result<T, Failure> {
    let done = done.map_err(ApiError::from);
    Audit::new(home.audit_log(), Arc::new(SystemClock)).record(&Actor::cli(), action, name, detail, &done);
    done.map_err(|error| {
        let exit = match &error {
            ApiError::Key(KeyError::NotFound { .. }) => exit::NOT_FOUND,
            ApiError::Key(KeyError::Exists { .. } | KeyError::TooMany { .. }) => exit::CONFLICT,
            ApiError::Key(KeyError::Store(_) | KeyError::Damaged { .. }) => exit::UNEXPECTED,
            _ => exit::INVALID,
        };
        Failure::new(exit, error.code(), error.to_string())
    })
}

fn create(args: &KeyCreate, output: Output) -> Result<(), Failure> {
    let home = home(&args.place)?;
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
    let made = home.keys().create(new, now_ms);
    let (record, text) = recorded(&home, Action::KeyCreate, &args.name, &detail, made)?;
    if output.json {
        output.json(&json!({
            "name": record.name,
            "key": text,
            "scopes": record.scopes,
            "projects": record.projects,
            "rate": record.rate,
            "quota": record.quota,
            "max_running_jobs": record.max_running_jobs,
            "gpu_seconds": record.gpu_seconds,
            "expires_ms": record.expires_ms,
        }));
        return Ok(());
    }
    output.line(&text);
    output.note(&format!("{} may {detail}. The key is shown this once; clients send", record.name));
    output.note("  Authorization: Bearer sgr_...        (saggar: --key or SAGGAR_API_KEY)");
    Ok(())
}

fn list(args: &KeyHome, output: Output) -> Result<(), Failure> {
    let home = home(args)?;
    let failed = |error: String| Failure::new(exit::UNEXPECTED, "keys", error);
    let keys = home.keys().read().map_err(|error| failed(error.to_string()))?;
    let usage: UsageFile = home.key_usage();
    let usage = usage.read().map_err(|error| failed(error.to_string()))?;
    let now_ms = SystemClock.now_ms();
    let used = |key: &saggar_store::KeyRecord| key.used(usage.get(&key.id).copied().unwrap_or_default(), now_ms);
    if output.json {
        let keys = keys.iter().map(|key| key.shown(used(key)));
        output.json(&json!({ "keys": keys.collect::<Vec<Value>>() }));
        return Ok(());
    }
    if output.quiet {
        keys.iter().for_each(|key| output.line(&key.name));
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
                left => format!("in {}", show_duration(left as f64 / 1000.0)),
            });
            let rate = key.rate.map_or_else(none, |rate| rate.to_string());
            let projects = key.projects.as_ref().map_or_else(|| "all".to_owned(), |projects| projects.join(","));
            vec![key.name.clone(), scopes.join(","), projects, rate, quota, expires, show_age(key.created_ms, now_ms)]
        })
        .collect();
    output.table(&["KEY", "SCOPES", "PROJECTS", "RATE", "QUOTA USED", "EXPIRES", "CREATED"], &rows);
    if rows.is_empty() {
        output.note("No keys yet: `saggar key create NAME --scope predict` makes one.");
    }
    Ok(())
}

fn revoke(args: &KeyRevoke, output: Output) -> Result<(), Failure> {
    let home = home(&args.place)?;
    let revoked = home.keys().revoke(&args.name);
    recorded(&home, Action::KeyRevoke, &args.name, "", revoked)?;
    if output.json {
        output.json(&json!({ "name": args.name, "revoked": true }));
        return Ok(());
    }
    output.note(&format!("{} opens nothing any more.", args.name));
    Ok(())
}
