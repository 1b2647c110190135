//! `kb completions` and `kb man`: what packages put beside the program.

use crate::cli;
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// The folder for the files kb.1, kb-query.1 and so on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::definition(), "kb", &mut script);
    context.output.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

pub async fn man(args: ManArgs, _: &Context) -> Result<Exit> {
    std::fs::create_dir_all(&args.dir).map_err(|e| Error::file(&args.dir, &e))?;
    clap_mangen::generate_to(cli::definition(), &args.dir).map_err(|e| Error::file(&args.dir, &e))?;
    Ok(Exit::Done)
}
