use super::super::archive::{archive, relationships};
use crate::extract;
use kb_types::extraction::{Extraction, Fault, File};

/// A document with this body, with the styles, lists and notes of these tests.
fn document(body: &str) -> Vec<u8> {
    let styles = "<w:styles>
        <w:style w:type='paragraph' w:default='1' w:styleId='Standard'><w:name w:val='Normal'/></w:style>
        <w:style w:type='paragraph' w:styleId='berschrift1'><w:name w:val='heading 1'/><w:basedOn w:val='Standard'/>
          <w:pPr><w:outlineLvl w:val='0'/></w:pPr></w:style>
        <w:style w:type='paragraph' w:styleId='Kapitel'><w:name w:val='Kapitel'/><w:basedOn w:val='berschrift1'/></w:style>
        <w:style w:type='paragraph' w:styleId='Eigen'><w:name w:val='Eigen'/><w:pPr><w:outlineLvl w:val='2'/></w:pPr></w:style>
        <w:style w:type='paragraph' w:styleId='Titel'><w:name w:val='Title'/></w:style>
        <w:style w:type='paragraph' w:styleId='Verzeichnis1'><w:name w:val='toc 1'/></w:style>
        <w:style w:type='paragraph' w:styleId='Kreis'><w:name w:val='Kreis'/><w:basedOn w:val='Kreis'/></w:style>
        <w:style w:type='paragraph' w:styleId='Liste'><w:name w:val='List'/>
          <w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr></w:style>
      </w:styles>";
    let numbering = "<w:numbering>
        <w:abstractNum w:abstractNumId='7'>
          <w:lvl w:ilvl='0'><w:start w:val='1'/><w:numFmt w:val='decimal'/></w:lvl>
          <w:lvl w:ilvl='1'><w:start w:val='1'/><w:numFmt w:val='bullet'/></w:lvl></w:abstractNum>
        <w:abstractNum w:abstractNumId='8'><w:lvl w:ilvl='0'><w:numFmt w:val='bullet'/></w:lvl></w:abstractNum>
        <w:num w:numId='1'><w:abstractNumId w:val='7'/></w:num>
        <w:num w:numId='2'><w:abstractNumId w:val='8'/></w:num>
        <w:num w:numId='3'><w:abstractNumId w:val='7'/>
          <w:lvlOverride w:ilvl='0'><w:startOverride w:val='1'/></w:lvlOverride></w:num>
      </w:numbering>";
    let footnotes = "<w:footnotes><w:footnote w:type='separator' w:id='-1'><w:p/></w:footnote>
        <w:footnote w:id='2'><w:p><w:r><w:footnoteRef/></w:r><w:r><w:t>first note</w:t></w:r></w:p></w:footnote>
      </w:footnotes>";
    let endnotes =
        "<w:endnotes><w:endnote w:id='2'><w:p><w:r><w:t>end note</w:t></w:r></w:p></w:endnote></w:endnotes>";
    let core = "<cp:coreProperties><dc:title>Report &amp; more</dc:title><dc:creator>Ada</dc:creator>
        <dcterms:created>2024-03-01T10:00:00Z</dcterms:created><dc:subject> </dc:subject></cp:coreProperties>";
    let body = format!(
        "<?xml version='1.0' encoding='UTF-8'?><w:document><w:body>{body}<w:sectPr/></w:body></w:document>"
    );
    archive(&[
        ("[Content_Types].xml", "<Types/>"),
        (
            "_rels/.rels",
            &relationships(&[
                ("r1", "officeDocument", "word/document.xml"),
                ("r2", "core-properties", "docProps/core.xml"),
            ]),
        ),
        (
            "word/_rels/document.xml.rels",
            &relationships(&[
                ("r1", "styles", "styles.xml"),
                ("r2", "numbering", "numbering.xml"),
                ("r3", "footnotes", "/word/footnotes.xml"),
                ("r4", "endnotes", "endnotes.xml"),
            ]),
        ),
        ("word/document.xml", &body),
        ("word/styles.xml", styles),
        ("word/numbering.xml", numbering),
        ("word/footnotes.xml", footnotes),
        ("word/endnotes.xml", endnotes),
        ("word/header1.xml", "<w:hdr><w:p><w:r><w:t>HEADER</w:t></w:r></w:p></w:hdr>"),
        ("docProps/core.xml", core),
    ])
}

