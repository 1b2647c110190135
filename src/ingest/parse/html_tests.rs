//! Tests of HTML extraction.

use super::*;
use crate::model::Limits;

fn extract(html: &str) -> Result<Extracted> {
    super::extract(html, &Bounds::none())
}

fn markdown(html: &str) -> String {
    extract(html).unwrap().text
}

/// As DocBook writes the PostgreSQL manual.
const DOCBOOK: &str = r##"<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd"><html xmlns="http://www.w3.org/1999/xhtml"><head><meta http-equiv="Content-Type" content="text/html; charset=UTF-8" /><title>5.2.&#160;Default Values</title><link rel="stylesheet" type="text/css" href="stylesheet.css" /><style>p { color: red }</style></head><body id="docContent" class="container-fluid col-10"><div class="navheader"><table width="100%" summary="Navigation header"><tr><th colspan="5" align="center">5.2.&#160;Default Values</th></tr><tr><td width="10%" align="left"><a accesskey="p" href="ddl-basics.html" title="5.1.&#160;Table Basics">Prev</a> </td></tr></table><hr /></div><div class="sect1" id="DDL-DEFAULT"><div class="titlepage"><div><div><h2 class="title" style="clear: both">5.2.&#160;Default Values</h2></div></div></div><a id="id-1.5.4.4.2" class="indexterm"></a><p>
   A column can be assigned a default value, see <a class="xref" href="x.html#A_B">Section&#160;5.3</a> and
   <code class="structname">pg_attrdef</code> or <em class="replaceable"><code>col_name</code></em>[1].
   If <code class="literal">a &lt; b &amp;&amp; b &gt; *c</code>, it is <strong>not</strong> used.
  </p><pre class="programlisting">
CREATE TABLE products (
    product_no integer,
    name text,
    price numeric <span class="emphasis"><strong>DEFAULT 9.99</strong></span>
);
# not a heading
</pre><p>
  </p><div class="itemizedlist"><ul class="itemizedlist" style="list-style-type: disc; "><li class="listitem"><p>first item</p></li><li class="listitem"><p>second_item</p></li></ul></div><div class="table"><table class="table" border="1"><colgroup><col /><col /></colgroup><thead><tr><th>Name</th><th>Meaning</th></tr></thead><tbody><tr><td><code>a_b</code></td><td><p>first</p></td></tr><tr><td>c</td><td>second | third</td></tr></tbody></table></div><dl><dt>term</dt><dd><p>its meaning</p></dd></dl></div><script>var a = "<p>no_no</p>";</script></body></html>"##;

#[test]
fn docbook_pages_come_out_clean() {
    let extracted = extract(DOCBOOK).unwrap();
    assert_eq!(extracted.title.as_deref(), Some("5.2. Default Values"));
    assert!(!extracted.marks.is_empty());
    let expected = "## 5.2. Default Values

A column can be assigned a default value, see Section 5.3 and pg_attrdef or col_name[1]. If a < b && b > *c, it is not used.

```
CREATE TABLE products (
    product_no integer,
    name text,
    price numeric DEFAULT 9.99
);
# not a heading
```

- first item

- second_item

| Name | Meaning |
| a_b | first |
| c | second | third |

term

its meaning";
    assert_eq!(extracted.text, expected);
}

#[test]
fn scripts_styles_templates_and_head_leave_nothing() {
    let html = "<html><head><title>T</title><meta content=secret></head><body><p>kept</p>
        <script>secret</script><style>secret</style><noscript><p>secret</p></noscript>
        <template><p>secret</p></template><nav><a href=/>secret</a></nav><!-- secret --></body></html>";
    assert_eq!(markdown(html), "kept");
}

#[test]
fn links_keep_their_text_and_images_their_description() {
    let html = "<p>See <a href='https://secret.example/x?y=z'>the guide</a>, <img src=a.png alt='a map'> and <img src=b.png>more.</p>";
    assert_eq!(markdown(html), "See the guide, a map and more.");
}

#[test]
fn headings_keep_their_levels_and_the_first_is_the_title_of_last_resort() {
    let extracted = extract("<h1>One</h1><p>a</p><h3>Three<br>lines</h3><p>1. b</p>").unwrap();
    assert!(extracted.text.starts_with("# One\n\na\n\n### Three"), "{}", extracted.text);
    assert!(extracted.text.ends_with("1. b"), "{}", extracted.text);
    assert_eq!(extracted.title.as_deref(), Some("One"));
}

#[test]
fn code_keeps_its_signs_and_its_fence_holds() {
    assert_eq!(
        markdown("<pre><code>a_b &lt;c&gt; &amp;amp; *d*\n\n\n  ```x\n</code></pre>"),
        "````\na_b <c> &amp; *d*\n\n  ```x\n````"
    );
}

#[test]
fn deep_html_is_refused_and_what_is_allowed_fits_the_stack() {
    let deep = "<div>".repeat(100_000);
    assert!(matches!(extract(&deep), Err(Error::Argument { .. })));
    // Elements each tag makes; the parser adds the tbody.
    for (tag, elements) in [
        ("div", 1),
        ("blockquote", 1),
        ("span", 1),
        ("b", 1),
        ("section", 1),
        ("font", 1),
        ("ul><li", 2),
        ("table><tr><td", 4),
    ] {
        let levels = (dom::MAX_DEPTH - 10) / elements;
        let html = format!("{}x{}", format!("<{tag}>").repeat(levels), "y<p>".repeat(10));
        assert!(markdown(&html).contains('x'), "{tag}");
    }
}

#[test]
fn large_and_broken_html_takes_linear_time() {
    let began = std::time::Instant::now();
    for unit in [
        "<p>some text ",
        "<li>x",
        "<b>x</b>",
        "</div>",
        "<",
        "&lt;",
        "<tr><td>x",
        "<a href='",
        "<!--",
        "<title",
        "</b><i>a</i>",
        "<p><b>x</p>",
    ] {
        let html = format!("<body>{}", unit.repeat(20_000));
        if let Err(error) = extract(&html) {
            assert!(matches!(error, Error::Argument { .. }), "{unit}");
        }
    }
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

#[test]
fn disguised_signs_count_as_what_they_stand_for() {
    let html = format!("<p>{}</p>", "._*<".repeat(1000).replace('<', "&lt;"));
    let extract = |bytes| super::extract(&html, &Bounds::begin(Limits { bytes, ..Limits::none() }));
    assert_eq!(extract(4000).unwrap().text.len(), 4000);
    assert!(matches!(extract(1900), Err(Error::Limit { setting: "kb.max_extracted_size", .. })));
}
