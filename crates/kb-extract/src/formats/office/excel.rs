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
use std::io::Cursor;

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

fn read_xls(file: &File) -> Result<Extraction, Fault> {
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
