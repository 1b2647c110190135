use super::super::archive::{archive, relationships};
use crate::extract;
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};

/// A workbook with these sheets: name, state and rows.
fn workbook(sheets: &[(&str, &str, &str)]) -> Vec<u8> {
    let entries: String = (1..)
        .zip(sheets)
        .map(|(id, (name, state, _))| {
            format!("<sheet name='{name}' sheetId='{id}' state='{state}' r:id='r{id}'/>")
        })
        .collect();
    let ids: Vec<(String, String)> =
        (1..=sheets.len()).map(|id| (format!("r{id}"), format!("worksheets/sheet{id}.xml"))).collect();
    let mut related: Vec<(&str, &str, &str)> =
        ids.iter().map(|(id, target)| (id.as_str(), "worksheet", target.as_str())).collect();
    related.extend([("s", "styles", "styles.xml"), ("t", "sharedStrings", "sharedStrings.xml")]);
    let namespaces = "xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main'
        xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'";
    let styles = format!(
        "<styleSheet {namespaces}><numFmts><numFmt numFmtId='200' formatCode='#,##0.00\" EUR\"'/></numFmts>
         <cellXfs><xf numFmtId='0'/><xf numFmtId='14'/><xf numFmtId='10'/><xf numFmtId='200'/></cellXfs></styleSheet>"
    );
    let mut parts = vec![
        ("[Content_Types].xml".to_string(), "<Types/>".to_string()),
        ("_rels/.rels".into(), relationships(&[("r1", "officeDocument", "xl/workbook.xml")])),
        ("xl/workbook.xml".into(), format!("<workbook {namespaces}><sheets>{entries}</sheets></workbook>")),
        ("xl/_rels/workbook.xml.rels".into(), relationships(&related)),
        ("xl/styles.xml".into(), styles),
        ("xl/sharedStrings.xml".into(), format!("<sst {namespaces}><si><t>shared | text</t></si></sst>")),
    ];
    for (id, (_, _, rows)) in (1..).zip(sheets) {
        let sheet = format!("<worksheet {namespaces}><sheetData>{rows}</sheetData></worksheet>");
        parts.push((format!("xl/worksheets/sheet{id}.xml"), sheet));
    }
    let parts: Vec<(&str, &str)> = parts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    archive(&parts)
}

fn read(bytes: Vec<u8>) -> Result<Extraction, Fault> {
    extract(&File { bytes, max_text: 10_000_000, ..File::default() })
}

fn string(place: &str, text: &str) -> String {
    format!("<c r='{place}' t='inlineStr'><is><t>{text}</t></is></c>")
}

#[test]
fn sheets_are_tables_with_values_as_they_are_shown() {
    let rows = format!(
        "<row r='1'>{}{}{}</row><row r='2'><c r='A2' t='s'><v>0</v></c><c r='B2' s='1'><v>45352</v></c>
         <c r='C2' s='2'><v>0.125</v></c></row><row r='3'><c r='A3' s='3'><f>1+1</f><v>1234.5</v></c>
         <c r='B3' t='b'><v>1</v></c><c r='C3' t='e'><v>#N/A</v></c></row>",
        string("A1", "Name"),
        string("B1", "Day"),
        string("C1", "Share")
    );
    let found = read(workbook(&[
        ("Prices", "visible", &rows),
        ("Empty", "visible", ""),
        ("Secret", "hidden", &format!("<row r='1'>{}</row>", string("A1", "hidden text"))),
        ("Notes &amp; more", "visible", &format!("<row r='9'>{}</row>", string("C9", "only one"))),
    ]))
    .unwrap();
    assert_eq!(
        found.text,
        "| Name | Day | Share |\n| shared \\| text | 2024-03-01 | 12.50% |\n| 1,234.50 EUR | TRUE | #N/A |\n\nonly one"
    );
    let marks: Vec<(usize, Mark)> =
        found.marks.into_iter().map(|marked| (marked.offset, marked.mark)).collect();
    let second = found.text.find("only").unwrap();
    assert_eq!(marks, [(0, Mark::Sheet("Prices".into())), (second, Mark::Sheet("Notes & more".into()))]);
    assert_eq!(found.metadata["hidden_sheets"], serde_json::json!(["Secret"]));
}

#[test]
fn a_cell_in_the_last_row_and_column_costs_nothing() {
    let rows = format!(
        "<row r='1'>{}{}</row><row r='1048576'>{}</row>",
        string("A1", "first"),
        string("C1", "third"),
        string("XFD1048576", "last")
    );
    assert_eq!(read(workbook(&[("S", "visible", &rows)])).unwrap().text, "| first | third |\n\nlast");
}

#[test]
fn rows_and_cells_in_any_order_are_put_in_order() {
    let rows = format!(
        "<row r='2'>{}{}</row><row r='1'>{}{}</row>",
        string("B2", "d"),
        string("A2", "c"),
        string("A1", "a"),
        string("B1", "b")
    );
    assert_eq!(read(workbook(&[("S", "visible", &rows)])).unwrap().text, "| a | b |\n| c | d |");
}

#[test]
fn broken_workbooks_are_faults() {
    let broken = |result: Result<Extraction, Fault>| matches!(result, Err(Fault::Broken(_)));
    assert!(broken(read(archive(&[("[Content_Types].xml", ""), ("xl/workbook.xml", "<workbook>")]))));
    assert!(broken(read(workbook(&[("S", "visible", "<row r='1'><c r='A1'><v>1</v>")]))));
    let bytes = [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec(), vec![0; 1000]].concat();
    assert!(read(bytes).is_err());
}

/// A workbook in the old format, with one sheet of these records.
fn old(records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (kind, data) in [(0x809, vec![0, 6, 16, 0, 0, 0, 0, 0])].iter().chain(records) {
        stream.extend(kind.to_le_bytes());
        stream.extend((data.len() as u16).to_le_bytes());
        stream.extend(data);
    }
    let mut compound = cfb::CompoundFile::create(std::io::Cursor::new(Vec::new())).unwrap();
    std::io::Write::write_all(&mut compound.create_stream("Workbook").unwrap(), &stream).unwrap();
    compound.into_inner().into_inner()
}

#[test]
fn an_old_workbook_whose_cells_are_far_apart_is_too_large() {
    let number = |row: u16, column: u16| {
        let mut data = [row.to_le_bytes(), column.to_le_bytes(), [0, 0]].concat();
        data.extend(1f64.to_le_bytes());
        (0x203, data)
    };
    let claimed = |rows: u32, columns: u16| {
        let mut data = [0u32.to_le_bytes(), rows.to_le_bytes()].concat();
        data.extend([0, 0]);
        data.extend(columns.to_le_bytes());
        data.extend([0, 0]);
        (0x200, data)
    };
    let too_large = |records: &[(u16, Vec<u8>)]| matches!(read(old(records)), Err(Fault::TooLarge(_)));
    assert!(too_large(&[number(0, 0), number(65_535, 255)]));
    assert!(too_large(&[claimed(u32::MAX, 256)]));
    assert!(too_large(&[(0xbd, vec![0; 6]), (0xbd, vec![255, 255, 0, 0, 255, 0])]));
    assert!(!too_large(&[claimed(65_536, 20), number(0, 0), number(65_535, 19)]));
}
