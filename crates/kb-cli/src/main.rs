//! kb: what people do with kb, from a command line. It needs a connection to a database that has the
//! extension, and nothing else: no superuser, and no file on the server.

mod call;
mod cli;
mod commands;
mod connect;
mod context;
mod exit;
mod files;
mod mcp;
mod output;
#[cfg(test)]
mod reference;
mod serve;
mod server;
mod sql;

use context::Context;
use exit::{Error, Exit, Kind, Result};
use output::Output;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// How long a command may take to end after an interrupt.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let cli = cli::parse();
    let output = Output::new(cli.global.json, cli.global.color);
    let context = Context::new(output, cli.global.project, cli.global.connection);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // One that serves others takes the cores that there are.
    if !matches!(cli.command, commands::Command::Serve(_)) {
        runtime.worker_threads(2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return report(&context, &Err(Error::failed(format!("cannot start: {e}")))),
    };
    let code = runtime.block_on(async {
        let mut command = std::pin::pin!(commands::run(cli.command, &context));
        tokio::select! {
            ended = &mut command => report(&context, &ended),
            _ = tokio::signal::ctrl_c() => {
                let ended = tokio::time::timeout(PATIENCE, async {
                    tokio::join!(context.cancel(), &mut command).1
                });
                // A command for which an interrupt is the ordinary end has ended well.
                match ended.await {
                    Ok(Ok(Exit::Done)) => report(&context, &Ok(Exit::Done)),
                    _ => {
                        context.output.note("interrupted");
                        exit::interrupted()
                    }
                }
            }
        }
    });
    // A thread may wait for a line of a terminal, which nobody will type.
    runtime.shutdown_background();
    code
}

fn report(context: &Context, ended: &Result<Exit>) -> ExitCode {
    if let Err(error) = ended
        && error.kind != Kind::OutputClosed
    {
        let text = if context.output.json { error.json() } else { error.text() };
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    exit::code(ended)
}
