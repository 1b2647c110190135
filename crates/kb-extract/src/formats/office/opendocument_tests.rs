use super::super::archive::archive;
use crate::extract;
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};

fn read(bytes: Vec<u8>) -> Result<Extraction, Fault> {
    extract(&File { bytes, max_text: 10_000_000, ..File::default() })
}

/// A file of this kind ("text", "spreadsheet", "presentation") with this body.
fn file(kind: &str, styles: &str, body: &str) -> Vec<u8> {
    let meta = "<office:document-meta><office:meta><dc:title>A title</dc:title><dc:creator>Last</dc:creator>
        <meta:initial-creator>First</meta:initial-creator><dc:date>2024-03-02T10:00:00</dc:date>
        <meta:keyword>a</meta:keyword><meta:keyword>b</meta:keyword></office:meta></office:document-meta>";
    let content = format!(
        "<office:document-content><office:automatic-styles>{styles}</office:automatic-styles>
         <office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    );
    let styles = "<office:document-styles><office:styles><text:list-style style:name='Numbers'>
        <text:list-level-style-number text:level='1' style:num-format='1'/>
        <text:list-level-style-bullet text:level='2'/></text:list-style></office:styles>
        <office:master-styles><style:master-page><style:header><text:p>HEADER</text:p></style:header></style:master-page>
        </office:master-styles></office:document-styles>";
    archive(&[
        ("mimetype", &format!("application/vnd.oasis.opendocument.{kind}")),
        ("META-INF/manifest.xml", "<manifest:manifest/>"),
        ("meta.xml", meta),
        ("styles.xml", styles),
        ("content.xml", &content),
    ])
}

#[test]
fn headings_lists_notes_and_tables_are_read() {
    let styles = "<style:style style:name='P1' style:parent-style-name='Title'/>";
    let body = "<text:tracked-changes><text:deletion><text:p>deleted</text:p></text:deletion></text:tracked-changes>
        <text:table-of-content><text:index-body><text:p>One ... 1</text:p></text:index-body></text:table-of-content>
        <text:p text:style-name='P1'>The title</text:p>
        <text:h text:outline-level='2'>One</text:h>
        <text:p>a<text:s text:c='3'/>b<text:line-break/>c<text:note><text:note-citation>7</text:note-citation>
          <text:note-body><text:p>the note</text:p></text:note-body></text:note><office:annotation><text:p>comment</text:p></office:annotation></text:p>
        <text:list text:style-name='Numbers'>
          <text:list-item><text:p>first</text:p><text:list><text:list-item><text:p>deeper</text:p></text:list-item></text:list></text:list-item>
          <text:list-item><text:p>second</text:p></text:list-item></text:list>
        <text:p>between</text:p>
        <text:list text:style-name='Numbers' text:continue-numbering='true'><text:list-item><text:p>third</text:p></text:list-item></text:list>
        <table:table><table:table-column/><table:table-header-rows><table:table-row>
          <table:table-cell table:number-columns-spanned='2'><text:p>wide</text:p></table:table-cell><table:covered-table-cell/>
          <table:table-cell><text:p>x</text:p><text:p>y</text:p></table:table-cell></table:table-row></table:table-header-rows>
          <table:table-row><table:table-cell table:number-columns-repeated='3'><text:p>z</text:p></table:table-cell></table:table-row></table:table>
        <text:p><draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame>
          <draw:frame><draw:image/><svg:desc>A cat</svg:desc></draw:frame></text:p>";
    let found = read(file("text", styles, body)).unwrap();
    assert_eq!(found.content_type, "application/vnd.oasis.opendocument.text");
    assert_eq!(
        found.text.replace('\\', ""),
        "# The title\n\n## One\n\na b\nc[1]\n\n[1] the note\n\n1. first\n   - deeper\n2. second\n\nbetween\n\n3. third\n\n\
         | wide |  | x y |\n| z | z | z |\n\nA cat\n\nboxed"
    );
    assert_eq!(found.title.as_deref(), Some("A title"));
    let expected =
        serde_json::json!({"author": "First", "modified": "2024-03-02T10:00:00", "keywords": "a, b"});
    assert_eq!(serde_json::Value::Object(found.metadata), expected);
}

