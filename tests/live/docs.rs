//! README.md and the pages of docs/ show what happens: their SQL is pasted into psql, each page from its top
//! in a database of its own, and must print what the page prints below it.

use crate::support::pages::{ROOT, text};
use crate::support::{Cluster, until};
use crate::support::{PRELOAD, files};
use kb_kernels::{InstructionSet, VARIABLE};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A piece of SQL and the output that the page prints for it.
struct Example {
    line: usize,
    sql: String,
    output: Option<String>,
    figures_vary: bool,
}

struct Page {
    /// Relative to the root of the repository.
    name: String,
    examples: Vec<Example>,
    /// The file that the page writes in the shell, and its text.
    file: Option<(String, String)>,
}

/// The Markdown files under a folder.
fn markdown(dir: &Path) -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    files::under(dir).into_iter().filter(is_page).collect()
}

/// README.md and the pages of docs/.
fn pages() -> Vec<Page> {
    let mut files = vec![Path::new(ROOT).join("README.md")];
    files.extend(markdown(&Path::new(ROOT).join("docs")));
    files.iter().map(|file| Page::read(file)).collect()
}

/// The lines of a fenced block that begins at `start`, without the indentation of the fence, and the number
/// of the line after it.
fn block(lines: &[&str], start: usize) -> (String, usize) {
    let indent = lines[start].len() - lines[start].trim_start().len();
    let length = lines[start + 1..].iter().position(|line| line.trim() == "```").unwrap();
    let end = start + 1 + length;
    let text: Vec<&str> = lines[start + 1..end].iter().map(|line| line.get(indent..).unwrap_or("")).collect();
    (text.join("\n"), end + 1)
}

/// The folder of the file that a page writes, and that sources may read.
fn folder_of(cluster: &Cluster) -> PathBuf {
    cluster.path("folder")
}

impl Page {
    fn read(path: &Path) -> Page {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let name = path.strip_prefix(ROOT).unwrap().display().to_string();
        let mut page = Page { name, examples: Vec::new(), file: None };
        let mut at = 0;
        while at < lines.len() {
            match lines[at].trim() {
                "```sh" if lines[at + 1].starts_with("cat > ") => {
                    let (script, next) = block(&lines, at);
                    let path = script.split_whitespace().nth(2).unwrap().to_string();
                    let inner = script.lines().skip(1).take_while(|line| *line != "END");
                    page.file = Some((path, inner.map(|line| format!("{line}\n")).collect()));
                    at = next;
                }
                "```sql" => {
                    let line = at + 1;
                    let is_run = !lines[at - 1].contains("not run by the tests");
                    let (sql, next) = block(&lines, at);
                    at = next;
                    // Its output comes next, if anything except prose does.
                    let figures_vary =
                        lines[at..].iter().take(2).any(|line| line.trim() == "<!-- figures vary -->");
                    let fence = at + 1 + usize::from(figures_vary);
                    let output = (lines.get(fence).map(|line| line.trim()) == Some("```")).then(|| {
                        let (output, next) = block(&lines, fence);
                        at = next;
                        output
                    });
                    if is_run {
                        page.examples.push(Example { line, sql, output, figures_vary });
                    }
                }
                _ => at += 1,
            }
        }
        page
    }

