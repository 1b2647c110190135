//! What a load has done, for people and as JSON.

use serde_json::{Value, json};
use std::time::Duration;

/// Counts of files and documents.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    pub files: u64,
    pub added: u64,
    pub updated: u64,
    pub unchanged: u64,
    /// Of these, documents that the worker could not process.
    pub unchanged_failed: u64,
    pub deleted: u64,
    /// Files of formats that kb does not read.
    pub left_out: u64,
    /// Files that were removed after they had been listed.
    pub vanished: u64,
    /// Symbolic links that were not followed.
    pub links: u64,
    pub bytes_sent: u64,
    pub failures: Vec<Failure>,
    pub was_interrupted: bool,
}

/// A file that could not be read, or that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub path: String,
    pub error: String,
    pub sqlstate: Option<String>,
}

impl Tally {
    /// Whether the server has been changed.
    pub fn has_changed(&self) -> bool {
        self.added + self.updated + self.deleted > 0
    }

    pub fn json(&self, took: Duration) -> Value {
        let failures: Vec<Value> = (self.failures.iter())
            .map(
                |failure| json!({"path": failure.path, "error": failure.error, "sqlstate": failure.sqlstate}),
            )
            .collect();
        json!({
            "files": self.files,
            "added": self.added,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "unchanged_failed": self.unchanged_failed,
            "deleted": self.deleted,
            "left_out": self.left_out,
            "vanished": self.vanished,
            "links": self.links,
            "failed": self.failures.len(),
            "failures": failures,
            "bytes_sent": self.bytes_sent,
            "seconds": (took.as_secs_f64() * 1000.0).round() / 1000.0,
            "interrupted": self.was_interrupted,
        })
    }

    /// A line, and a line for each thing that a reader may have to do something about.
    pub fn lines(&self, took: Duration) -> Vec<String> {
        let mut parts = Vec::new();
        for (count, what) in [
            (self.added, "added"),
            (self.updated, "updated"),
            (self.unchanged, "unchanged"),
            (self.deleted, "deleted"),
            (self.failures.len() as u64, "failed"),
        ] {
            if count > 0 {
                parts.push(format!("{} {what}", grouped(count)));
            }
        }
        if parts.is_empty() {
            parts.push("nothing to do".into());
        }
        let mut lines = vec![format!(
            "{}: {}; {} sent in {:.1} s",
            counted(self.files, "file"),
            parts.join(", "),
            size(self.bytes_sent),
            took.as_secs_f64()
        )];
        if self.left_out > 0 {
            lines.push(format!(
                "{} of formats that kb does not read left out; name them or use a pattern to send them",
                counted(self.left_out, "file")
            ));
        }
        if self.links > 0 {
            lines.push(format!("{} not followed (--follow-links)", counted(self.links, "symbolic link")));
        }
        if self.vanished > 0 {
            lines.push(format!("{} removed before being read", counted(self.vanished, "file")));
        }
        if self.unchanged_failed > 0 {
            lines.push(format!(
                "{} unchanged could not be processed by the server; kb.failures says why",
                counted(self.unchanged_failed, "document")
            ));
        }
        if self.was_interrupted {
            lines.push("interrupted; the same command continues".into());
        }
        lines
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes in the unit in which they have at most three digits.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    match unit {
        "bytes" => format!("{bytes} bytes"),
        _ if value < 9.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_short_and_readable() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1000, 1_234_567].map(grouped).each_ref().map(String::as_str)
        );
        for (bytes, text) in
            [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345, "12 kB"), (999_500, "1.0 MB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_summary_names_what_there_is_and_nothing_else() {
        let tally = Tally { files: 3, added: 2, left_out: 1, bytes_sent: 10, ..Tally::default() };
        let lines = tally.lines(Duration::from_millis(1500));
        assert_eq!(lines[0], "3 files: 2 added; 10 bytes sent in 1.5 s");
        assert!(lines.len() == 2 && lines[1].starts_with("1 file of formats"));
        assert_eq!(
            Tally::default().lines(Duration::ZERO)[0],
            "0 files: nothing to do; 0 bytes sent in 0.0 s"
        );
        assert_eq!(tally.json(Duration::ZERO)["added"], 2);
    }
}
