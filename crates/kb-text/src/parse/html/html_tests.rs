//! Tests of HTML extraction.

use super::*;
use kb_types::Limits;

fn extract(html: &str) -> Result<Extracted> {
    super::extract(html, &Bounds::none())
}

fn markdown(html: &str) -> String {
    extract(html).unwrap().text
}

/// A page as DocBook writes the PostgreSQL manual.
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
| c | second \\| third |

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
    assert_eq!(extracted.text, "# One\n\na\n\n### Three lines\n\n1\\. b");
    assert_eq!(extracted.title.as_deref(), Some("One"));
}

#[test]
fn code_keeps_its_characters_and_its_fence_encloses_it() {
    assert_eq!(
        markdown("<pre><code>a_b &lt;c&gt; &amp;amp; *d*\n\n\n  ```x\n</code></pre>"),
        "````\na_b <c> &amp; *d*\n\n  ```x\n````"
    );
}

#[test]
fn deep_html_is_refused_and_the_allowed_depth_fits_the_stack() {
    let deep = "<div>".repeat(100_000);
    assert!(matches!(extract(&deep), Err(Error::Argument { .. })));
    // How many elements each tag makes. The parser adds the tbody.
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
fn disguised_characters_count_as_the_ones_that_they_replace() {
    let html = format!("<p>{}</p>", "a.b_".repeat(1000));
    let extract = |bytes| super::extract(&html, &Bounds::begin(Limits { bytes, ..Limits::none() }));
    assert_eq!(extract(4000).unwrap().text.len(), 4000);
    assert!(matches!(extract(1900), Err(Error::Limit { setting: "kb.max_extracted_size", .. })));
}

/// The headings above the text at `at`.
fn headings(html: &str, at: &str) -> Vec<String> {
    let extracted = extract(html).unwrap();
    let offset = extracted.text.find(at).unwrap_or_else(|| panic!("{at} in {}", extracted.text));
    kb_types::marks::Walk::new(&extracted.marks).locate(offset, offset + 1).headings
}

#[test]
fn blocks_in_the_cells_of_a_table_stay_blocks() {
    let page = "<table><tr><td><h1>Install</h1><p>Run it.</p><pre>make\n  all</pre></td>
        <td><h2>Steps</h2><ul><li>one</li><li>two</li></ul></td></tr></table>";
    assert_eq!(markdown(page), "# Install\n\nRun it.\n\n```\nmake\n  all\n```\n\n## Steps\n\n- one\n- two");
    let nested = "<table><tr><td><table><tr><td>a</td><td>b</td></tr></table></td><td>c</td></tr></table>";
    assert_eq!(markdown(nested), "| a | b |\n\nc");
    let paragraphs = "<table><tr><td><p>a</p><p>b</p></td><td>c</td></tr></table>";
    assert_eq!(markdown(paragraphs), "a\n\nb\n\nc");
    let values = "<table><thead><tr><th>Name<th>Use</thead>
        <tr><td><p>a</p><td><code>x</code><br>y</tr>
        <tr><td>c<td><ul><li>d</ul></tr> <tr><td>e<td>f</table>";
    assert_eq!(markdown(values), "| Name | Use |\n| a | x y |\n\nc\n\n- d\n\n| e | f |");
}

#[test]
fn code_with_line_numbers_is_code() {
    let code = "```\ndef f(x):\n    if x:\n        return 1\n```";
    let lines = ["def f(x):", "    if x:", "        return 1"];
    let pre = lines.join("\n");
    for html in [
        format!("<table><tr><td><pre>1\n2\n3</pre></td><td><pre>{pre}</pre></td></tr></table>"),
        format!(
            "<table class=highlighttable><tr><td class=linenos><div class=linenodiv><pre><span class=normal>1</span>\n<span class=normal>2</span>\n<span>3</span></pre></div></td><td class=code><div><pre><span></span>{pre}\n</pre></div></td></tr></table>"
        ),
        format!(
            "<table><tr><td class='gutter gl'><pre class=lineno>1\n2\n3\n</pre></td><td><pre>{pre}</pre></td></tr></table>"
        ),
        format!("<pre>{}</pre>", lines.map(|line| format!("<span class=linenos>1</span>{line}")).join("\n")),
        format!(
            "<table><tbody>{}</tbody></table>",
            lines
                .map(|line| format!(
                    "<tr>\n<td data-line-number=1></td>\n<td class=blob-code>{line}\n</td></tr>"
                ))
                .join("\n")
        ),
    ] {
        assert_eq!(markdown(&html), code, "{html}");
    }
    // Numbers that are values are kept.
    let values = "<table><tr><td>5</td><td><pre>x</pre></td></tr></table>";
    assert_eq!(markdown(values), "5\n\n```\nx\n```");
    assert_eq!(markdown("<table><tr><td>1 2</td><td>x</td></tr></table>"), "| 1 2 | x |");
}

#[test]
fn a_heading_ends_with_the_element_that_it_heads() {
    let manual =
        "<div class=sect1><div class=titlepage><div><h2>3.4. Transactions</h2></div></div><p>before</p>
        <div class=note><h3 class=title>Note</h3><p>beside</p></div><p>after</p>
        <div class=sect2><div class=titlepage><h3>3.4.1. Locks</h3></div><p>below</p></div><p>last</p></div>";
    assert_eq!(headings(manual, "before"), ["3.4. Transactions"]);
    assert_eq!(headings(manual, "beside"), ["3.4. Transactions"]);
    assert_eq!(headings(manual, "after"), ["3.4. Transactions"]);
    assert_eq!(headings(manual, "below"), ["3.4. Transactions", "3.4.1. Locks"]);
    assert_eq!(headings(manual, "last"), ["3.4. Transactions"]);
    assert!(markdown(manual).contains("before\n\nNote\n\nbeside\n\nafter"), "{}", markdown(manual));
    let blog = "<h1>Blog</h1><article><header><h2>One</h2><p>by me</p></header><div>text</div><h3>Part</h3><p>more</p></article>
        <article><h2>Two</h2><p>words</p></article><p>older posts</p><h3>Links</h3><p>here</p>";
    assert_eq!(headings(blog, "by me"), ["Blog", "One"]);
    assert_eq!(headings(blog, "text"), ["Blog", "One"]);
    assert_eq!(headings(blog, "more"), ["Blog", "One", "Part"]);
    assert_eq!(headings(blog, "words"), ["Blog", "Two"]);
    assert_eq!(headings(blog, "older"), ["Blog"]);
    assert_eq!(headings(blog, "here"), ["Blog", "Links"]);
    let columns = "<h1>A</h1><table><tr><td><h2>B</h2><p>b</p></td><td><p>c</p><ul><li>d</ul></td></tr></table><p>e</p>";
    assert_eq!(headings(columns, "e"), ["A"]);
    // The only heading.
    let title =
        "<div id=head><p>News</p><h1>Title</h1><p>by me</p></div><div><p>text</p></div><div>the end</div>";
    assert_eq!(headings(title, "text"), ["Title"]);
    assert_eq!(headings(title, "the end"), ["Title"]);
}

#[test]
fn navigation_headers_and_footers_of_a_page_are_left_out() {
    let page = "<body><header>Site<nav>Menu</nav></header><div role=search>Find</div><div role='navigation'>Next</div>
        <main><h1>Title<a class=headerlink href='#t' title=Permalink>¶</a></h1><article><header><p>by me</p></header>
        <h2><a class=anchor href='#x'></a>Part<a href='#x'>#</a></h2>
        <p>Words<a href='#fn'>[1]</a> in <a href='#c'>C#</a>.<span hidden>no</span><span style='color:red; display: none'>no</span></p>
        <aside>a remark</aside><footer>filed under x</footer></article></main>
        <aside>Related</aside><div role=complementary>Related</div><div class=footer>Imprint</div>
        <footer>Imprint</footer><div role=contentinfo>Imprint</div></body>";
    assert_eq!(markdown(page), "# Title\n\nby me\n\n## Part\n\nWords[1] in C#.\n\na remark\n\nfiled under x");
    assert_eq!(headings(page, "Words"), ["Title", "Part"]);
}

#[test]
fn headers_and_notes_inside_the_text_of_a_page_are_kept() {
    for (html, expected) in [
        ("<nav>only a menu</nav>", "only a menu"),
        ("<header>A</header><footer>B</footer>", "A\n\nB"),
        ("<section><header>A</header>x<footer>B</footer></section>", "A\n\nx\n\nB"),
        ("<header id=title-block-header><h1>Title</h1></header><p>x", "# Title\n\nx"),
        ("<header><h1>Site</h1></header><h1>Title</h1><p>x", "# Title\n\nx"),
        ("<header><h1>Site</h1></header><main><h2>Title</h2></main>", "## Title"),
        ("<p>x<aside class=note>A note</aside>", "x\n\nA note"),
        ("<p>x<div role=tabpanel hidden>Tab</div>", "x\n\nTab"),
        ("<p>x<div hidden=until-found>found</div>", "x\n\nfound"),
        ("<p>See <a href=x.html>#</a> and § 5", "See # and § 5"),
        ("<p>a¶b #", "a¶b #"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn nested_tables_and_headings_cost_no_more_than_their_text() {
    let spent = |html: String| {
        let bounds = Bounds::none();
        super::extract(&html, &bounds).unwrap();
        bounds.spent() / html.len() as u64
    };
    for (unit, end, levels) in [
        ("<table><tr><td>1 2 3<td>", "</table>", 30),
        ("<div><h2>a</h2>b", "</div>", 100),
        ("<section>a<h3>b</h3>", "</section>", 100),
    ] {
        let (few, many) = (
            spent(format!("{}{}", unit.repeat(levels / 2), end.repeat(levels / 2))),
            spent(format!("{}{}", unit.repeat(levels), end.repeat(levels))),
        );
        assert!(many < 3 * few + 20, "{unit}: {few}, {many}");
        assert!(
            spent(format!("<p>{}", unit.repeat(levels) + &end.repeat(levels)).repeat(50)) < 3 * many + 20,
            "{unit}"
        );
    }
    let texts = "<p>*a_b[c](d)`e`&amp;lt;f>&lt;".repeat(5_000);
    assert!(spent(texts) < 100);
}
