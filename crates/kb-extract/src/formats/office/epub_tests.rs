use super::super::archive::archive;
use super::as_html;
use crate::extract;
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};

const CONTAINER: &str =
    "<container><rootfiles><rootfile full-path='OEBPS/book.opf'/></rootfiles></container>";

fn read(bytes: Vec<u8>) -> Result<Extraction, Fault> {
    extract(&File { bytes, max_text: 10_000_000, ..File::default() })
}

fn book(extra: &[(&str, &str)]) -> Vec<u8> {
    let opf = "<package><metadata><dc:title>The Book</dc:title><dc:creator>A. Author</dc:creator><dc:creator>B. Author</dc:creator>
        <dc:language>en</dc:language><dc:date>1999</dc:date><meta property='dcterms:modified'>2024-03-01T00:00:00Z</meta></metadata>
        <manifest><item id='nav' href='nav.xhtml' media-type='application/xhtml+xml' properties='nav'/>
        <item id='b' href='text/two%20b.xhtml' media-type='application/xhtml+xml'/>
        <item id='a' href='text/one.xhtml' media-type='application/xhtml+xml'/>
        <item id='c' href='text/three.xhtml' media-type='application/xhtml+xml'/>
        <item id='i' href='cover.png' media-type='image/png'/></manifest>
        <spine><itemref idref='nav'/><itemref idref='a'/><itemref idref='b'/><itemref idref='c'/><itemref idref='missing'/></spine></package>";
    let nav = "<html><body><nav><ol><li><a href='text/one.xhtml#x'>Chapter <b>One</b></a></li>
        <li><a href='text/one.xhtml#y'>Later</a></li></ol></nav></body></html>";
    let one = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='x'/></head>
        <body><h1>1</h1><p>caf&eacute;&nbsp;&amp; a<a id='p1'/>b</p><aside><p>note</p></aside></body></html>";
    let two = "<html><head><title>two</title></head><body><h2>A heading</h2><p>text</p></body></html>";
    let three = "<html><body><p>more text</p></body></html>";
    let mut parts = vec![
        ("mimetype", "application/epub+zip"),
        ("META-INF/container.xml", CONTAINER),
        ("OEBPS/book.opf", opf),
        ("OEBPS/nav.xhtml", nav),
        ("OEBPS/text/one.xhtml", one),
        ("OEBPS/text/two b.xhtml", two),
        ("OEBPS/text/three.xhtml", three),
    ];
    parts.extend(extra);
    archive(&parts)
}

#[test]
fn chapters_are_in_the_order_of_the_book_with_titles() {
    let found = read(book(&[])).unwrap();
    let one = "# 1\n\ncafé & ab\n\nnote";
    let two = "## A heading\n\ntext";
    assert_eq!(found.text, format!("{one}\n\n{two}\n\nmore text"));
    let marks: Vec<(usize, Mark)> =
        found.marks.into_iter().map(|marked| (marked.offset, marked.mark)).collect();
    let chapters =
        [(0, Mark::Chapter("Chapter One".into())), (one.len() + 2, Mark::Chapter("A heading".into()))];
    assert_eq!(marks, chapters);
    assert_eq!(found.title.as_deref(), Some("The Book"));
    let expected = serde_json::json!({"author": "A. Author, B. Author", "language": "en", "published": "1999",
        "modified": "2024-03-01T00:00:00Z"});
    assert_eq!(serde_json::Value::Object(found.metadata), expected);
}

#[test]
fn only_encrypted_text_makes_a_book_unreadable() {
    let encrypted = |uri: &str| {
        format!(
            "<encryption><EncryptedData><CipherData><CipherReference URI='{uri}'/></CipherData></EncryptedData></encryption>"
        )
    };
    let font = encrypted("OEBPS/font.otf");
    assert!(read(book(&[("META-INF/encryption.xml", &font)])).is_ok());
    let text = encrypted("OEBPS/text/one.xhtml");
    assert_eq!(read(book(&[("META-INF/encryption.xml", &text)])), Err(Fault::Encrypted));
}

#[test]
fn broken_books_are_faults() {
    let parts = [("mimetype", "application/epub+zip"), ("META-INF/container.xml", CONTAINER)];
    assert!(matches!(read(archive(&parts[..1])), Err(Fault::Broken(_))));
    assert!(
        matches!(read(archive(&parts)), Err(Fault::Broken(problem)) if problem.contains("OEBPS/book.opf"))
    );
}

#[test]
fn pages_that_are_not_well_formed_stay_as_they_are() {
    assert_eq!(as_html("<p>a<br/>b<i/></p>"), "<p >a<br >b<i ></i></p>");
    assert_eq!(as_html("<p>a</b>"), "<p>a</b>");
}
