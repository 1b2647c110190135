//! Workbooks of Excel (calamine): each sheet as tables. Hidden sheets, comments, charts and the formulas
//! behind values are left out; the metadata names hidden sheets.

use super::blocks::Blocks;
use super::grid::Grid;
use super::number_format;
use super::package::Package;
use super::properties::{Properties, clean};
use crate::formats::Format;
use calamine::{Data, DataRef, Reader, Sheet, SheetType, SheetVisible, Xls, XlsError, Xlsx, XlsxError};
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};
use std::io::{Cursor, Read};

pub const XLSX: Format = Format {
    content_types: &[
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.template",
        "application/vnd.ms-excel.sheet.macroenabled.12",
        "application/vnd.ms-excel.template.macroenabled.12",
    ],
    extensions: &["xlsx", "xlsm", "xltx", "xltm"],
    is_text: false,
    read: read_xlsx,
};

/// The format of Excel 97 to 2003.
pub const XLS: Format = Format {
    content_types: &["application/vnd.ms-excel"],
    extensions: &["xls", "xlt"],
    is_text: false,
    read: read_xls,
};

fn read_xlsx(file: &File) -> Result<Extraction, Fault> {
    let mut package = Package::open(&file.bytes)?;
    let mut properties = Properties::of_office(&mut package)?;
    // The library unpacks without limits.
    package.check_all()?;
    let mut workbook = Xlsx::new(Cursor::new(&file.bytes[..])).map_err(|error| xlsx_fault(&error))?;
    let mut blocks = Blocks::of_document(file.max_text);
    for name in visible(workbook.sheets_metadata(), &mut properties) {
        let grid = match read_sheet(&mut workbook, &name, file.max_text) {
            Ok(grid) => grid?,
            Err(XlsxError::NotAWorksheet(_)) => continue,
            Err(error) => return Err(xlsx_fault(&error)),
        };
        write(grid, name, &mut blocks)?;
    }
    blocks.into_extraction(properties.title, properties.metadata, package.has("/media/"))
}

type Workbook<'a> = Xlsx<Cursor<&'a [u8]>>;

/// The cells of a sheet. What the library cannot read, and a fault of the sheet, are told apart.
fn read_sheet(
    workbook: &mut Workbook,
    name: &str,
    max_text: usize,
) -> Result<Result<Grid, Fault>, XlsxError> {
    let mut cells = workbook.worksheet_cells_reader(name)?;
    let codes: Vec<Option<String>> = cells
        .styles()
        .iter()
        .map(|style| style.number_format.as_ref().map(|format| format.format_code.clone()))
        .collect();
    let mut grid = Grid::new(max_text);
    while let Some((cell, style)) = cells.next_cell_with_style_id()? {
        let (row, column) = cell.get_position();
        let code = codes.get(style).and_then(Option::as_deref);
        let text = match cell.get_value() {
            DataRef::Empty => continue,
            DataRef::SharedString(text) => text.to_string(),
            DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.clone(),
            DataRef::Int(value) => number_format::number(*value as f64, code.unwrap_or("General")),
            DataRef::Float(value) => number_format::number(*value, code.unwrap_or("General")),
            DataRef::Bool(value) => boolean(*value),
            DataRef::DateTime(value) => number_format::date(value, code),
            DataRef::Error(error) => error.to_string(),
        };
        if let Err(fault) = grid.push(row.into(), column, text) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(grid))
}

/// The most cells, empty ones included, of the rectangles around the cells of all sheets in the old format.
/// The library keeps about 60 bytes for each.
const SPAN: u64 = 4_000_000;

/// Refuses a workbook in the old format whose sheets have few cells far apart, or claim to have many: the
/// library keeps the whole rectangle around them. What cannot be read here, the library reports.
fn check_span(bytes: &[u8]) -> Result<(), Fault> {
    let Ok(mut compound) = cfb::CompoundFile::open(Cursor::new(bytes)) else { return Ok(()) };
    let name = ["Workbook", "Book"].into_iter().find(|name| compound.is_stream(name));
    let Some(Ok(stream)) = name.map(|name| compound.open_stream(name)) else { return Ok(()) };
    let mut records = Vec::new();
    if stream.take(bytes.len() as u64).read_to_end(&mut records).is_err() {
        return Ok(());
    }
    let (mut all, mut sheet) = (0u64, Span::default());
    let mut rest = &records[..];
    while let Some(([k0, k1, l0, l1], after)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([*l0, *l1]));
        let Some((data, after)) = after.split_at_checked(length) else { break };
        let number = |at: usize| data.get(at..at + 2).map_or(0, |n| u64::from(n[0]) | u64::from(n[1]) << 8);
        match u16::from_le_bytes([*k0, *k1]) {
            // The file is encrypted from here on.
            0x2f => return Ok(()),
            // A part of the workbook begins.
            0x809 => all = all.saturating_add(std::mem::take(&mut sheet).cells()),
            // What the sheet claims.
            0x200 if length < 14 => all = all.saturating_add(number(2) * number(6)),
            0x200 => all = all.saturating_add((number(4) | number(6) << 16) * number(10)),
            // A cell with a value, or several in a row.
            0x203 | 0x204 | 0xd6 | 0x205 | 0x06 | 0x27e | 0xfd => sheet.add(number(0), number(2), number(2)),
            0xbd => sheet.add(number(0), number(2), number(length.saturating_sub(2))),
            _ => {}
        }
        rest = after;
    }
    match all.saturating_add(sheet.cells()) > 2 * SPAN {
        true => Err(Fault::TooLarge(format!("its sheets span more than {SPAN} cells"))),
        false => Ok(()),
    }
}

