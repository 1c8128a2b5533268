//! `saggar worker join`: asks a server for its settings, and replaces this process by one that has them in its environment,
//! which the processes of attempts inherit. No argument contains a secret.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::ValueEnum;
use saggar_jobs::launcher::DATABASE_URL_VARIABLE;
use saggar_rest::workers::{WorkerJoinRequest, WorkerSettingsDocument};
use saggar_store::server_identity::is_server_name;

use crate::args::{WorkerJoinArgs, WorkerOfferArgs};
use crate::client::{ApiClient, RequestBody};
use crate::exit::{self, CliError};
use crate::logging;
use saggar_jobs::engine::WORKER_SETTINGS_VARIABLE;

/// Variables that choose the credentials of a bucket. If this host has one of them, the server's credentials are not used.
const OWN_CREDENTIALS: [&str; 4] =
    ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"];
/// The server's variables that contain credentials.
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Returns only on failure.
pub(super) fn join(args: &WorkerJoinArgs, client: &ApiClient) -> Result<(), CliError> {
    if let Some(name) = args.name.as_deref().filter(|name| !is_server_name(name)) {
        let message = format!("--name {name:.80}: expected up to 64 letters, digits, `.`, `_` and `-`");
        return Err(CliError::invalid(message));
    }
    let request = WorkerJoinRequest {
        name: args.name.clone().unwrap_or_else(|| "worker".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let settings: WorkerSettingsDocument = client.post("/api/v1/workers/join", RequestBody::json(&request))?;
    tracing::info!(server = args.url, "the server gave its settings to this host");
    let program =
        std::env::current_exe().map_err(|error| CliError::new(exit::UNEXPECTED, "program", error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["worker", "host"]).args(offer_arguments(&args.offer));
    if let Some(name) = &args.name {
        command.arg("--name").arg(name);
    }
    set_environment(&mut command, args, settings)?;
    logging::flush_log();
    let error = command.exec();
    Err(CliError::new(exit::UNEXPECTED, "program", format!("the worker cannot be started: {error}")))
}

fn set_environment(
    command: &mut Command,
    args: &WorkerJoinArgs,
    settings: WorkerSettingsDocument,
) -> Result<(), CliError> {
    let database = match args.database.as_ref().filter(|url| !url.is_empty()) {
        Some(own) => own.as_postgres().map_err(CliError::invalid)?.to_owned(),
        None => settings.database,
    };
    // The key is needed no more, and jobs must not have it.
    command.env_remove("SAGGAR_API_KEY").env_remove("SAGGAR_OBJECTS").env(DATABASE_URL_VARIABLE, database);
    command.envs(settings.objects.map(|objects| ("SAGGAR_OBJECTS", objects)));
    let has_own = OWN_CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    for (name, value) in settings.environment {
        let is_credential = CREDENTIALS.contains(&name.as_str());
        let is_set = std::env::var_os(&name).is_some_and(|value| !value.is_empty());
        if !(is_set || is_credential && has_own) {
            command.env(name, value);
        }
    }
    let jobs = serde_json::to_string(&settings.jobs).expect("settings are plain data");
    command.env(WORKER_SETTINGS_VARIABLE, jobs);
    Ok(())
}

/// Returns the arguments of `saggar worker host` for an offer.
fn offer_arguments(offer: &WorkerOfferArgs) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--home".into(), offer.home.clone().into()];
    let mut add = |name: &str, value: String| arguments.extend([name.into(), value.into()]);
    offer.labels.iter().for_each(|(name, value)| add("--label", format!("{name}={value}")));
    if let Some(reserve) = offer.reserve {
        add("--reserve", reserve.to_string());
    }
    if let Some(slots) = offer.slots {
        add("--slots", slots.to_string());
    }
    if let Some(device) = &offer.device {
        add("--device", device.clone());
    }
    if let Some(address) = offer.ranks.advertise {
        add("--advertise", address.to_string());
    }
    if let Some(ports) = offer.ranks.rank_ports {
        add("--rank-ports", ports.to_string());
    }
    let format = offer.log_format.to_possible_value();
    if let Some(format) = format {
        add("--log-format", format.get_name().to_owned());
    }
    if offer.preemptible {
        arguments.push("--preemptible".into());
    }
    arguments
}