fn read(bytes: Vec<u8>) -> Result<Extraction, Fault> {
    extract(&File { bytes, max_text: 100_000_000, ..File::default() })
}

fn text(body: &str) -> String {
    read(document(body)).unwrap().text
}

fn p(text: &str) -> String {
    format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>")
}

fn styled(style: &str, text: &str) -> String {
    format!("<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
}

fn item(list: u32, level: u32, text: &str) -> String {
    format!(
        "<w:p><w:pPr><w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='{list}'/></w:numPr></w:pPr>
         <w:r><w:t>{text}</w:t></w:r></w:p>"
    )
}

#[test]
fn styles_of_any_language_make_headings() {
    let body = [
        styled("Titel", "Title"),
        styled("Verzeichnis1", "Chapter 1 ... 3"),
        styled("berschrift1", "One"),
        styled("Kapitel", "Two"),
        styled("Eigen", "Three"),
        styled("Kreis", "Text"),
        "<w:p><w:pPr><w:pStyle w:val='berschrift1'/><w:outlineLvl w:val='9'/></w:pPr><w:r><w:t>No</w:t></w:r></w:p>".into(),
    ];
    assert_eq!(text(&body.concat()), "# Title\n\n# One\n\n# Two\n\n### Three\n\nText\n\nNo");
}

#[test]
fn title_author_and_dates_are_known_and_headers_left_out() {
    let found = read(document(&p("a &lt;b&gt; *c*"))).unwrap();
    assert_eq!(found.content_type, "application/vnd.openxmlformats-officedocument.wordprocessingml.document");
    assert_eq!((found.text.as_str(), found.text_type.as_str()), ("a \\<b> \\*c*", "text/markdown"));
    assert_eq!(found.title.as_deref(), Some("Report & more"));
    let expected = serde_json::json!({"author": "Ada", "created": "2024-03-01T10:00:00Z"});
    assert_eq!(serde_json::Value::Object(found.metadata), expected);
}

#[test]
fn lists_are_nested_and_count_on_after_text_between_items() {
    let body = [
        item(1, 0, "a"),
        item(1, 1, "a1"),
        item(1, 1, "a2"),
        item(1, 0, "b"),
        p("between"),
        item(1, 0, "c"),
        item(3, 0, "again"),
        styled("Liste", "dot"),
        item(0, 0, "none"),
    ];
    let expected = "1. a\n   - a1\n   - a2\n2. b\n\nbetween\n\n3. c\n\n1. again\n\n- dot\n\nnone";
    assert_eq!(text(&body.concat()), expected);
}

#[test]
fn merged_cells_keep_their_columns_and_paragraphs_of_a_cell_stay_in_its_row() {
    let cell =
        |properties: &str, content: &str| format!("<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>");
    let rows = [
        cell("<w:gridSpan w:val='2'/>", &p("wide")) + &cell("", &p("c")),
        cell("<w:vMerge w:val='restart'/>", &p("tall"))
            + &cell("", &(p("x") + &p("y")))
            + &cell("", &item(2, 0, "z")),
        cell("<w:vMerge/>", "<w:p/>") + &cell("", &p("u")) + &cell("", &p("v | w")),
    ];
    let rows: String = rows.iter().map(|row| format!("<w:tr>{row}</w:tr>")).collect();
    let deleted =
        format!("<w:tr><w:trPr><w:del w:id='1'/></w:trPr>{}</w:tr>", cell("", &p("gone")).repeat(3));
    let table = format!("<w:tbl><w:tblPr/><w:tblGrid/>{rows}{deleted}</w:tbl>");
    assert_eq!(
        text(&(p("before") + &table + &p("after"))),
        "before\n\n| wide |  | c |\n| tall | x y | z |\n|  | u | v \\| w |\n\nafter"
    );
}

#[test]
fn notes_follow_the_paragraph_that_refers_to_them() {
    let body =
        "<w:p><w:r><w:t>a</w:t></w:r><w:r><w:footnoteReference w:id='2'/></w:r><w:r><w:t> b</w:t></w:r>
        <w:r><w:endnoteReference w:id='2'/></w:r></w:p>";
    let found = text(&(body.to_string() + &p("c")));
    assert_eq!(found.replace('\\', ""), "a[1] b[2]\n\n[1] first note\n\n[2] end note\n\nc");
}

#[test]
fn deleted_moved_and_hidden_text_is_left_out_and_inserted_text_kept() {
    let body = "<w:p><w:r><w:t xml:space='preserve'>a </w:t></w:r>
        <w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins>
        <w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom>
        <w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>
        <w:r><w:fldChar w:fldCharType='begin'/><w:instrText>PAGE</w:instrText></w:r></w:p>";
    assert_eq!(text(body), "a inserted");
}

#[test]
fn text_boxes_and_alternatives_are_read_once() {
    let shape = format!("<w:txbxContent>{}</w:txbxContent>", p("boxed"));
    let body = format!(
        "<w:p><w:r><w:t>a</w:t></w:r><w:r><mc:AlternateContent>
         <mc:Choice Requires='wps'><w:drawing><wp:docPr id='1' name='n' descr='A cat'/>{shape}</w:drawing></mc:Choice>
         <mc:Fallback><w:pict>{shape}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
    );
    assert_eq!(text(&body), "aA cat\n\nboxed");
}

#[test]
fn breaks_tabs_hyphens_and_links_are_read_as_they_look() {
    let body = "<w:p><w:hyperlink r:id='r9'><w:r><w:t>link</w:t></w:r></w:hyperlink><w:r><w:tab/><w:t>a</w:t><w:br/>
        <w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t><w:softHyphen/><w:t>d\u{ad}e</w:t></w:r>
        <w:sdt><w:sdtPr><w:alias w:val='no'/></w:sdtPr><w:sdtContent><w:r><w:t>f&#0;&#xfeff;&unknown;</w:t></w:r></w:sdtContent></w:sdt></w:p>";
    assert_eq!(text(body), "link a\nb-cdef");
}

#[test]
fn broken_and_hostile_documents_are_faults() {
    let fault = |body: &str| read(document(body)).unwrap_err();
    assert!(matches!(fault("<w:p><w:r>"), Fault::Broken(_)));
    assert!(matches!(fault(&"<w:sdt>".repeat(10_000)), Fault::Broken(problem) if problem.contains("deep")));
    let table = "<w:tbl><w:tr><w:tc>";
    assert!(matches!(fault(&table.repeat(10_000)), Fault::Broken(_)));
    // Nobody expands entities that a document defines.
    let bomb = "<!DOCTYPE a [<!ENTITY b 'bbbb'>]><w:document><w:body><w:p><w:r><w:t>a&b;</w:t></w:r></w:p></w:body></w:document>";
    let bytes = archive(&[("[Content_Types].xml", ""), ("word/document.xml", bomb)]);
    assert_eq!(read(bytes).unwrap().text, "a");
    let bytes = archive(&[("[Content_Types].xml", ""), ("word/other.xml", "")]);
    assert_eq!(read(bytes), Err(Fault::Broken("it has no part \"word/document.xml\"".into())));
    let bytes =
        archive(&[("[Content_Types].xml", ""), ("word/document.xml", "<a/>"), ("word/media/a.png", "")]);
    assert_eq!(read(bytes), Err(Fault::ImagesOnly));
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let bytes = archive(&[("[Content_Types].xml", ""), ("word/document.xml", &" ".repeat((64 << 20) + 1))]);
    assert!(bytes.len() < 1 << 20);
    assert!(matches!(read(bytes), Err(Fault::TooLarge(_))));
    let body = p("some words").repeat(1000);
    let file = File { bytes: document(&body), max_text: 5_000, ..File::default() };
    assert!(matches!(extract(&file), Err(Fault::TooLarge(_))));
}

#[test]
fn long_tables_and_lists_stay_whole_though_they_are_converted_in_pieces() {
    let row =
        |i: usize| format!("<w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>", p(&format!("row {i}")), p("x"));
    let rows: String = (0..20_000).map(row).collect();
    let items: String = (0..20_000).map(|i| item(1, 0, &format!("item {i}"))).collect();
    let found = text(&(format!("<w:tbl>{rows}</w:tbl>") + &items + &p("end")));
    let table: String = (0..20_000).map(|i| format!("| row {i} | x |\n")).collect();
    let list: String = (0..20_000).map(|i| format!("{}. item {i}\n", i + 1)).collect();
    // Numbers of different lengths are aligned.
    let words = |text: &str| {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert!(words(&found) == words(&format!("{table}\n{list}\nend")), "{}", &found[..200]);
}
