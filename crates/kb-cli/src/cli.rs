//! The command line.

use crate::commands::Command;
use crate::connect::Arguments;
use crate::exit::EXIT_CODES;
use crate::output::Colour;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

const ABOUT: &str = "Knowledge bases in PostgreSQL, from a command line.

kb needs a connection to a database that has the extension kb, as psql needs one, and reads the same variables, \
service files, connection strings and password file.";

#[derive(Parser)]
#[command(name = "kb", version, about = "Knowledge bases in PostgreSQL, from a command line", long_about = ABOUT)]
#[command(after_long_help = EXIT_CODES, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_flag = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(clap::Args)]
pub struct Global {
    #[command(flatten)]
    pub connection: Arguments,
    /// Act for this tenant
    #[arg(long, global = true, value_name = "TENANT")]
    pub project: Option<String>,
    /// Write JSON: one document, or a line for each row where the command says so
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours (NO_COLOR turns them off, too)
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub color: Colour,
}

/// The definition of the command line. `-h` is the host, as for psql, so help is `--help` everywhere.
pub fn definition() -> clap::Command {
    helped(Cli::command())
}

fn helped(command: clap::Command) -> clap::Command {
    let help = clap::Arg::new("help").long("help").short('?').action(ArgAction::Help).help("Show this help");
    let command = command.disable_help_flag(true).disable_help_subcommand(true).arg(help);
    command.mut_subcommands(helped)
}

/// Reads the command line, or ends the process with code 2 (0 for `--help` and `--version`).
pub fn parse() -> Cli {
    Cli::from_arg_matches(&definition().get_matches()).unwrap_or_else(|e| e.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn options_of_psql_are_read_before_and_after_the_command() {
        for line in ["kb -h x -p 1 -U u -d d list", "kb list -h x -p 1 -U u -d d"] {
            assert!(definition().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
        let help = definition().try_get_matches_from(["kb", "list", "--help"]).err().map(|e| e.kind());
        assert_eq!(help, Some(clap::error::ErrorKind::DisplayHelp));
    }
}
