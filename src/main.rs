//! `belady`: reads the command line, does what it says, and turns the result into an exit status: 0 done, 1 it did not work, 2 wrong usage.

use std::process::ExitCode;

use belady::commands::{self, Failure, tell};
use belady::config::cli::Cli;
use clap::Parser;
use clap::error::ErrorKind;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_a_command(&error),
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(errors)) => {
            for error in errors {
                tell(&error);
            }
            ExitCode::from(2)
        }
        Err(Failure::Failed(error)) => {
            tell(&error);
            ExitCode::FAILURE
        }
        Err(Failure::Told) => ExitCode::FAILURE,
    }
}

/// Help and version go to standard output; an error becomes one line like all others.
fn not_a_command(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed standard output is no reason to fail.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more")).map(str::trim);
    let line = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    tell(&format!("{} (see belady --help)", line.strip_prefix("error: ").unwrap_or(&line)));
    ExitCode::from(2)
}
