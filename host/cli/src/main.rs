//! The `saggar` command: parses the command line, dispatches the commands and assembles the crates into a server.

mod allocator;
mod args;
mod ascii_picture;
mod atomic_file;
mod client;
mod commands;
mod component_source;
mod database;
mod escape;
mod event_stream;
mod exit;
mod interrupt;
mod known_state_dirs;
mod logging;
mod multipart;
mod output;
mod plugin_build;
mod progress;
mod project;
mod reconnect;
mod server;
mod signals;
mod temp_directory;
mod units;
mod wayland;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use args::{BenchCommand, Cli, CliCommand, DeployCommand, WorkerCommand};
use client::ApiClient;
use exit::CliError;
use output::CliOutput;
use server::ServerAddress;

fn main() -> ExitCode {
    allocator::bound_freed_memory();
    let cli = parse_command_line();
    let colour = !cli.no_color
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::stdout().is_terminal();
    let output = CliOutput { json: cli.json, quiet: cli.quiet, colour };
    // Only for commands that may load GPU drivers, because replacing the process takes time.
    let looks = match &cli.command {
        CliCommand::Serve(serve) => serve.device != "cpu",
        command => matches!(
            command,
            CliCommand::Worker(WorkerCommand::Attempt(_))
                | CliCommand::Doctor(_)
                | CliCommand::Devices
                | CliCommand::Bench(BenchCommand::Train(_) | BenchCommand::Infer(_) | BenchCommand::Data(_))
        ),
    };
    if looks {
        wayland::silence_wayland();
    }
    logging::init_logging(&cli);
    let code = match run(cli, output) {
        Ok(code) => code,
        Err(failure) => {
            output.print_error(&failure);
            failure.exit_code
        }
    };
    logging::flush_log();
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Parses the command line. On an error or a request for help, prints it and exits.
fn parse_command_line() -> Cli {
    let (arguments, renamed) = args::renamed::translate(commands::run::help::command_line_arguments());
    for warning in renamed {
        output::print_to_stderr(&format!("warning: {warning}"));
    }
    let mut command = args::command();
    let parsed = command.try_get_matches_from_mut(&arguments);
    let parsed = parsed
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command)));
    parsed.map(name_joined_server).unwrap_or_else(|error| {
        commands::run::help::plugin_help_request(&arguments, &error).unwrap_or_else(|| error.exit())
    })
}

/// Makes the URL of `saggar worker join` the server of the command.
fn name_joined_server(mut cli: Cli) -> Cli {
    if let CliCommand::Worker(WorkerCommand::Join(join)) = &cli.command {
        cli.host = vec![join.url.clone()];
    }
    cli
}

/// Returns whether a command needs no server. It must not fail because of a bad key or certificate.
fn is_local(command: &CliCommand) -> bool {
    matches!(
        command,
        CliCommand::Serve(_)
            | CliCommand::Worker(WorkerCommand::Attempt(_) | WorkerCommand::Host(_) | WorkerCommand::Run(_))
            | CliCommand::CompileChild(_)
            | CliCommand::Bench(BenchCommand::Train(_) | BenchCommand::Infer(_) | BenchCommand::Diff(_))
            | CliCommand::Key(_)
            | CliCommand::Doctor(_)
            | CliCommand::Backup(_)
            | CliCommand::Restore(_)
            | CliCommand::Migrate(_)
            | CliCommand::UpgradeCheck(_)
            | CliCommand::Deploy(_)
            | CliCommand::Build(_)
            | CliCommand::Init(_)
            | CliCommand::Inspect(_)
            | CliCommand::Check(_)
            | CliCommand::Completion(_)
            | CliCommand::Manual(_)
            | CliCommand::Devices
    )
}

/// Returns the server that the command talks to.
///
/// # Errors
/// Returns an error if the configuration is not valid and the command needs it.
fn server_address(cli: &Cli) -> Result<ServerAddress, CliError> {
    match is_local(&cli.command) {
        // The configuration can be invalid, which is a finding of the command.
        true if matches!(cli.command, CliCommand::Doctor(_)) => Ok(ServerAddress::from_cli(cli).unwrap_or_default()),
        true => Ok(ServerAddress::default()),
        false => ServerAddress::from_cli(cli),
    }
}

/// Returns the client of the server that the command connects to.
fn client_of(cli: &Cli, server: &ServerAddress) -> Result<ApiClient, CliError> {
    match &cli.command {
        // These commands show the configuration, whether or not it is valid.
        CliCommand::Config(_) | CliCommand::Version | CliCommand::Doctor(_) => ServerAddress::default().client(),
        _ => server.client(),
    }
}