    /// The differences between the output of the examples and what the page prints.
    fn wrong(&self, cluster: &Cluster) -> String {
        let mark = |i: usize| format!("@@ example {i} @@");
        let mut script = String::new();
        for (i, example) in self.examples.iter().enumerate() {
            script.push_str(&format!("\\echo '{}'\n{}\n", mark(i), example.sql));
        }
        if let Some((path, text)) = &self.file {
            let (folder, name) = path.rsplit_once('/').unwrap();
            let own = folder_of(cluster);
            let _ = std::fs::remove_dir_all(&own);
            std::fs::create_dir(&own).unwrap();
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::write(own.join(name), text).unwrap();
            script = script.replace(folder, own.to_str().unwrap());
        }
        let mut postgres = cluster.connect("postgres");
        postgres.run("CREATE DATABASE doc");
        if !script.contains("CREATE EXTENSION kb") {
            cluster.connect("doc").run("CREATE EXTENSION kb CASCADE");
        }
        // One session for the page, as if a user pasted it; output and errors go to one file, as to a
        // terminal.
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
        // Work that the last example of the page has begun does not matter (tests/live/databases.rs tests
        // that).
        until(Duration::from_secs(120), "the database of a page is dropped", || {
            // PostgreSQL gives up if a process takes longer than five seconds to leave.
            postgres.try_run("DROP DATABASE doc WITH (FORCE)").is_ok()
        });
        let shown = std::fs::read_to_string(cluster.path("psql")).unwrap();
        let mut wrong = String::new();
        for (i, example) in self.examples.iter().enumerate() {
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
                    "\n{}, line {}:\n{}\ngave\n{got}\nnot\n{output}\n",
                    self.name, example.line, example.sql
                ));
            }
        }
        wrong
    }
}

/// Without what the pages leave out (results of void functions, and the number that `kb.ingest` returns), and
/// without the widths of columns.
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
fn the_examples_of_every_page_give_what_it_prints() {
    let pages = pages();
    let examples: usize = pages.iter().map(|page| page.examples.len()).sum();
    assert!(pages.len() > 20 && examples > 50, "{} pages, {examples} examples", pages.len());
    // The simplest and most common one.
    let available = InstructionSet::available();
    for set in [available.first(), available.last()].into_iter().flatten() {
        // The launcher's visits to databases would appear among the processes. The simplest instructions take
        // long if other tests use the processor.
        let settings = [PRELOAD, "kb.launcher_naptime = '1d'", "kb.gateway_timeout = '120s'"];
        let mut cluster = crate::cluster!();
        cluster.stop("fast", 30);
        cluster.give(VARIABLE, set.name());
        let dirs = format!("kb.source_dirs = '{}'", folder_of(&cluster).display());
        cluster.configure(&[&settings[..], &[dirs.as_str()]].concat());
        cluster.up();
        let with_examples = pages.iter().filter(|page| !page.examples.is_empty());
        let wrong: String = with_examples.map(|page| page.wrong(&cluster)).collect();
        assert!(wrong.is_empty(), "computed with {}: {wrong}", set.name());
    }
}

/// The longest run of digits after a point.
fn decimals(text: &str) -> usize {
    let behind_points = text.split('.').skip(1);
    behind_points.map(|part| part.bytes().take_while(u8::is_ascii_digit).count()).max().unwrap_or(0)
}

/// These differ from processor to processor.
#[test]
fn no_expected_output_has_the_last_digits_of_a_float() {
    let mut outputs: Vec<(String, String)> = Vec::new();
    for page in pages() {
        for example in page.examples.into_iter().filter(|example| !example.figures_vary) {
            let place = format!("{}, line {}", page.name, example.line);
            outputs.push((place, example.output.unwrap_or_default()));
        }
    }
    for file in std::fs::read_dir(Path::new(ROOT).join("pg_test/expected")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // It contains the statements, too, as they were entered.
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

#[test]
fn the_readme_has_at_most_250_lines() {
    let lines = text("README.md").lines().count();
    assert!(lines <= 250, "{lines} lines");
}

/// The anchors of a page's headings, in the form that GitHub generates.
fn anchors(text: &str) -> Vec<String> {
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        })
        .collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"];
    let mut files = pages.map(|page| Path::new(ROOT).join(page)).to_vec();
    files.extend(markdown(&Path::new(ROOT).join("docs")));
    let (mut count, mut broken) = (0, Vec::new());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            let found = std::fs::read_to_string(&target).is_ok_and(|text| {
                anchor.is_empty() || anchors(&text).iter().any(|heading| heading == anchor)
            });
            if !found {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(count > 80, "{count} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_readme_leads_to_every_page() {
    let readme = text("README.md");
    for page in pages().iter().skip(1) {
        assert!(readme.contains(&format!("]({})", page.name)), "README.md has no link to {}", page.name);
    }
}
