//! The texts that cost a parser, a cutter or a tokeniser the most of all that are known, each at any size.

/// A text for one kind of reader, made of a part that repeats.
pub struct Input {
    pub name: &'static str,
    head: &'static str,
    unit: Unit,
    tail: &'static str,
}

#[derive(Clone, Copy)]
enum Unit {
    Same(&'static str),
    /// The same, with another number in each repetition.
    Numbered(fn(usize) -> String),
}

impl Input {
    /// A text of about `bytes` bytes.
    pub fn text(&self, bytes: usize) -> String {
        let mut text = self.head.to_string();
        let mut i = 0;
        while text.len() + self.tail.len() < bytes {
            match self.unit {
                Unit::Same(unit) => text.push_str(unit),
                Unit::Numbered(unit) => text.push_str(&unit(i)),
            }
            i += 1;
        }
        text + self.tail
    }
}

const fn same(name: &'static str, unit: &'static str) -> Input {
    within(name, "", unit, "")
}

const fn within(name: &'static str, head: &'static str, unit: &'static str, tail: &'static str) -> Input {
    Input { name, head, unit: Unit::Same(unit), tail }
}

const fn numbered(
    name: &'static str,
    head: &'static str,
    unit: fn(usize) -> String,
    tail: &'static str,
) -> Input {
    Input { name, head, unit: Unit::Numbered(unit), tail }
}

const fn varied(name: &'static str, unit: fn(usize) -> String) -> Input {
    numbered(name, "", unit, "")
}

const WORDS: &str = "The server reads the file once at its start, and again when it gets a signal.\n\n";

pub fn html() -> Vec<Input> {
    vec![
        same(
            "paragraphs",
            "<p>The server reads <b>the file</b> once &amp; again, <a href='x'>see</a>.</p>\n",
        ),
        numbered("attributes of one tag", "<p", |i| format!(" a{i}=1"), ">x"),
        varied("tags of 250 attributes", |i| {
            (0..250).fold("<p".to_string(), |tag, k| format!("{tag} a{k}")) + &format!(">x{i}")
        }),
        within("an attribute's value", "<p title=\"", "x y ", "\">x"),
        numbered("<body> again and again", "<body>", |i| format!("<body a{i}=1>"), "x"),
        numbered("<html> again and again", "<html>", |i| format!("x<html a{i}=1 b{i}=2>"), "x"),
        varied("unknown elements", |i| format!("<longname{i}>x</longname{i}>")),
        varied("150 elements deep", |_| format!("{}x{}", "<div>".repeat(150), "</div>".repeat(150))),
        same("bold side by side", "<b>x</b>"),
        same("italics side by side", "<i>x</i><em>y</em>"),
        same("bold left open in paragraphs", "<p><b>x"),
        same("paragraphs in bold left open", "<b><p>x"),
        same("links left open", "<a>x"),
        same("paragraphs in links", "<a><p>x</a>"),
        same("misnested formatting", "<b><i>x</b></i>"),
        same("fonts across paragraphs", "<font><p>x</font>"),
        same("nobr", "<nobr>x"),
        same("markers", "<object>x</object>"),
        within("text in a table", "<table>", "x<tr>", "</table>"),
        within("elements in a table", "<table>", "<b>x", "</table>"),
        same("tables", "<table><tr><td>1</table>"),
        same("tables left open", "<table><b>x"),
        within("rows", "<table>", "<tr><td>1<td>2", "</table>"),
        within("cells of one row", "<table><tr>", "<td>1", "</table>"),
        within("options", "<select>", "<option>x", "</select>"),
        within("list items", "<ul>", "<li>x", "</ul>"),
        within("numbered items", "<ol>", "<li>x</li>", "</ol>"),
        same("definitions", "<dt>x<dd>y"),
        same("headings", "<h1>x</h1>"),
        same("empty headings", "<h2></h2>"),
        same("line breaks", "<br>x"),
        same("line breaks alone", "<br>"),
        same("entities", "&amp;"),
        same("entities that are none", "&aaaaaaaa"),
        same("ampersands", "&"),
        same("less-than signs", "<"),
        same("ends of nothing", "</"),
        same("end tags", "</p>"),
        same("comments", "<!-- x -->"),
        within("one comment", "<!--", "x - ", "-->"),
        within("a comment left open", "<!--", "<p a b ", ""),
        same("declarations", "<!doctype html>"),
        same("processing instructions", "<?x y?>"),
        same("CDATA that is none", "<![CDATA[x]]>"),
        within("CDATA", "<svg>", "<![CDATA[x]]>", "</svg>"),
        same("NUL", "\0"),
        same("NUL in tags", "<p\0>\0"),
        same("mathematics", "<math><mi>x</mi></math>"),
        same("drawings", "<svg><path d='M0 0'/></svg>"),
        within("templates", "", "<template><p>x</template>", ""),
        within("preformatted", "<pre>", "a = `b`\n", "</pre>"),
        same("preformatted blocks", "<pre>`</pre>"),
        varied("quotes in quotes", |_| {
            format!("{}x<br>y{}", "<blockquote>".repeat(9), "</blockquote>".repeat(9))
        }),
        varied("many quotes", |_| "<p>x<br>y".to_string()),
        same("spans", "<span>x</span>"),
        same("images", "<img alt='x'>"),
        same("white space", " \n"),
        same("no-break spaces", "\u{a0}"),
        same("titles", "<title></title>"),
        same("forms", "<form><input></form>"),
        same("buttons", "<button>x</button>"),
        same("scripts", "<script>a<b</script>x"),
        within("one script", "<script>", "if (a<b && c) '</' ", "</script>x"),
        within("plain text", "<plaintext>", "<p>x ", ""),
        same("frames", "<frameset><frame>"),
        same("ruby", "<ruby>x<rt>y</ruby>"),
        same("paragraphs left open", "<p>some text "),
        same("list items left open", "<li>x"),
        same("bold that paragraphs end", "<p><b>x</p>"),
        same("bold that nothing began", "</b><i>a</i>"),
        same("ends of parts of a page", "</div>"),
        same("less-than signs as entities", "&lt;"),
        same("cells without a table", "<tr><td>x"),
        same("attributes left open", "<a href='"),
        same("comments left open", "<!--"),
        same("tags left open", "<title"),
    ]
}

#[allow(clippy::too_many_lines)] // a list
pub fn markdown() -> Vec<Input> {
    vec![
        same("paragraphs", WORDS),
        same(
            "sections",
            "# One\n\nThe server reads the *file* once.\n\n## Two\n\n- a\n- b\n\n```\nmake\n```\n\n",
        ),
        same("brackets", "["),
        same("images left open", "!["),
        same("links left open", "[a]("),
        same("links in links", "[a][b"),
        same("links in angles", "[a](<b"),
        same("link titles left open", "[a](b \"c "),
        same("closing brackets", "]("),
        same("brackets closed", "[a] "),
        varied("link definitions", |i| format!("[a{i}]: b\n")),
        numbered("links to definitions", "[x]: y\n\n", |_| "[x] ".into(), ""),
        varied("definitions and links", |i| format!("[a{i}]: b\n\n[a{}]\n\n", i / 2)),
        same("emphasis left open", "*a **a "),
        same("underscores left open", "_a __a "),
        same("emphasis of kinds", "*_~~a"),
        same("stars", "*"),
        same("emphasis in emphasis", "*a"),
        same("emphasis closed", "a*"),
        varied("backticks of growing length", |i| format!("{} ", "`".repeat(i % 500 + 1))),
        same("backticks", "`a "),
        same("tildes", "~a "),
        same("quotes in quotes", ">"),
        within("quotes, then lines", "> > > > > > > > > > > > > > > >\n", "a\n", ""),
        varied("numbered lists in lists", |_| "1. ".into()),
        varied("lists in lists, then blank lines", |i| if i < 2000 { "1. ".into() } else { "\n".into() }),
        varied("lists by indentation", |i| format!("{}- a\n", "  ".repeat(i % 300))),
        varied("deep lists, then blank lines", |i| {
            if i < 100 { format!("{}- a\n", "  ".repeat(i)) } else { "\n".into() }
        }),
        same("items", "* a\n"),
        same("items and blank lines", "- a\n\n\n"),
        within("rows of a table", "| a | b |\n|---|---|\n", "| c | d |\n", ""),
        same("tables", "a|b\n-|-\n"),
        same("bars", "|"),
        varied("a wide table", |i| match i {
            0 => format!("{}\n{}\n", "|a".repeat(2000), "|-".repeat(2000)),
            _ => "|\n".into(),
        }),
        same("headings", "# a\n"),
        same("empty headings", "#\n"),
        same("deep headings", "# a\n## b\n### c\n#### d\n##### e\n###### f\n\nx\n\n"),
        same("underlined headings", "a\n---\n"),
        same("headings underlined twice", "a\n===\n"),
        within("a long heading", "# x y", " and z", "\n\ntext"),
        same("rules", "---\n"),
        same("rules of stars", "* * *\n"),
        same("fences", "```\n"),
        same("fences of tildes", "~~~\na\n"),
        within("one code block", "```\n", "a = b\n", ""),
        same("indented code", "    a = b\n\n"),
        same("backslashes", "\\"),
        same("dollars", "$"),
        same("formulas left open", "$a{b "),
        same("formulas in pairs", "$$ a{"),
        varied("footnotes", |i| format!("[^a{i}]: x\n\n")),
        same("footnotes without text", "[^1] "),
        same("footnotes in footnotes", "[^a]: "),
        same("wiki links", "[[a|"),
        same("superscripts", "^a ~b "),
        same("definitions", "a\n: b\n\n"),
        same("definitions left open", ": a\n"),
        within("front matter", "---\n", "a: b\n", "---\n"),
        same("notes", "> [!NOTE]\n> a\n\n"),
        same("tasks", "- [ ] x\n"),
        same("addresses", "<http://a.b/c> "),
        same("tags left open", "<a href=\"b "),
        same("tags", "<a>"),
        same("comments left open", "<!-- a "),
        same("comments", "<!---->"),
        same("CDATA left open", "<![CDATA["),
        same("instructions left open", "<?a "),
        same("declarations left open", "<!A "),
        same("blocks of HTML", "<div>\n"),
        same("blocks of HTML and text", "<div>\n\na\n\n</div>\n\n"),
        same("entities", "&amp;"),
        same("entities left open", "&#"),
        same("hard breaks", "a  \n"),
        same("parentheses", "("),
        same("quotation marks", "\"a' "),
        same("directives", "::: a\n"),
    ]
}

pub fn plain() -> Vec<Input> {
    vec![
        same("words", WORDS),
        same("short words", "a "),
        same("lines", "a\n"),
        same("paragraphs of a letter", "a\n\n"),
        same("one letter", "x"),
        varied("letters without a space", |i| format!("{:x}", i.wrapping_mul(2_654_435_761))),
        same("letters with accents", "é"),
        same("combining marks", "\u{301}"),
        within("marks on one letter", "a", "\u{301}\u{302}", ""),
        same("line breaks", "\n"),
        same("lines of a space", " \n"),
        same("spaces", " "),
        same("tabs", "\t"),
        same("no-break spaces", "\u{a0}"),
        same("line separators", "\u{2028}"),
        same("zero-width spaces", "\u{200b}"),
        same("lines of a zero-width space", "\u{200b}\n"),
        same(
            "words and long gaps",
            "word                                                                          ",
        ),
        same("control characters", "\u{1}"),
        same("lines of a control character", "\u{1}\n"),
        same("Chinese", "漢字"),
        same("Thai", "สวัสดีครับ"),
        same("emoji", "🦀"),
        same("families", "👩\u{200d}👩\u{200d}👧"),
        same("flags", "🇩🇪"),
        same("right to left", "שלום "),
        same("full stops", "."),
        within("a full stop, then spaces", "Word.", " ", "1"),
        within("a full stop, then closing marks", "Word.", ")", "1"),
        same("sentences", "A. "),
        same("abbreviations", "a.b."),
        same("digits", "1"),
        same("underscores", "_"),
        same("numbers", "1,234.5 "),
        varied("words that grow", |i| "x".repeat(i % 3000 + 1) + " "),
        varied("a long line between short ones", |i| {
            if i % 20 == 19 { "word ".repeat(250) + "\n" } else { "a b\n".to_string() }
        }),
    ]
}

/// Files by the ending of their names.
#[allow(clippy::too_many_lines)] // a table
pub fn files() -> Vec<(&'static str, Vec<Input>)> {
    // Reading what is no code is limited by time.
    let code = |unit| vec![same("definitions", unit)];
    let markdown = vec![
        within("front matter", "---\n", "a: b\n", "---\nx"),
        same("front matter left open", "---\na: b\n"),
        same("headings", "# x\n\ntext\n"),
    ];
    vec![
        ("md", markdown),
        ("rst", restructured()),
        ("adoc", asciidoc()),
        (
            "vtt",
            vec![
                numbered(
                    "cues",
                    "WEBVTT\n\n",
                    |i| {
                        format!(
                            "00:{:02}:{:02}.000 --> 00:{:02}:59.000\n<v A{i}>word word.\n\n",
                            i / 60 % 60,
                            i % 60,
                            i / 60 % 60
                        )
                    },
                    "",
                ),
                within(
                    "cues that roll",
                    "WEBVTT\n\n",
                    "00:00:01.000 --> 00:00:02.000\none two\nthree four\n\n",
                    "",
                ),
                within("tags", "WEBVTT\n\n00:01.000 --> 00:02.000\n", "<i><b>x</b>", "\n"),
                within("one long cue", "WEBVTT\n\n00:01.000 --> 00:02.000\n", "words ", "\n"),
                within("notes", "WEBVTT\n\n", "NOTE x\n\n", ""),
            ],
        ),
        (
            "srt",
            vec![
                varied("cues", |i| {
                    format!(
                        "{i}\n00:{:02}:{:02},000 --> 00:59:59,000\nWord <i>word</i>.\n\n",
                        i / 60 % 60,
                        i % 60
                    )
                }),
                same("arrows", "00:00:01,000 --> 00:00:02,000\n"),
                same("numbers", "1\n\n"),
            ],
        ),
        (
            "eml",
            vec![
                within("headers", "Subject: x\n", "To: a@b.c\n", "\nx"),
                within("recipients", "To: ", "a <a@b.c>, ", "\n\nx"),
                within("a folded header", "Subject: ", "x\n ", "\n\nx"),
                within("encoded words", "Subject: ", "=?utf-8?q?x?= ", "\n\nx"),
                within("a body", "Subject: x\n\n", "Words of a line.\n", ""),
                within("parts", "Content-Type: multipart/mixed; boundary=b\n\n", "--b\n\nx\n", "--b--\n"),
                within("nested parts", "", "Content-Type: multipart/mixed; boundary=b\n\n--b\n", ""),
                within("messages in messages", "", "Content-Type: message/rfc822\n\n", "x"),
                within("quoted-printable", "Content-Transfer-Encoding: quoted-printable\n\n", "=3D=\n", ""),
            ],
        ),
        (
            "mbox",
            vec![
                same("messages", "From a@b.c Tue Jul  1 10:52:37 2025\nSubject: x\n\nText.\n\n"),
                same("beginnings", "From a\n"),
            ],
        ),
        (
            "rtf",
            vec![
                within("paragraphs", "{\\rtf1 ", "Words \\b bold\\b0  \\'e9 \\u8211?\\par\n", "}"),
                within("groups", "{\\rtf1 ", "{\\b x}", "}"),
                within("groups left open", "{\\rtf1 ", "{", "x"),
                within("rows", "{\\rtf1 ", "\\trowd\\cellx1\\cellx2 a\\cell b\\cell\\row\n", "}"),
                within("cells", "{\\rtf1 \\trowd ", "\\cellx1 a\\cell ", "\\row}"),
                within("fonts", "{\\rtf1{\\fonttbl", "{\\f1 A;}", "}x}"),
                within("styles", "{\\rtf1{\\stylesheet", "{\\s1 heading 1;}", "}x}"),
                within("hidden", "{\\rtf1 ", "{\\*\\x y}", "x}"),
            ],
        ),
        (
            "csv",
            vec![
                varied("rows", |i| format!("{i};\"two words\";3\n")),
                same("quotes", "\""),
                same("values", ",x"),
                same("lines", "\n"),
            ],
        ),
        (
            "json",
            vec![
                within("records", "[", "{\"a\": {\"b\": [1, \"two words\"]}},", "0]"),
                numbered("members", "{", |i| format!("\"a{i}\": 1.50,"), "\"z\": 0}"),
                within("escapes", "\"", "\\u00e9\\n", "\""),
            ],
        ),
        ("jsonl", vec![varied("lines", |i| format!("{{\"id\": {i}, \"text\": \"two words\"}}\n"))]),
        (
            "yaml",
            vec![
                varied("members", |i| format!("a{i}: word\n")),
                same("documents", "---\na: b\n"),
                numbered("anchors", "", |i| format!("a{i}: &x{i} [b]\nb{i}: *x{i}\n"), ""),
                within("one text", "a: |\n", "  words words\n", ""),
                within("a list in one line", "a: [", "b, ", "c]"),
            ],
        ),
        (
            "xml",
            vec![
                within("elements", "<r>", "<a b=\"c\">text &amp; more</a>\n", "</r>"),
                numbered("names", "<r>", |i| format!("<a{i}>x</a{i}>"), "</r>"),
                numbered("attributes", "<r", |i| format!(" a{i}=\"b\""), "/>"),
                within("CDATA", "<r>", "<![CDATA[x]]>", "</r>"),
                within("elements left open", "<r>", "<a>", "x"),
            ],
        ),
        ("rs", code("/// A.\npub fn a(x: u8) -> u8 { x + 1 }\n\nimpl<T> B<T> {\n    fn b(&self) {}\n}\n")),
        ("py", code("@x\ndef f(a, b=1):\n    return a\n\nclass C(D):\n    def g(self):\n        pass\n\n")),
        ("js", code("export function f(a) { return a; }\nconst g = (x) => { h(x); };\nclass A { m() {} }\n")),
        ("tsx", code("export const f = async (x: I<T>) => <div>{x}</div>;\ninterface I<T> { a: string }\n")),
        (
            "go",
            code(
                "// F does.\nfunc (t *T) F(a int) (int, error) { return a, nil }\n\ntype T struct{ a int }\n",
            ),
        ),
        ("java", code("class A<T> extends B {\n  @Override int m(int x) { return x; }\n}\n")),
        ("c", code("static int *f(struct s *x) { return &x->a; }\nstruct s { int a; };\n#define A(x) x\n")),
        ("cpp", code("namespace n {\ntemplate <class T> class A : public B<T> { void m() {} };\n}\n")),
        ("cs", code("namespace N {\n  public class C { public int P { get; set; } void M() { } }\n}\n")),
        ("rb", code("module M\n  class C < D\n    def m(a)\n      a\n    end\n  end\nend\n")),
        ("php", code("<?php\nfunction f($a) { return $a; }\nclass C { public function m() {} }\n?>\n<p>x\n")),
        ("sh", code("f() {\n  cat <<EOF\n$1\nEOF\n}\nf \"$@\" | sed 's/a/b/'\n")),
    ]
}

fn restructured() -> Vec<Input> {
    vec![
        same("sections", "Title\n=====\n\nSome *text* and ``code`` of `a link <http://a.b>`_.\n\n"),
        varied("kinds of underlines", |i| {
            let mark = ["=", "-", "~", "^", "\"", "'"][i % 6];
            format!("T{i}\n{}\n\n", mark.repeat(6))
        }),
        varied("lists in lists", |i| format!("{}- x\n\n", "  ".repeat(i % 9))),
        same("deeper and deeper", "- "),
        varied("indented more and more", |i| format!("{}x\n\n", " ".repeat(i % 100))),
        same("notes", ".. note:: Be good.\n\n   Very.\n\n"),
        varied("footnotes", |i| format!("Text [{i}]_.\n\n.. [{i}] Foot.\n\n")),
        varied("targets", |i| format!(".. _a{i}: http://a.b\n\n`a{i}`_\n\n")),
        varied("substitutions", |i| format!(".. |a{i}| replace:: b\n\n|a{i}|\n\n")),
        within("rows of a grid", "+---+---+\n", "| a | b |\n+---+---+\n", ""),
        within("rows of a table", "=== ===\n", "a   b\n", "=== ===\n"),
        same("backquotes", "`"),
        same("stars", "*a "),
        same("lines of text", "words words\n"),
        same("fields", ":a: b\n"),
        same("colons", "::\n\n"),
    ]
}

fn asciidoc() -> Vec<Input> {
    vec![
        same("sections", "== Title\n\nSome *text* and `code` of http://a.b[a link].\n\n"),
        same("lists", "* a\n** b\n. c\n"),
        varied("deeper and deeper", |i| format!("{} a\n", "*".repeat(i % 50 + 1))),
        numbered("attributes", "", |i| format!(":a{i}: b\n{{a{i}}}\n\n"), ""),
        numbered(
            "attributes of attributes",
            ":a0: xxxxxxxxxx\n",
            |i| format!(":a{}: {{a{i}}}{{a{i}}}\n", i + 1),
            "\n{a9}{a99}\n",
        ),
        within("rows", "|===\n", "| a | b\n", "|===\n"),
        within("a table left open", "|===\n", "| a | b\n", ""),
        same("blocks", "----\nx\n----\n"),
        same("blocks left open", "----\n\n====\n\n****\n\n"),
        same("terms", "a:: b\n"),
        same("stars", "*a "),
        same("brackets", "["),
        same("conditions", "ifdef::a[]\nx\nendif::[]\n"),
        same("conditions left open", "ifdef::a[]\n"),
        same("comments", "// x\n"),
        same("lines of text", "words words\n"),
        same("continuations", "* a\n+\nb\n"),
    ]
}
