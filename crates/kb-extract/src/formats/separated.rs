//! Tables in CSV and TSV, which become CSV with commas and a line for each row.

use super::Format;
use crate::charset;
use csv::{ReaderBuilder, StringRecord, WriterBuilder};
use kb_types::extraction::{Extraction, Fault, File};
use std::collections::BTreeMap;

pub const CSV: Format = Format {
    content_types: &["text/csv", "application/csv", "text/x-csv"],
    extensions: &["csv"],
    is_text: true,
    read: |file| read(file, None),
};

pub const TSV: Format = Format {
    content_types: &["text/tab-separated-values"],
    extensions: &["tsv", "tab"],
    is_text: true,
    read: |file| read(file, Some(b'\t')),
};

/// What separates the values, the most likely first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Stands for no delimiter: no text has it.
const NONE: u8 = 0;
/// How many rows decide what separates the values.
const VOTERS: usize = 200;

fn read(file: &File, delimiter: Option<u8>) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let mut metadata = decoded.metadata();
    let broken = |problem: String| Fault::Broken(format!("its rows cannot be read: {problem}"));
    // Spreadsheets say in the first line what separates the values.
    let named = decoded.text.strip_prefix("sep=").and_then(|rest| {
        let (name, rest) = rest.split_once('\n')?;
        let [name] = name.as_bytes() else { return None };
        Some((*name, rest))
    });
    let (delimiter, text) = match named {
        Some((name, rest)) => (name, rest),
        None => (delimiter.unwrap_or_else(|| vote(&decoded.text)), decoded.text.as_str()),
    };
    let mut writer = WriterBuilder::new().flexible(true).from_writer(Vec::new());
    let (mut rows, mut columns) = (0usize, 0);
    for record in reader(text, delimiter).records() {
        let record = record.map_err(|error| broken(error.to_string()))?;
        let values: Vec<String> = record.iter().map(one_line).collect();
        if values.iter().all(|value| value.trim().is_empty()) {
            continue;
        }
        writer.write_record(&values).map_err(|error| broken(error.to_string()))?;
        rows += 1;
        columns = columns.max(values.len());
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
    // The first row has the names of the columns.
    metadata.insert("rows".into(), rows.saturating_sub(1).into());
    metadata.insert("columns".into(), columns.into());
    Ok(Extraction { text_type: "text/csv".into(), text, metadata, ..Extraction::default() })
}

fn reader(text: &str, delimiter: u8) -> csv::Reader<&[u8]> {
    ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes())
}

/// A value without line breaks.
fn one_line(value: &str) -> String {
    if !value.contains('\n') {
        return value.to_string();
    }
    let lines = value.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// What separates the values: that by which the most rows, and at least half of them, have the same number of
/// values, and more than one.
fn vote(text: &str) -> u8 {
    let mut elected = (0, 0, NONE);
    for delimiter in DELIMITERS {
        let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
        let is_blank = |record: &StringRecord| record.iter().all(|value| value.trim().is_empty());
        for record in reader(text, delimiter).records().take(VOTERS).flatten() {
            if !is_blank(&record) {
                *rows.entry(record.len()).or_default() += 1;
            }
        }
        let all: usize = rows.values().sum();
        let most = rows.into_iter().filter(|(values, _)| *values > 1).max_by_key(|(_, rows)| *rows);
        if let Some((values, rows)) = most
            && 2 * rows >= all
            && (rows, values) > (elected.0, elected.1)
        {
            elected = (rows, values, delimiter);
        }
    }
    elected.2
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str, name: &str) -> Extraction {
        let file =
            File { name: Some(name.into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file).unwrap()
    }

    #[test]
    fn what_separates_the_values_is_found_in_the_file() {
        for (given, expected) in [
            ("a,b\n\"x, y\",2\n", "a,b\n\"x, y\",2\n"),
            ("a;b\n1,5;2,5\n3,5;4,5\n", "a,b\n\"1,5\",\"2,5\"\n\"3,5\",\"4,5\"\n"),
            ("a\tb\nx, y\tz\n", "a,b\n\"x, y\",z\n"),
            ("name|note\nA|one, two\nB|three\n", "name,note\nA,\"one, two\"\nB,three\n"),
            ("sep=;\na;b\n", "a,b\n"),
            ("one column\nsome, words\nmore\n", "one column\n\"some, words\"\nmore\n"),
        ] {
            assert_eq!(of(given, "a.csv").text, expected);
        }
        assert_eq!(of("a,b\tc\n1,5\t2\n", "a.tsv").text, "\"a,b\",c\n\"1,5\",2\n");
    }

    #[test]
    fn each_row_is_a_line_and_keeps_its_values_as_they_are() {
        let found = of(
            "id,note\r\n0012345678901234567890,\"two\r\n  lines \"\"q\"\"\"\r\n,,\r\n\r\n3,5\" pipe,more\r\n",
            "a.csv",
        );
        assert_eq!(
            found.text,
            "id,note\n0012345678901234567890,\"two lines \"\"q\"\"\"\n3,\"5\"\" pipe\",more\n"
        );
        assert_eq!((&found.metadata["rows"], &found.metadata["columns"]), (&json!(2), &json!(3)));
        assert_eq!((found.content_type.as_str(), found.text_type.as_str()), ("text/csv", "text/csv"));
        assert_eq!(of("", "a.csv").text, "");
        assert!(of("a,\"b\nc,d\n", "a.csv").text.contains("c,d"));
    }
}