/// The rectangle around some cells.
#[derive(Default)]
struct Span {
    /// The first and last row and column.
    around: Option<[u64; 4]>,
}

impl Span {
    fn add(&mut self, row: u64, from: u64, to: u64) {
        let [top, bottom, left, right] = self.around.unwrap_or([row, row, from, to]);
        self.around = Some([top.min(row), bottom.max(row), left.min(from), right.max(to)]);
    }

    fn cells(&self) -> u64 {
        self.around
            .map_or(0, |[top, bottom, left, right]| (bottom - top + 1) * (right.saturating_sub(left) + 1))
    }
}

fn read_xls(file: &File) -> Result<Extraction, Fault> {
    check_span(&file.bytes)?;
    let mut workbook = Xls::new(Cursor::new(&file.bytes[..])).map_err(|error| xls_fault(&error))?;
    let mut properties = Properties::default();
    if let Ok(found) = workbook.workbook_properties() {
        for (key, value) in [
            ("title", found.title),
            ("author", found.creator),
            ("created", found.created),
            ("modified", found.modified),
            ("subject", found.subject),
            ("description", found.description),
            ("keywords", found.keywords),
        ] {
            properties.add(key, &value.unwrap_or_default());
        }
    }
    let mut blocks = Blocks::of_document(file.max_text);
    for name in visible(workbook.sheets_metadata(), &mut properties) {
        let range = workbook.worksheet_range(&name).map_err(|error| xls_fault(&error))?;
        let (first_row, first_column) = range.start().unwrap_or_default();
        let mut grid = Grid::new(file.max_text);
        for (row, column, value) in range.used_cells() {
            let text = match value {
                Data::Empty => continue,
                Data::String(text) | Data::DateTimeIso(text) | Data::DurationIso(text) => text.clone(),
                Data::Int(value) => value.to_string(),
                Data::Float(value) => number_format::general(*value),
                Data::Bool(value) => boolean(*value),
                Data::DateTime(value) => number_format::date(value, None),
                Data::Error(error) => error.to_string(),
            };
            grid.push(u64::from(first_row) + row as u64, first_column.saturating_add(column as u32), text)?;
        }
        write(grid, name, &mut blocks)?;
    }
    blocks.into_extraction(properties.title, properties.metadata, false)
}

/// The names of the sheets that a reader sees. Those of hidden ones become metadata.
fn visible(sheets: &[Sheet], properties: &mut Properties) -> Vec<String> {
    let sheets = sheets.iter().filter(|sheet| sheet.typ == SheetType::WorkSheet);
    let (visible, hidden): (Vec<_>, Vec<_>) =
        sheets.partition(|sheet| sheet.visible == SheetVisible::Visible);
    if !hidden.is_empty() {
        let names: Vec<String> = hidden.iter().map(|sheet| clean(&sheet.name)).collect();
        properties.metadata.insert("hidden_sheets".into(), names.into());
    }
    visible.iter().map(|sheet| sheet.name.clone()).collect()
}

/// Adds a sheet, unless it has no text.
pub fn write(grid: Grid, name: String, to: &mut Blocks) -> Result<(), Fault> {
    if grid.is_empty() {
        return Ok(());
    }
    to.begin(Mark::Sheet(clean(&name)))?;
    grid.write(to)
}

fn boolean(value: bool) -> String {
    if value { "TRUE" } else { "FALSE" }.into()
}

fn xlsx_fault(error: &XlsxError) -> Fault {
    match error {
        XlsxError::Password => Fault::Encrypted,
        error => Fault::Broken(format!("its workbook cannot be read: {error}")),
    }
}

fn xls_fault(error: &XlsError) -> Fault {
    match error {
        XlsError::Password => Fault::Encrypted,
        error => Fault::Broken(format!("its workbook cannot be read: {error}")),
    }
}

#[cfg(test)]
#[path = "excel_tests.rs"]
mod tests;
