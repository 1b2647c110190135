//! HTML: what is extracted is the same each time, bounded, and can be cut.

use super::{Target, choices, chunks};
use crate::memory::{Limits, measure};
use kb_text::parse::{ContentType, check, extract};
use kb_types::Bounds;
use kb_types::preprocess::Preprocess;

pub const TARGET: Target = Target {
    name: "html",
    run,
    seeds: Vec::new,
    words: r##"
        <p> </p> <div> </div> <table> <tr> <td> <th␣colspan=2> </table> <ul> <ol␣start=3> <li> </ul> <h1>
        </h1> <h6> <pre> </pre> <code> <a␣href=x> </a> <b> <i> <script> </script> <style> <title> </title>
        <head> <body> <body␣a=b> <html␣lang=en> <br> <hr> <img␣alt='x'␣src=y> <svg> <math> <template>
        <select> <option> <textarea> <blockquote> <dl> <dt> <dd> <!-- --> <![CDATA[ ]]> <!DOCTYPE␣html>
        <?xml␣?> &amp; &#x0; &#1114112; &notit; &lt ‹10fa00› ‹10fa0a› ‹feff› ‹d›⏎ ‹a0› ` | #␣ <frameset>
        <noscript> <nobr> <form> <input␣type=hidden> <caption> <colgroup> ␣a=1␣b=2␣c=3
        <span␣style='display:none'> <p␣hidden> 漢字 é
    "##,
};

const LIMITS: Limits = Limits { bytes: (4 << 20, 4000), allocations: (20_000, 400) };

fn run(data: &[u8]) {
    let html = String::from_utf8_lossy(data);
    if check(&html, "d", 1 << 20).is_err() {
        return;
    }
    let mut random = choices(data);
    let preprocess = Preprocess { remove_html: random.usize(..8) != 0, ..Preprocess::default() };
    let bounds = Bounds::none();
    let (extracted, cost) = measure(|| extract(&html, ContentType::Html, &preprocess, &bounds));
    cost.within(&LIMITS, html.len());
    let Ok(extracted) = extracted else { return };
    assert_eq!(
        extract(&html, ContentType::Html, &preprocess, &bounds).unwrap(),
        extracted,
        "not the same twice"
    );
    assert!(!extracted.text.contains('\r'), "a line end of another kind");
    assert!(extracted.text.len() <= 64 * html.len() + 1024, "{} bytes came out", extracted.text.len());
    assert!(preprocess.remove_html || extracted.marks.is_empty(), "marks in what is no Markdown");
    if let Some(title) = &extracted.title {
        assert!(!title.trim().is_empty(), "a title of nothing");
    }
    chunks::cut(&extracted.text, preprocess.remove_html, &mut random);
}
