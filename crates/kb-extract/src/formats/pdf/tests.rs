use super::*;
use kb_types::Marked;
use std::fmt::Write;
use std::io::Write as _;

const FONT: &str = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>";

/// A file with these objects, numbered from 1. The first is the catalog.
fn pdf(objects: &[Vec<u8>], trailer: &str) -> Vec<u8> {
    let mut bytes = b"%PDF-1.7\n".to_vec();
    let mut table = String::from("0000000000 65535 f \n");
    for (number, object) in (1..).zip(objects) {
        writeln!(table, "{:010} 00000 n ", bytes.len()).unwrap();
        writeln!(bytes, "{number} 0 obj").unwrap();
        bytes.extend(object);
        bytes.extend(b"\nendobj\n");
    }
    let (size, start) = (objects.len() + 1, bytes.len());
    write!(
        bytes,
        "xref\n0 {size}\n{table}trailer<</Size {size}/Root 1 0 R{trailer}>>\nstartxref\n{start}\n%%EOF\n"
    )
    .unwrap();
    bytes
}

fn objects(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn stream(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut object = format!("<<{dictionary}/Length {}>>stream\n", data.len()).into_bytes();
    object.extend(data);
    object.extend(b"\nendstream");
    object
}

/// A file whose pages have these contents, in font F1. Object 3 is the font, and 4 an image.
fn pages(contents: &[Vec<u8>]) -> Vec<u8> {
    let kids: String = (0..contents.len()).map(|page| format!("{} 0 R ", 5 + 2 * page)).collect();
    let mut all = objects(&[
        "<</Type/Catalog/Pages 2 0 R>>",
        &format!("<</Type/Pages/Kids[{kids}]/Count {}>>", contents.len()),
        FONT,
    ]);
    let image = "/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8";
    all.push(stream(image, b"x"));
    for (page, content) in contents.iter().enumerate() {
        let page = format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {} 0 R\
             /Resources<</Font<</F1 3 0 R>>/XObject<</I 4 0 R>>>>>>",
            6 + 2 * page
        );
        all.push(page.into_bytes());
        all.push(content.clone());
    }
    pdf(&all, "")
}

/// The content of a page: texts with their size and place.
fn text(pieces: &[(u32, u32, u32, &str)]) -> Vec<u8> {
    let content = pieces.iter().fold(String::new(), |mut content, (size, x, y, text)| {
        writeln!(content, "BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET").unwrap();
        content
    });
    stream("", content.as_bytes())
}

fn deflated(dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .compression_level(Some(1));
    zip.start_file("x", options).unwrap();
    zip.write_all(data).unwrap();
    let archive = zip.finish().unwrap().into_inner();
    // The data of the only entry: after its header of 30 bytes and its name, up to the directory.
    let directory = archive.windows(4).rposition(|at| at == b"PK\x01\x02").unwrap();
    // FlateDecode wants a header, and this library does without the checksum.
    let mut bytes = vec![0x78, 0x9c];
    bytes.extend(&archive[31..directory]);
    stream(&format!("{dictionary}/Filter/FlateDecode"), &bytes)
}

fn read_bytes(bytes: &[u8]) -> Result<Extraction, Fault> {
    super::read_bytes(bytes.to_vec(), 1_000_000)
}

