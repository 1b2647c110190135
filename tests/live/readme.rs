//! What README.md shows is what happens: its SQL is pasted into psql, in order, and gives what stands below it.

use crate::support::Cluster;
use crate::support::cluster::PRELOAD;
use kb::kernels::{InstructionSet, VARIABLE};
use std::io::Write;
use std::process::Stdio;

/// A piece of SQL and what README.md prints for it.
struct Example {
    line: usize,
    sql: String,
    output: Option<String>,
    figures_vary: bool,
}

/// The lines of a fenced block that begins at `start`, without the indentation of the fence; and the line behind it.
fn block(lines: &[&str], start: usize) -> (String, usize) {
    let indent = lines[start].len() - lines[start].trim_start().len();
    let length = lines[start + 1..].iter().position(|line| line.trim() == "```").unwrap();
    let end = start + 1 + length;
    let text: Vec<&str> = lines[start + 1..end].iter().map(|line| line.get(indent..).unwrap_or("")).collect();
    (text.join("\n"), end + 1)
}

/// The examples, and the document of the first one.
fn read() -> (Vec<Example>, String) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (mut examples, mut document, mut at) = (Vec::new(), String::new(), 0);
    while at < lines.len() {
        match lines[at].trim() {
            "```sh" if lines[at + 1].starts_with("cat > /tmp/leave.md") => {
                let (script, next) = block(&lines, at);
                let inner = script.lines().skip(1).take_while(|line| *line != "END");
                document = inner.map(|line| format!("{line}\n")).collect();
                at = next;
            }
            "```sql" => {
                let line = at + 1;
                let is_run = !lines[at - 1].contains("not run by the tests");
                let (sql, next) = block(&lines, at);
                at = next;
                // Its output comes next, if anything does but prose.
                let figures_vary =
                    lines[at..].iter().take(2).any(|line| line.trim() == "<!-- figures vary -->");
                let fence = at + 1 + usize::from(figures_vary);
                let output = (lines.get(fence).map(|line| line.trim()) == Some("```")).then(|| {
                    let (output, next) = block(&lines, fence);
                    at = next;
                    output
                });
                if is_run {
                    examples.push(Example { line, sql, output, figures_vary });
                }
            }
            _ => at += 1,
        }
    }
    (examples, document)
}

/// Without what is left out in README.md (results of void functions, and whatever `kb.ingest` gives), and without the
/// widths of columns.
fn normal(output: &str, figures_vary: bool) -> String {
    let mut lines: Vec<&str> = output.lines().collect();
    let is_left_out = |table: &[&str]| {
        let [name, rule, value, "(1 row)"] = table else { return false };
        rule.starts_with("---") && (value.trim().is_empty() || name.trim() == "ingest")
    };
    while let Some(at) = lines.windows(4).position(is_left_out) {
        lines.drain(at..at + 4);
    }
    let is_figure = |c: char| figures_vary && c.is_ascii_digit();
    let mut words = Vec::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        let is_rule = word.len() > 2 && word.chars().all(|c| "-+".contains(c));
        let word = if is_rule { "---" } else { word };
        words.push(word.split(is_figure).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#"));
    }
    words.join(" ")
}

#[test]
fn the_readmes_examples_give_what_it_prints() {
    let (examples, document) = read();
    assert!(examples.len() > 35 && !document.is_empty(), "{} examples", examples.len());
    for set in InstructionSet::available() {
        let mut cluster = crate::cluster!(PRELOAD);
        cluster.stop("fast", 30);
        cluster.give(VARIABLE, set.name());
        cluster.up();
        let wrong = run(&cluster, &examples, &document);
        assert!(wrong.is_empty(), "computed with {}: {wrong}", set.name());
    }
}

/// Where the output differs from what README.md prints.
fn run(cluster: &Cluster, examples: &[Example], document: &str) -> String {
    cluster.connect("postgres").run("CREATE DATABASE doc");
    let leave = cluster.path("leave.md");
    std::fs::write(&leave, document).unwrap();
    let mark = |i: usize| format!("@@ example {i} @@");
    let mut script = String::new();
    for (i, example) in examples.iter().enumerate() {
        script.push_str(&format!("\\echo '{}'\n{}\n", mark(i), example.sql));
    }
    let script = script.replace("/tmp/leave.md", leave.to_str().unwrap());
    // One session, as somebody's who pastes; what it says goes one way, as in a terminal.
    let log = std::fs::File::create(cluster.path("psql")).unwrap();
    let mut psql = cluster
        .program("psql")
        .args(["--no-psqlrc", "--quiet", "--dbname=doc"])
        .stdin(Stdio::piped())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
    let shown = std::fs::read_to_string(cluster.path("psql")).unwrap();
    let mut wrong = String::new();
    for (i, example) in examples.iter().enumerate() {
        let (_, after) = shown.split_once(&format!("{}\n", mark(i))).unwrap();
        let (got, _) = after.split_once(&mark(i + 1)).unwrap_or((after, ""));
        let normal = |text: &str| normal(text, example.figures_vary);
        let is_right = match &example.output {
            Some(output) => normal(got).contains(&normal(output)),
            None => !got.contains("ERROR:"),
        };
        if !is_right {
            let output = example.output.as_deref().unwrap_or("no error");
            wrong.push_str(&format!(
                "\nREADME.md, line {}:\n{}\ngave\n{got}\nnot\n{output}\n",
                example.line, example.sql
            ));
        }
    }
    wrong
}

/// The longest run of digits behind a point.
fn decimals(text: &str) -> usize {
    let behind_points = text.split('.').skip(1);
    behind_points.map(|part| part.bytes().take_while(u8::is_ascii_digit).count()).max().unwrap_or(0)
}

/// They differ from processor to processor.
#[test]
fn no_expected_output_has_the_last_digits_of_a_float() {
    let (examples, _) = read();
    let mut outputs: Vec<(String, String)> = Vec::new();
    for example in examples.into_iter().filter(|example| !example.figures_vary) {
        outputs.push((format!("README.md, line {}", example.line), example.output.unwrap_or_default()));
    }
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/pg_test/expected")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Statements stand there too, as they were given.
        let statements = std::fs::read_to_string(
            path.to_str().unwrap().replace("expected", "sql").replace(".out", ".sql"),
        )
        .unwrap();
        let given: std::collections::HashSet<&str> = statements.lines().collect();
        for line in text.lines().filter(|line| !given.contains(line)) {
            outputs.push((path.display().to_string(), line.to_string()));
        }
    }
    assert!(outputs.len() > 500, "{}", outputs.len());
    for (place, output) in outputs {
        assert!(decimals(&output) <= 4, "{place}: round the floats of\n{output}");
    }
}
