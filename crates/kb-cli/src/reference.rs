//! docs/reference/program.md says of every command what the command line's definition says.
//! `KB_WRITE=1 cargo test -p kb-cli reference` writes it.

use crate::cli;
use crate::exit::EXIT_CODES;
use clap::{Arg, Command};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/program.md");
/// What follows this line is made from the definition.
const MARK: &str = "<!-- What follows is made by `KB_WRITE=1 cargo test -p kb-cli reference`. -->\n";

/// An option as it is written on the command line: `-f, --file FILE…`.
fn written(arg: &Arg) -> String {
    let mut names: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let values: Vec<&str> = match arg.get_value_names() {
        Some(values) if arg.get_action().takes_values() => {
            values.iter().map(|value| value.as_str()).collect()
        }
        _ => Vec::new(),
    };
    let more = if arg.get_num_args().is_some_and(|count| count.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
    {
        "…"
    } else {
        ""
    };
    let values = format!("{}{more}", values.join(" "));
    if names.is_empty() { values } else { format!("{} {values}", names.join(", ")).trim_end().to_string() }
}

fn row(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        let _ = write!(text, ": {}", values.join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        let _ = write!(text, ". The default is `{}`", defaults.join(" "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, ". Variable `{}`", variable.to_string_lossy());
    }
    format!("| `{}` | {}. |\n", written(arg), text.replace('|', "\\|"))
}

fn table(args: &[&Arg]) -> String {
    let rows: String = args.iter().map(|arg| row(arg)).collect();
    format!("| argument | description |\n|---|---|\n{rows}")
}

fn reference() -> String {
    let mut program = cli::definition();
    program.build();
    let is_own = |arg: &&Arg| !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let global: Vec<&Arg> = program.get_arguments().filter(|arg| !is_own(arg)).collect();
    let mut text = format!("\n## Options of all commands\n\n{}", table(&global));
    let mut commands: Vec<&Command> =
        program.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    commands.sort_by_key(|command| command.get_name());
    for command in commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
        let usage: Vec<String> = own
            .iter()
            .filter(|arg| arg.is_positional())
            .map(|arg| if arg.is_required_set() { written(arg) } else { format!("[{}]", written(arg)) })
            .collect();
        let usage = format!("kb {} {}", command.get_name(), usage.join(" "));
        let _ = write!(text, "\n## kb {}\n\n`{}`\n\n{about}.\n", command.get_name(), usage.trim_end());
        if !own.is_empty() {
            let _ = write!(text, "\n{}", table(&own));
        }
    }
    let mut codes = String::new();
    for line in EXIT_CODES.lines().skip(1) {
        match line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
            Some(rest) => {
                let (code, meaning) = rest.split_once(' ').unwrap();
                let _ = write!(codes, "\n| {code} | {}", meaning.trim());
            }
            None => codes += &format!(" {}", line.trim()),
        }
    }
    let codes = codes.trim_start().replace('\n', " |\n");
    let _ = write!(text, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n{codes} |\n");
    text
}

#[test]
fn the_page_of_reference_is_what_the_command_line_says() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, after) = page.split_once(MARK).unwrap();
    let made = reference();
    if std::env::var_os("KB_WRITE").is_some() {
        std::fs::write(PAGE, format!("{before}{MARK}{made}")).unwrap();
        return;
    }
    let lines = made.lines().zip(after.lines()).find(|(made, written)| made != written);
    assert_eq!(after, made, "docs/reference/program.md is not up to date, first in {lines:?}");
}