fn words(found: &Extraction) -> String {
    found.text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const HELLO: (u32, u32, u32, &str) = (12, 72, 720, "Hello there, reader.");

#[test]
fn the_text_of_each_page_begins_at_its_mark() {
    let second = text(&[(12, 72, 720, "A second page.")]);
    let found = read_bytes(&pages(&[text(&[HELLO]), text(&[]), second])).unwrap();
    assert_eq!(
        found.text.split_whitespace().collect::<Vec<_>>().join(" "),
        "Hello there, reader. A second page."
    );
    let third = found.text.find("A second").unwrap();
    let expected = [Marked { offset: 0, mark: Mark::Page(1) }, Marked { offset: third, mark: Mark::Page(3) }];
    assert_eq!(found.marks, expected);
    assert_eq!(found.metadata.get("pages"), Some(&3.into()));
}

#[test]
fn a_larger_line_is_a_heading_and_markup_is_escaped() {
    let found = read_bytes(&pages(&[text(&[
        (24, 72, 760, "Leave of absence"),
        (11, 72, 720, "Ask *your* manager <b>first</b>, in writing and not by telephone."),
        (11, 72, 706, "She answers within a week, and the answer is kept for three years."),
    ])]))
    .unwrap();
    assert!(found.text.contains("# Leave of absence"), "{}", found.text);
    assert!(
        found.text.contains(r"\*your* manager") && found.text.contains(r"\<b>first\</b>"),
        "{}",
        found.text
    );
}

#[test]
fn two_columns_are_read_one_after_the_other() {
    let mut pieces = Vec::new();
    let left: Vec<_> = (0..20).map(|line| format!("left line {line} says something of interest")).collect();
    let right: Vec<_> = (0..20).map(|line| format!("right line {line} says something more of it")).collect();
    for (line, (left, right)) in left.iter().zip(&right).enumerate() {
        let y = 750 - 14 * u32::try_from(line).unwrap();
        pieces.push((10, 60, y, left.as_str()));
        pieces.push((10, 320, y, right.as_str()));
    }
    let found = read_bytes(&pages(&[text(&pieces)])).unwrap();
    let (last_left, first_right) = (found.text.find("left line 19"), found.text.find("right line 0"));
    assert!(last_left.unwrap() < first_right.unwrap(), "{}", found.text);
}

#[test]
fn a_word_that_is_hyphenated_at_a_line_end_is_joined() {
    let found = read_bytes(&pages(&[text(&[
        (11, 72, 720, "The committee that meets on Thursdays has an adminis-"),
        (11, 72, 706, "trative role, and decides what is to be done with the garden."),
    ])]))
    .unwrap();
    assert!(found.text.contains("administrative"), "{}", found.text);
}

#[test]
fn columns_are_read_between_the_lines_that_reach_across_them() {
    let mut pieces = vec![
        (10, 60, 780, "An abstract that reaches across both of the columns of this page, from left to right"),
        (10, 60, 100, "A note at the foot of the page reaches across both of the columns of this page, too"),
    ];
    let lines: Vec<_> = (0..20).map(|line| format!("line {line} says something of interest here")).collect();
    for (line, y) in lines.iter().zip((0..20).map(|line| 750 - 14 * line)) {
        pieces.push((10, 60, y, line.as_str()));
        pieces.push((10, 320, y, line.as_str()));
    }
    let found = read_bytes(&pages(&[text(&pieces)])).unwrap().text;
    let places = ["An abstract", "line 0 ", "line 19 ", "A note"].map(|wanted| found.find(wanted).unwrap());
    assert!(places.is_sorted() && found.rfind("line 0 ") > Some(places[2]), "{found}");
}

#[test]
fn a_table_without_rules_is_read_row_by_row() {
    let mut pieces = Vec::new();
    let cells: Vec<_> =
        (0..12).map(|row| (format!("--option-{row}"), format!("sets what row {row} is about"))).collect();
    for ((name, value), y) in cells.iter().zip((0..12).map(|row| 750 - 14 * row)) {
        pieces.push((10, 60, y, name.as_str()));
        pieces.push((10, 320, y, value.as_str()));
    }
    let found = words(&read_bytes(&pages(&[text(&pieces)])).unwrap());
    assert!(found.contains("--option-3 sets what row 3 is about --option-4 sets"), "{found}");
}

#[test]
fn words_are_known_by_the_gaps_between_glyphs() {
    // A gap of a fifth of the size without a space, a kern within a word, and a space that is taken back.
    let content = "BT /F1 10 Tf 72 720 Td [(New)-200(empty)( )(gra)30(ph)( )278(s)] TJ ET";
    let found = words(&read_bytes(&pages(&[stream("", content.as_bytes())])).unwrap());
    assert_eq!(found, "New empty graphs");
}

#[test]
fn an_accent_beside_its_letter_becomes_one_with_it() {
    // The acute accent of WinAnsi, over an e of the same width or so.
    let content = "BT /F1 10 Tf 72 720 Td (caf) Tj 13.4 0 Td (\\264) Tj 0 0 Td (e) Tj ET";
    let found = words(&read_bytes(&pages(&[stream("", content.as_bytes())])).unwrap());
    assert_eq!(found, "café");
}

#[test]
fn raised_and_lowered_letters_stay_in_their_line() {
    let content = "BT /F1 10 Tf 72 720 Td (It is 20 m) Tj 7 0 0 7 121 724 Tm /F1 1 Tf (2) Tj ET \
                   BT /F1 10 Tf 72 706 Td (and the next line.) Tj ET";
    let found = words(&read_bytes(&pages(&[stream("", content.as_bytes())])).unwrap());
    assert!(found.replace(' ', "").contains("20m2andthe"), "{found}");
}

#[test]
fn text_that_runs_upwards_is_read_along_its_lines() {
    let line = |x: u32, text: &str| format!("BT /F1 10 Tf 0 1 -1 0 {x} 100 Tm ({text}) Tj ET ");
    let content = [HELLO.3, "Sideways, the first line", "and the second one"];
    let content = format!("{}{}{}", line(80, content[0]), line(94, content[1]), line(108, content[2]));
    let found = words(&read_bytes(&pages(&[stream("", content.as_bytes())])).unwrap());
    assert_eq!(found, "Hello there, reader. Sideways, the first line and the second one");
}

#[test]
fn bullets_begin_items_of_a_list() {
    let found = read_bytes(&pages(&[text(&[
        (10, 72, 720, "\\225 Bring the form, signed by everybody who is concerned by the matter,"),
        (10, 80, 708, "and a copy of it."),
        (10, 72, 696, "\\225 Wait."),
    ])]))
    .unwrap()
    .text;
    let items: Vec<_> = found.lines().filter(|line| line.starts_with(['-', '*'])).collect();
    assert!(items.len() == 2 && items[1].ends_with("Wait."), "{found}");
}

#[test]
fn a_file_that_begins_after_other_bytes_is_read() {
    let bytes = pages(&[text(&[HELLO])]);
    let bytes = [&b"HTTP/1.1 200 OK\n\n"[..], &bytes].concat();
    let file = File { bytes, max_text: 1_000, ..File::default() };
    assert_eq!(words(&crate::extract(&file).unwrap()), HELLO.3);
}

#[test]
fn runs_of_pages_are_written_as_ranges() {
    assert_eq!(ranges(&[0, 3, 4, 5, 9]), "1, 4-6, 10");
    assert_eq!(ranges(&[]), "");
}

#[test]
fn title_author_and_dates_come_from_the_information_dictionary() {
    let mut all = objects(&[
        "<</Type/Catalog/Pages 2 0 R/Lang(de-DE)>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
    ]);
    all.push(text(&[HELLO]));
    all.push(FONT.into());
    let title: String = "Grüße".encode_utf16().map(|unit| format!("{unit:04x}")).collect();
    all.push(
        format!(
            "<</Title<feff{title}>/Author(A. Writer)/Keywords(a, b)/Subject()\
             /CreationDate(D:20260203040506+01'30')/ModDate(D:2026)>>"
        )
        .into_bytes(),
    );
    let found = read_bytes(&pdf(&all, "/Info 6 0 R")).unwrap();
    assert_eq!(found.title.as_deref(), Some("Grüße"));
    let expected = serde_json::json!({
        "author": "A. Writer", "keywords": "a, b", "language": "de-DE", "pages": 1,
        "created": "2026-02-03T04:05:06+01:30", "modified": "2026",
    });
    assert_eq!(Value::Object(found.metadata), expected);
}

#[test]
fn dates_are_as_exact_as_in_the_file() {
    let dates = [
        ("D:19991231235959Z", Some("1999-12-31T23:59:59Z")),
        ("D:199912312359-08'00", Some("1999-12-31T23:59-08:00")),
        ("20010203", Some("2001-02-03")),
        ("D:2001020304", Some("2001-02-03")),
        ("D:200102", Some("2001-02")),
        ("yesterday", None),
        ("D:20é", None),
    ];
    for (written, expected) in dates {
        assert_eq!(date(written).as_deref(), expected, "{written}");
    }
}

#[test]
fn a_user_password_is_named_and_an_empty_one_opens() {
    let locked: [&[u8]; 2] = [
        include_bytes!("../../../tests/data/user-password-aes-256.pdf"),
        include_bytes!("../../../tests/data/user-password-rc4-40.pdf"),
    ];
    for bytes in locked {
        assert_eq!(read_bytes(bytes), Err(Fault::Encrypted));
    }
    let open: [&[u8]; 3] = [
        include_bytes!("../../../tests/data/owner-password-aes-256.pdf"),
        include_bytes!("../../../tests/data/owner-password-aes-128.pdf"),
        include_bytes!("../../../tests/data/owner-password-rc4-40.pdf"),
    ];
    for bytes in open {
        let found = read_bytes(bytes).unwrap();
        assert_eq!(found.text, "The key is under the mat.");
        assert_eq!(found.title.as_deref(), Some("A locked file"));
    }
}

#[test]
fn a_file_of_images_is_named_and_pages_of_images_are_noted() {
    let image = stream("", b"q 500 0 0 700 0 0 cm /I Do Q");
    assert_eq!(read_bytes(&pages(&[image.clone(), image.clone()])), Err(Fault::ImagesOnly));
    let found = read_bytes(&pages(&[text(&[HELLO]), image])).unwrap();
    assert_eq!(found.metadata.get("pages_images_only"), Some(&Value::from("2")));
    let blank = read_bytes(&pages(&[text(&[])])).unwrap();
    assert_eq!((blank.text.as_str(), blank.metadata.get("pages_images_only")), ("", None));
}

#[test]
fn a_page_that_cannot_be_read_costs_that_page() {
    let torn = stream("/Filter/FlateDecode", b"this is not what deflate makes of anything");
    let found = read_bytes(&pages(&[text(&[HELLO]), torn.clone(), text(&[HELLO])])).unwrap();
    assert_eq!(found.metadata.get("pages_failed"), Some(&Value::from("2")));
    assert_eq!(found.text.matches("Hello").count(), 2);
    assert!(matches!(read_bytes(&pages(&[torn])), Err(Fault::Broken(_))));
}

#[test]
fn a_thread_that_panics_costs_what_it_did() {
    assert_eq!(in_thread(|| 1), Some(1));
    assert_eq!(in_thread(|| -> u8 { panic!("as a library does") }), None);
}

#[test]
fn text_that_is_too_long_is_refused_before_all_of_it_is_read() {
    let bytes = pages(&vec![text(&[HELLO]); 50]);
    let refused = read(&File { bytes, max_text: 100, ..File::default() });
    assert!(matches!(refused, Err(Fault::TooLarge(_))));
}

/// A file whose page tree has these nodes, from object 2 on.
fn tree(nodes: &[String]) -> Result<Extraction, Fault> {
    let mut all = objects(&["<</Type/Catalog/Pages 2 0 R>>"]);
    all.extend(nodes.iter().map(|node| node.clone().into_bytes()));
    read_bytes(&pdf(&all, ""))
}

fn inner(kids: &str) -> String {
    format!("<</Type/Pages/Kids[{kids}]/Count 1000000>>")
}

#[test]
fn page_trees_that_never_end_are_refused() {
    let page = "<</Type/Page/MediaBox[0 0 9 9]>>".to_string();
    assert!(matches!(tree(&[inner("2 0 R")]), Err(Fault::Broken(_))));
    assert!(matches!(tree(&[inner("3 0 R"), inner("2 0 R 4 0 R"), page.clone()]), Err(Fault::Broken(_))));
    // 2^40 pages in a kilobyte.
    let mut doubled: Vec<_> = (3..43).map(|kid| inner(&format!("{kid} 0 R {kid} 0 R"))).collect();
    doubled.push(page.clone());
    assert!(matches!(tree(&doubled), Err(Fault::Broken(_))));
    let mut deep: Vec<_> = (3..1003).map(|kid| inner(&format!("{kid} 0 R"))).collect();
    deep.push(page.clone());
    assert!(matches!(tree(&deep), Err(Fault::Broken(_))));
    let million = tree(&[inner(&"3 0 R ".repeat(1_000_000)), page.clone()]);
    assert!(matches!(million, Err(Fault::TooLarge(_))), "{million:?}");
    assert!(matches!(tree(&[inner(&"3 0 R ".repeat(1000)), page.clone()]), Err(Fault::Broken(_))));
    assert!(matches!(tree(&[inner("")]), Err(Fault::Broken(_))));
    // The number that the file states is not believed.
    assert_eq!(tree(&[inner("3 0 R"), page]).unwrap().metadata.get("pages"), Some(&1.into()));
}

#[test]
fn content_that_unpacks_to_much_costs_its_page() {
    let bomb = deflated("", &vec![b' '; 300 << 20]);
    assert!(bomb.len() < 4 << 20);
    let found = read_bytes(&pages(&[text(&[HELLO]), bomb])).unwrap();
    assert_eq!(found.metadata.get("pages_failed"), Some(&Value::from("2")));
    assert!(found.text.contains("Hello"));
}

#[test]
fn nested_objects_end() {
    // A hundred times as deep, the library overflows its stack, which the process around it survives.
    let deep = 1_000;
    let nested = [
        "[".repeat(deep) + &"]".repeat(deep),
        "<</A".repeat(deep) + &">>".repeat(deep),
        "q ".repeat(deep),
        "/I BMC ".repeat(deep),
    ];
    for nested in nested {
        let content = [b"BT /F1 12 Tf 72 720 Td (Hello) Tj ET ", nested.as_bytes()].concat();
        // What is found does not matter: that this ends does.
        let _ = read_bytes(&pages(&[stream("", &content)]));
        let mut all =
            objects(&["<</Type/Catalog/Pages 2 0 R/X 3 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>"]);
        all.push(nested.into_bytes());
        let _ = read_bytes(&pdf(&all, ""));
    }
    // A form that draws itself twice.
    let form =
        stream("/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 5 0 R>>>>", b"/X Do /X Do");
    let mut all = objects(&[
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>",
    ]);
    all.push(stream("", b"/X Do"));
    all.push(form);
    let _ = read_bytes(&pdf(&all, ""));
}

#[test]
fn files_that_are_torn_or_changed_are_broken_and_do_no_harm() {
    let whole = pages(&[text(&[HELLO]), text(&[HELLO])]);
    for end in (0..whole.len()).step_by(7) {
        let _ = read_bytes(&whole[..end]);
    }
    for at in (0..whole.len()).step_by(3) {
        let mut changed = whole.clone();
        changed[at] = changed[at].wrapping_mul(31).wrapping_add(7);
        let _ = read_bytes(&changed);
    }
    assert!(matches!(read_bytes(b"%PDF-1.7\nnothing more"), Err(Fault::Broken(_))));
    // A file that says nothing of itself any more is still read.
    let without_table = whole.windows(4).rposition(|at| at == b"xref").unwrap() - 5;
    assert_eq!(read_bytes(&whole[..without_table]).map(|found| found.text.matches("Hello").count()), Ok(2));
}
