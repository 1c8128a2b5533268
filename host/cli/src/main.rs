//! The saggar command: the one place where the floors are put together.

mod allocator;
mod args;
mod client;
mod commands;
mod escape;
mod event_stream;
mod exit;
mod interrupt;
mod known_homes;
mod multipart;
mod output;
mod partial;
mod picture;
mod progress;
mod project;
mod quiet;
mod reconnect;
mod server;
mod signals;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use tracing_subscriber::EnvFilter;

use args::{Cli, Command};
use exit::Failure;
use output::Output;
use server::ServerAddress;

fn main() -> ExitCode {
    allocator::bound_freed_memory();
    let cli = parse();
    let colour = !cli.no_color
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::stdout().is_terminal();
    let output = Output { json: cli.json, quiet: cli.quiet, colour };
    // Only where a GPU's drivers may be looked at: being replaced takes time.
    let looks = match &cli.command {
        Command::Serve(serve) => serve.device != "cpu",
        command => matches!(command, Command::Worker(_) | Command::Doctor(_) | Command::Devices | Command::Bench(_)),
    };
    if looks {
        quiet::silence_wayland();
    }
    init_logging(&cli);
    let code = match run(cli, output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Reads the command line, or prints what is wrong with it, or its help, and ends.
fn parse() -> Cli {
    let arguments = commands::run::help::arguments();
    let mut command = args::command();
    let parsed = command.try_get_matches_from_mut(&arguments);
    let parsed = parsed
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command)));
    parsed.unwrap_or_else(|error| commands::run::help::of_plugin(&arguments, &error).unwrap_or_else(|| error.exit()))
}

/// Runs the command and returns the exit code of what it did.
fn run(cli: Cli, output: Output) -> Result<i32, Failure> {
    // What needs no server must not fail for what only a server is sent.
    let local = matches!(
        cli.command,
        Command::Serve(_)
            | Command::Worker(_)
            | Command::CompileChild(_)
            | Command::Bench(_)
            | Command::Key(_)
            | Command::Doctor(_)
            | Command::Env(_)
            | Command::Build(_)
            | Command::Init(_)
            | Command::Inspect(_)
            | Command::Check(_)
            | Command::Completion(_)
            | Command::Devices
    );
    let server = match local {
        true => ServerAddress::default(),
        false => ServerAddress::of(&cli)?,
    };
    let client = match &cli.command {
        // It shows what is said, whether or not that is any good.
        Command::Config(_) | Command::Version => ServerAddress::default().client()?,
        _ => server.client()?,
    };
    match cli.command {
        Command::Serve(args) => commands::serve::serve(&args, output).map(|()| 0),
        Command::Worker(args) => commands::serve::worker(&args),
        Command::CompileChild(args) => Ok(commands::serve::compile_child(&args)),
        Command::Devices => commands::devices::devices(output).map(|()| 0),
        Command::Run(args) => commands::run::run(&args, &client, output),
        Command::Ps(args) => commands::jobs::ps(&args, &client, output).map(|()| 0),
        Command::Status(args) => commands::jobs::status(&args, &client, output).map(|()| 0),
        Command::Logs(args) => commands::jobs::logs(&args, &client, output).map(|()| 0),
        Command::Stop(args) => commands::jobs::stop(&args, &client, output).map(|()| 0),
        Command::Wait(args) => commands::jobs::wait_for(&args, &client, output),
        Command::Restart(args) => commands::jobs::restart(&args, &client, output),
        Command::Preempt(args) => commands::jobs::preempt(&args, &client, output).map(|()| 0),
        Command::Diff(args) => commands::jobs::diff(&args, &client, output).map(|()| 0),
        Command::Compare(args) => commands::jobs::compare(&args, &client, output).map(|()| 0),
        Command::Metrics(args) => commands::jobs::metrics(&args, &client, output).map(|()| 0),
        Command::Rm(args) => commands::jobs::rm(&args, &client, output).map(|()| 0),
        Command::Gc(args) => commands::jobs::gc(&args, &client, output).map(|()| 0),
        Command::Plugins(args) => commands::plugins::plugins(&args, &client, output),
        Command::Queues => commands::jobs::queues(&client, output).map(|()| 0),
        Command::Quota => commands::jobs::quota(&client, output).map(|()| 0),
        Command::Cost(args) => commands::jobs::cost(&args, &client, output).map(|()| 0),
        Command::Schedules(args) => commands::jobs::schedules(&args, &client, output).map(|()| 0),
        Command::Secret(args) => commands::jobs::secret(&args, &client, output).map(|()| 0),
        Command::Outputs(args) => commands::outputs::outputs(&args, &client, output).map(|()| 0),
        Command::Data(args) => commands::data::data(&args, &client, output).map(|()| 0),
        Command::Models(args) => commands::models::models(&args, &client, output).map(|()| 0),
        Command::Import(args) => commands::import::import(&args, &client, output).map(|()| 0),
        Command::Predict(args) => commands::predict::predict(&args, &client, output),
        Command::Bench(args) => commands::bench::bench(&args, output),
        Command::Key(args) => commands::key::key(&args, output).map(|()| 0),
        Command::Doctor(args) => commands::doctor::doctor(&args, output),
        Command::Env(args) => commands::env::env(&args, output).map(|()| 0),
        Command::Build(args) => commands::build::build(&args, output).map(|()| 0),
        Command::Inspect(args) => commands::inspect::inspect(&args, output).map(|()| 0),
        Command::Init(args) => commands::init::init(&args, output).map(|()| 0),
        Command::Dev(args) => commands::dev::dev(&args, server, output),
        Command::Check(args) => commands::check::check(&args, output),
        Command::Config(args) => commands::config::config(&args, &server, output).map(|()| 0),
        Command::Completion(args) => commands::completion::completion(&args),
        Command::Version => commands::version::version(&server, output).map(|()| 0),
    }
}

/// Logs go to standard error: the server's at `info`, the other commands' at `warn`, unless `SAGGAR_LOG` or `-v` say
/// otherwise.
fn init_logging(cli: &Cli) {
    let level = match (&cli.command, cli.verbose) {
        (Command::Serve(_), 0) if !cli.quiet => "info",
        (_, 0) => "warn",
        (_, 1) => "debug",
        (_, _) => "trace",
    };
    // Only our own crates at the chosen level: wgpu and cranelift are talkative.
    let ours = format!(
        "warn,saggar={level},saggar_serve={level},saggar_jobs={level},saggar_plugin={level},saggar_device={level},saggar_store={level}"
    );
    let filter = EnvFilter::try_from_env("SAGGAR_LOG").unwrap_or_else(|_| EnvFilter::new(ours));
    let colour = !cli.no_color && std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
