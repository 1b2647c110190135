use crate::extract;
use kb_types::extraction::{Extraction, Fault, File};

fn read(rtf: &str) -> Result<Extraction, Fault> {
    extract(&File { bytes: rtf.as_bytes().to_vec(), max_text: 10_000_000, ..File::default() })
}

fn text(body: &str) -> String {
    read(&format!("{{\\rtf1\\ansi\\ansicpg1252\\deff0{{\\fonttbl{{\\f0\\fcharset0 Arial;}}{{\\f1\\fcharset204 Cyr;}}{{\\f2\\fcharset128 J;}}}}\n{body}}}")).unwrap().text
}

#[test]
fn text_is_decoded_by_code_page_font_and_unicode() {
    assert_eq!(text(r"caf\'e9 \f1 \'cf\'f0\'e8\f0  \'80\par"), "café При €");
    assert_eq!(text(r"{\f2\'93\'fa\'96\'7b}\par"), "日本");
    assert_eq!(text(r"\u8364?\u-10179?\u-8704? {\uc2\u233ab}x{\uc0\u233}y\u8364\'80z\par"), "€😀 éxéy€z");
    assert_eq!(
        text("a\\~b\\_c\\-d\\emdash e\\{f\\}\\\\ \\ldblquote g\\rdblquote\\tab h\\line i\\par"),
        "a b-cd—e{f}\\ “g” h\ni"
    );
}

#[test]
fn destinations_that_are_no_text_are_left_out() {
    let body = r"{\colortbl;\red0;}{\*\generator X;}{\header H}{\footerf F}{\*\unknown{\b no}}{\pict\pngblip 89504e47}
        {\field{\*\fldinst HYPERLINK x}{\fldrslt link}}{\v hidden}{\deleted gone}\v no\v0  end{\*\bkmkstart b}
        {\shp{\*\shpinst\shpleft1{\sp{\sn a}{\sv b}}{\shptxt boxed\par}}{\shprslt no}}\par";
    assert_eq!(text(body), "link end\n\nboxed");
    assert_eq!(text("a{\\pict\\bin5 }}}}}b}c\\par"), "ac");
}

#[test]
fn styles_lists_tables_and_notes_are_structure() {
    let body = r"{\stylesheet{\ql Normal;}{\s1\outlinelevel0 \'dcberschrift;}{\s2 heading 2;}{\*\cs3 Char;}{\s4 Title;}}
        {\info{\title A t\'eftle}{\author Ada}{\creatim\yr2024\mo3\dy1\hr10\min5}{\company No}}
        \pard\s4 Title\par\pard\s1 One\par\pard\s2 Two\par\pard\plain text{\super\chftn}{\footnote\pard\plain{\chftn} the note\par} on\par
        {\listtext 1.\tab}\pard\ls1\ilvl0 first\par{\listtext\'b7\tab}\pard\ls1\ilvl1 deeper\par{\listtext 2.\tab}\pard\ls1\ilvl0 second\par
        \pard before\par\trowd\intbl a\par b\cell c | d\cell\row\trowd\pard\intbl e\cell f\cell\row\pard after\par";
    let found = read(&format!("{{\\rtf1\\ansi {body}}}")).unwrap();
    assert_eq!(
        found.text.replace('\\', ""),
        "# Title\n\n# One\n\n## Two\n\ntext[1] on\n\n[1] the note\n\n1. first\n   - deeper\n2. second\n\nbefore\n\n\
         | a b | c | d |\n| e | f |\n\nafter"
    );
    assert_eq!(found.title.as_deref(), Some("A tïtle"));
    let expected = serde_json::json!({"author": "Ada", "created": "2024-03-01T10:05:00"});
    assert_eq!(serde_json::Value::Object(found.metadata), expected);
    assert_eq!(found.content_type, "application/rtf");
}

#[test]
fn broken_and_hostile_files_are_faults() {
    assert!(matches!(read(r"{\rtf1 a {b"), Err(Fault::Broken(_))));
    assert!(matches!(read(&format!("{{\\rtf1 {}", "{".repeat(20_000))), Err(Fault::Broken(_))));
    assert_eq!(read(r"{\rtf1{\pict 00}\par}"), Err(Fault::ImagesOnly));
    assert!(matches!(read(r"{\rtf1 a\bin100 b\par}"), Err(Fault::Broken(_))));
    assert_eq!(read(r"{\rtf1 a\'zz\bin99999999999999 b\par}").map(|found| found.text), Ok("azzb".into()));
    let notes = r"{\footnote a".repeat(5_000) + &"}".repeat(5_000);
    assert!(read(&format!("{{\\rtf1 {notes}\\par}}")).is_ok());
}
