//! The stub provider as a program, for the demo and the benchmarks. Serves until its standard input ends, so
//! keep that open; then says on standard error what it saw.
//!
//! stub-provider [--port N] [--latency-ms N] [--concurrency N] [--dimension N] [--key KEY] [--record true]

#[path = "mod.rs"]
mod stub;

use std::io::Write;
use std::str::FromStr;
use std::time::Duration;
use stub::{Options, Stub};

fn main() -> std::io::Result<()> {
    let stub = Stub::start(options());
    let mut out = std::io::stdout();
    writeln!(out, "listening on 127.0.0.1:{}", stub.port())?;
    out.flush()?;
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    let complaints = stub.complaints();
    let times: Vec<std::time::Instant> = stub.requests().iter().map(|seen| seen.at).collect();
    let within = |from: usize| times.partition_point(|at| *at < times[from] + Duration::from_secs(60)) - from;
    let most = (0..times.len()).map(within).max().unwrap_or(0);
    eprintln!(
        "{} requests, at most {} at one time, {most} in a minute, {} complaints{}",
        stub.request_count(),
        stub.in_flight_max(),
        complaints.len(),
        complaints.first().map(|first| format!(", the first: {first}")).unwrap_or_default()
    );
    Ok(())
}

fn options() -> Options {
    let mut options = Options { record: false, ..Options::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let Some(value) = arguments.next() else { fail(&format!("{name} has no value")) };
        match name.as_str() {
            "--port" => options.port = number(&name, &value),
            "--latency-ms" => options.latency = Duration::from_millis(number(&name, &value)),
            "--concurrency" => options.concurrency = number(&name, &value),
            "--dimension" => options.dimension = number(&name, &value),
            "--record" => options.record = value == "true",
            "--key" => options.key = Some(value),
            _ => fail(&format!("{name} is unknown")),
        }
    }
    options
}

fn number<T: FromStr>(name: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| fail(&format!("{name}: {value} is no number that it takes")))
}

fn fail(problem: &str) -> ! {
    eprintln!("stub-provider: {problem}");
    std::process::exit(2)
}
