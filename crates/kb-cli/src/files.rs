//! YAML files as one configuration: they are joined to one text, and the places of problems in that text are
//! turned back into places in files.

use crate::exit::{Error, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The size of all files together. kb.apply reads what fits into a configuration; this is far more.
const LARGEST: u64 = 64 << 20;

pub struct Files {
    /// All files as documents of one YAML text.
    pub text: String,
    /// The name of each file, and the number of lines that are before its first one.
    starts: Vec<(String, usize)>,
}

impl Files {
    /// Reads these files, the YAML files in these folders, and standard input for `-`.
    pub fn read(paths: &[PathBuf]) -> Result<Files> {
        let mut contents = Vec::new();
        let mut left = LARGEST;
        for path in paths {
            if path.as_os_str() == "-" {
                contents.push((
                    "-".to_string(),
                    read(&mut std::io::stdin(), Path::new("standard input"), &mut left)?,
                ));
                continue;
            }
            let mut files = Vec::new();
            if path.is_dir() {
                collect(path, &mut files)?;
                if files.is_empty() {
                    return Err(Error::failed(format!(
                        "{}: the folder has no file *.yaml or *.yml",
                        path.display()
                    )));
                }
                files.sort();
            } else {
                files.push(path.clone());
            }
            for file in files {
                let mut open = std::fs::File::open(&file).map_err(|e| Error::file(&file, &e))?;
                contents.push((file.display().to_string(), read(&mut open, &file, &mut left)?));
            }
        }
        Ok(Files::joined(contents))
    }

    fn joined(contents: Vec<(String, String)>) -> Files {
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (name, content) in contents {
            let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
            let says_something = |line: &str| {
                !line.trim().is_empty() && !line.trim_start().starts_with('#') && line.trim_end() != "---"
            };
            // A file without content would be an empty document.
            if !content.lines().any(says_something) {
                continue;
            }
            if !text.is_empty() {
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                // A directive (`%YAML`) must follow the end of a document.
                let first = content.lines().find(|line| says_something(line) || line.trim_end() == "---");
                match first {
                    Some(line) if line.trim_end() == "---" || line.starts_with("--- ") => {}
                    Some(line) if line.starts_with('%') => text.push_str("...\n"),
                    _ => text.push_str("---\n"),
                }
            }
            starts.push((name, text.matches('\n').count()));
            text.push_str(content);
        }
        Files { text, starts }
    }

    /// The file and the line in it, both of a line of the joined text.
    fn place(&self, line: usize) -> Option<(&str, usize)> {
        let at = self.starts.iter().rposition(|(_, before)| *before < line)?;
        let (name, before) = &self.starts[at];
        Some((name, line - before))
    }

    /// A list of problems as kb.apply reports it (`line 3, column 5: …`), with the places as `FILE:3:5: …`.
    pub fn located(&self, detail: &str) -> String {
        let lines = detail.lines().map(|line| self.located_line(line).unwrap_or_else(|| line.to_string()));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn located_line(&self, text: &str) -> Option<String> {
        let (number, rest) = text.strip_prefix("line ")?.split_once(", column ")?;
        let (column, problem) = rest.split_once(": ")?;
        let column: usize = column.parse().ok()?;
        let (name, line) = self.place(number.parse().ok()?)?;
        Some(format!("{name}:{line}:{column}: {}", self.with_first(problem)))
    }

    /// A problem that names another line at its end.
    fn with_first(&self, problem: &str) -> String {
        let named = problem.rsplit_once(" first in line ").and_then(|(before, number)| {
            let (name, line) = self.place(number.parse().ok()?)?;
            Some(format!("{before} first in {name}:{line}"))
        });
        named.unwrap_or_else(|| problem.to_string())
    }

    /// An error of kb.apply, with the places of its problems in these files.
    pub fn explain(&self, mut error: Error) -> Error {
        if let Some(detail) = &error.detail {
            error.detail = Some(self.located(detail));
        }
        error
    }
}

fn read(from: &mut impl Read, path: &Path, left: &mut u64) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(*left + 1).read_to_end(&mut bytes).map_err(|e| Error::file(path, &e))?;
    *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
        Error::failed(format!("{}: the files have more than {} MB together", path.display(), LARGEST >> 20))
    })?;
    String::from_utf8(bytes).map_err(|_| Error::failed(format!("{}: the file is not UTF-8", path.display())))
}

/// The YAML files below a folder. What begins with a dot is left out, and links to folders are not followed.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file(folder, &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::file(folder, &e))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let file_type = entry.file_type().map_err(|e| Error::file(&path, &e))?;
        if file_type.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(contents: &[(&str, &str)]) -> Files {
        Files::joined(contents.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect())
    }

    #[test]
    fn a_place_in_the_joined_text_is_one_in_its_file() {
        let files = joined(&[
            ("a.yaml", "llms:\n  - id: a\n"),
            ("empty.yaml", "# nothing\n\n"),
            ("b.yaml", "---\nllms:\n  - id: b"),
            ("c.yaml", "# c\nllms: 1\n---\nx: 2\n"),
            ("d.yaml", "\u{feff}%YAML 1.2\n---\ny: 3"),
        ]);
        assert_eq!(
            files.text,
            "llms:\n  - id: a\n---\nllms:\n  - id: b\n---\n# c\nllms: 1\n---\nx: 2\n...\n%YAML 1.2\n---\ny: 3"
        );
        let place = |needle: &str| {
            let at = files.text.lines().position(|line| line.contains(needle)).unwrap() + 1;
            files.located(&format!("line {at}, column 7: wrong"))
        };
        assert_eq!(place("id: a"), "a.yaml:2:7: wrong");
        assert_eq!(place("id: b"), "b.yaml:3:7: wrong");
        assert_eq!(place("llms: 1"), "c.yaml:2:7: wrong");
        assert_eq!(place("x: 2"), "c.yaml:4:7: wrong");
        assert_eq!(place("y: 3"), "d.yaml:3:7: wrong");
    }

    #[test]
    fn every_problem_is_located_and_other_texts_stay() {
        let files = joined(&[("a.yaml", "a: 1\n"), ("b.yaml", "b: 1\n")]);
        assert_eq!(
            files
                .located("line 3, column 1: llm \"a\" is declared twice, first in line 1\nand so on\nline x"),
            "b.yaml:1:1: llm \"a\" is declared twice, first in a.yaml:1\nand so on\nline x"
        );
    }

    #[test]
    fn a_folder_is_its_yaml_files_in_order() {
        let dir = std::env::temp_dir().join(format!("kb-cli-files-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::create_dir_all(dir.join(".git")).unwrap();
        for (name, text) in [
            ("b.yml", "b: 1"),
            ("a.yaml", "a: 1"),
            ("sub/c.yaml", "c: 1"),
            ("x.txt", "x"),
            (".git/d.yaml", "d: 1"),
        ] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        assert_eq!(Files::read(std::slice::from_ref(&dir)).unwrap().text, "a: 1\n---\nb: 1\n---\nc: 1");
        let missing = Files::read(&[dir.join("none")]).err().unwrap();
        assert!(missing.message.contains("none"), "{}", missing.message);
        std::fs::write(dir.join("a.yaml"), b"\xff").unwrap();
        assert!(Files::read(std::slice::from_ref(&dir)).err().unwrap().message.contains("not UTF-8"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