fn cell(text: &str) -> String {
    format!("<table:table-cell office:value='1.5'><text:p>{text}</text:p></table:table-cell>")
}

#[test]
fn sheets_show_what_is_displayed_and_empty_ranges_cost_nothing() {
    let styles =
        "<style:style style:name='hidden'><style:table-properties table:display='false'/></style:style>";
    let body = format!(
        "<table:table table:name='Prices'><table:table-row>{}{}<table:table-cell table:number-columns-repeated='16300'/>{}</table:table-row>
         <table:table-row table:number-rows-repeated='3'>{}{}</table:table-row>
         <table:table-row table:number-rows-repeated='1048000'><table:table-cell table:number-columns-repeated='16384'/></table:table-row>
         <table:table-row>{}</table:table-row></table:table>
         <table:table table:name='Secret' table:style-name='hidden'><table:table-row>{}</table:table-row></table:table>",
        cell("1,50 €"),
        cell("01.03.24"),
        cell("far"),
        cell("a"),
        cell("b"),
        cell("last"),
        cell("hidden text")
    );
    let found = read(file("spreadsheet", styles, &body)).unwrap();
    assert_eq!(found.text, "| 1,50 € | 01.03.24 | far |\n| a | b |  |\n| a | b |  |\n| a | b |  |\n\nlast");
    assert_eq!(found.marks[0].mark, Mark::Sheet("Prices".into()));
    assert_eq!((found.marks.len(), &found.metadata["hidden_sheets"]), (1, &serde_json::json!(["Secret"])));
}

#[test]
fn repeated_text_cannot_fill_the_memory() {
    let row = format!(
        "<table:table-row table:number-rows-repeated='1000000'><table:table-cell table:number-columns-repeated='16384'>\
         <text:p>{}</text:p></table:table-cell></table:table-row>",
        "x".repeat(1000)
    );
    let body = format!("<table:table table:name='S'>{}</table:table>", row.repeat(100));
    assert!(matches!(read(file("spreadsheet", "", &body)), Err(Fault::TooLarge(_))));
    let row = "<table:table-row table:number-rows-repeated='4000000000'><table:table-cell><text:p>x</text:p></table:table-cell></table:table-row>";
    let body = format!("<table:table table:name='S'>{row}</table:table>");
    assert!(matches!(read(file("spreadsheet", "", &body)), Err(Fault::TooLarge(_))));
}

#[test]
fn slides_have_titles_and_notes() {
    let body = "<draw:page><draw:frame presentation:class='outline'><draw:text-box><text:list><text:list-item><text:p>point</text:p>
          </text:list-item></text:list></draw:text-box></draw:frame>
        <draw:frame presentation:class='title'><draw:text-box><text:p>First</text:p></draw:text-box></draw:frame>
        <draw:frame presentation:class='page-number'><draw:text-box><text:p>17</text:p></draw:text-box></draw:frame>
        <presentation:notes><draw:page-thumbnail/><draw:frame presentation:class='notes'><draw:text-box><text:p>say this</text:p>
          </draw:text-box></draw:frame></presentation:notes></draw:page>
        <draw:page><draw:custom-shape><text:p>shape</text:p></draw:custom-shape></draw:page>";
    let found = read(file("presentation", "", body)).unwrap();
    assert_eq!(found.text, "## First\n\n- point\n\nNotes: say this\n\nshape");
    let slides: Vec<Mark> = found.marks.into_iter().map(|marked| marked.mark).collect();
    assert_eq!(slides, [Mark::Slide(1), Mark::Slide(2)]);
}

#[test]
fn encrypted_files_are_named_as_such() {
    let manifest = "<manifest:manifest><manifest:file-entry><manifest:encryption-data/></manifest:file-entry></manifest:manifest>";
    let bytes = archive(&[
        ("mimetype", "application/vnd.oasis.opendocument.text"),
        ("META-INF/manifest.xml", manifest),
        ("content.xml", "garbage"),
    ]);
    assert_eq!(read(bytes), Err(Fault::Encrypted));
}