/// Runs the command and returns its exit code.
fn run(cli: Cli, output: CliOutput) -> Result<i32, CliError> {
    let server = server_address(&cli)?;
    let client = client_of(&cli, &server)?;
    if !matches!(cli.command, CliCommand::Top(_)) {
        server.require_one_host()?;
    }
    match cli.command {
        CliCommand::Serve(args) => commands::serve::serve(&args, output).map(|()| 0),
        CliCommand::Worker(args) => commands::worker::worker(&args, &client, output),
        CliCommand::Audit(args) => commands::audit::audit(&args, &client, output).map(|()| 0),
        CliCommand::CompileChild(args) => Ok(commands::serve::run_compile_child(&args)),
        CliCommand::Devices => commands::devices::devices(output).map(|()| 0),
        CliCommand::Run(args) => commands::run::run(&args, &client, output),
        CliCommand::Ps(args) => commands::jobs::ps(&args, &client, output).map(|()| 0),
        CliCommand::Status(args) => commands::jobs::status(&args, &client, output).map(|()| 0),
        CliCommand::Top(args) => commands::top::top(args, &server, output),
        CliCommand::Logs(args) => commands::jobs::logs(&args, &client, output).map(|()| 0),
        CliCommand::Stop(args) => commands::jobs::stop(&args, &client, output).map(|()| 0),
        CliCommand::Wait(args) => commands::jobs::wait_for(&args, &client, output),
        CliCommand::Restart(args) => commands::jobs::restart(&args, &client, output),
        CliCommand::Notebook(args) => commands::notebook::notebook(&args, &client, output).map(|()| 0),
        CliCommand::Replay(args) => commands::jobs::replay(&args, &client, output),
        CliCommand::Preempt(args) => commands::jobs::preempt(&args, &client, output).map(|()| 0),
        CliCommand::Pause(args) => commands::jobs::pause(&args, &client, output).map(|()| 0),
        CliCommand::Resume(args) => commands::jobs::resume(&args, &client, output).map(|()| 0),
        CliCommand::Diff(args) => commands::jobs::diff(&args, &client, output).map(|()| 0),
        CliCommand::Compare(args) => commands::jobs::compare(&args, &client, output).map(|()| 0),
        CliCommand::Experiment(args) => commands::jobs::experiment(&args, &client, output).map(|()| 0),
        CliCommand::Tag(args) => commands::jobs::tag(&args, &client, output).map(|()| 0),
        CliCommand::Note(args) => commands::jobs::note(&args, &client, output).map(|()| 0),
        CliCommand::Metrics(args) => commands::jobs::metrics(&args, &client, output).map(|()| 0),
        CliCommand::Logged(args) => commands::jobs::logged(&args, &client, output).map(|()| 0),
        CliCommand::Rm(args) => commands::jobs::rm(&args, &client, output).map(|()| 0),
        CliCommand::Gc(args) => commands::jobs::gc(&args, &client, output).map(|()| 0),
        CliCommand::Plugins(args) => commands::plugins::plugins(&args, &client, output),
        CliCommand::Queues => commands::jobs::queues(&client, output).map(|()| 0),
        CliCommand::Quota => commands::jobs::quota(&client, output).map(|()| 0),
        CliCommand::Cost(args) => commands::jobs::cost(&args, &client, output).map(|()| 0),
        CliCommand::Pipelines(args) => commands::pipeline::pipeline(&args, &client, output),
        CliCommand::Schedules(args) => commands::jobs::schedules(&args, &client, output).map(|()| 0),
        CliCommand::Sweep(args) => commands::sweep::sweep(*args, &client, output),
        CliCommand::Secret(args) => commands::jobs::secret(&args, &client, output).map(|()| 0),
        CliCommand::Outputs(args) => commands::outputs::outputs(&args, &client, output).map(|()| 0),
        CliCommand::Data(args) => commands::data::data(&args, &client, output),
        CliCommand::Models(args) => commands::models::models(&args, &client, output).map(|()| 0),
        CliCommand::Import(args) => commands::import::import(&args, &client, output).map(|()| 0),
        CliCommand::Predict(args) => commands::predict::predict(&args, &client, output),
        CliCommand::Verify(args) => commands::verify::verify(&args, &client, output).map(|()| 0),
        CliCommand::Bench(args) => commands::bench::bench(&args, &server, output),
        CliCommand::Key(args) => commands::key::key(&args, output).map(|()| 0),
        CliCommand::Doctor(args) => commands::doctor::doctor(&args, &server, output),
        CliCommand::Backup(args) => commands::backup::back_up(&args, output).map(|()| 0),
        CliCommand::Restore(args) => commands::backup::restore(&args, output).map(|()| 0),
        CliCommand::Migrate(args) => commands::migrate::migrate(&args, output).map(|()| 0),
        CliCommand::UpgradeCheck(args) => commands::upgrade_check::upgrade_check(&args, output).map(|()| 0),
        CliCommand::Deploy(DeployCommand::Kubernetes(args)) => commands::deploy::kubernetes(&args, output).map(|()| 0),
        CliCommand::Deploy(DeployCommand::Helm(args)) => commands::deploy::helm(&args, output).map(|()| 0),
        CliCommand::Build(args) => commands::build::build(&args, output).map(|()| 0),
        CliCommand::Inspect(args) => commands::inspect::inspect(&args, output).map(|()| 0),
        CliCommand::Init(args) => commands::init::init(&args, output).map(|()| 0),
        CliCommand::Dev(args) => commands::dev::dev(&args, server, output),
        CliCommand::Check(args) => commands::check::check(&args, output),
        CliCommand::Config(args) => commands::config::config(&args, &server, output).map(|()| 0),
        CliCommand::Completion(args) => commands::completion::completion(&args),
        CliCommand::Manual(args) => commands::manual::manual(&args).map(|()| 0),
        CliCommand::Health => commands::health::print_health(&client, output),
        CliCommand::Version => commands::version::print_versions(&server, output).map(|()| 0),
    }
}
