use super::*;

fn parse(html: &str) -> Result<Handle> {
    super::parse(html, &Bounds::none())
}

#[test]
fn omitted_end_tags_do_not_add_depth() {
    let units =
        ["<p>a <b>c</b>", "<li>x", "<tr><td>a<td>b", "<dt>a<dd>b", "<br><img src='a>b'>", "<option>x"];
    for unit in units {
        assert!(parse(&unit.repeat(5000)).is_ok(), "{unit}");
        assert!(parse(&format!("<ul><table><dl>{}", unit.repeat(5000))).is_ok(), "{unit}");
    }
    assert!(parse(&format!("<!-- {0} --><script>{0}</script><p title='{0}'>", "<div>".repeat(1000))).is_ok());
    assert!(parse(&format!("{}{}", "<div>".repeat(150), "</div>".repeat(150))).is_ok());
}

#[test]
fn depth_is_found_however_it_is_hidden_and_at_little_cost() {
    for (head, unit) in [
        ("", "<div>"),
        ("", "<div/>"),
        ("", "<b>"),
        ("<!-->", "<div>"),
        ("<p ='>", "<div>"),
        ("<svg><style>", "<g>"),
        ("<table>", "<div>"),
        ("<svg><desc><style></svg><script></style>", "<div>"),
        ("<template>", "<div>"),
        ("<div><math><mtext>", "<section>"),
        ("", "<ruby><rt>"),
        ("", "<a><div>"),
        ("", "<table><tr><td>"),
    ] {
        let html = format!("{head}{}", unit.repeat(100_000));
        let bounds = Bounds::none();
        assert!(super::parse(&html, &bounds).is_err(), "{head}{unit}");
        assert!(bounds.spent() < 100_000, "{head}{unit}: {} bytes were read", bounds.spent());
    }
}

#[test]
fn formatting_that_is_never_closed_does_not_fill_the_memory() {
    let marks: String = (0..150).map(|i| format!("<b id={i}>")).collect();
    assert!(parse(&format!("<p>{marks}{}", "<p>x".repeat(100_000))).is_err());
}

fn attributes(count: usize) -> String {
    (0..count).map(|i| format!(" a{i}=1")).collect()
}

#[test]
fn too_many_attributes_are_seen_before_the_tag_ends_wherever_it_stands() {
    for (head, tail) in [
        ("<p", ">x"),
        ("x &am<p", ">x"),
        ("<p title='<<<<'", ">x"),
        ("<script>if (a<b) \"</script><p", ">x"),
        ("<!-- \" --><p", ">x"),
        ("<title>\"</title></p", ">x"),
        ("<svg><![CDATA[ \" ]]><p", ">x"),
        ("<style><!-- \" </style/", ">x"),
        ("<textarea>'</textarea", ">x"),
        ("<body>", "<body"),
    ] {
        let many = attributes(100_000);
        let html =
            if tail == "<body" { format!("{head}{tail}{many}>") } else { format!("{head}{many}{tail}") };
        let bounds = Bounds::none();
        let problem = super::parse(&html, &bounds).map(drop).unwrap_err().to_string();
        assert!(problem.contains("more than 256 attributes"), "{head}: {problem}");
        assert!(bounds.spent() < 10_000, "{head}: {} bytes were read", bounds.spent());
        let one_more = format!("{head}{}{}>x", if tail == "<body" { tail } else { "" }, attributes(257));
        assert!(parse(&one_more).is_err(), "{head}");
        let few = attributes(250);
        assert!(parse(&format!("{head}{few}>x")).is_ok(), "{head}");
    }
}

#[test]
fn text_that_only_looks_like_attributes_does_not_count() {
    let words = "lorem ipsum = 'dolor ".repeat(20_000);
    for html in [
        format!("<!-- {words} --><p>x"),
        format!("<script>a <b {words}</script><p>x"),
        format!("<p title=\"{words}\">x"),
        format!("<title>{words}</title>"),
        format!("<p>a < b {words}"),
        format!("<svg><![CDATA[<a {words}]]></svg>"),
        format!("<?xml {words}?>"),
    ] {
        assert!(parse(&html).is_ok(), "{}", &html[..20]);
    }
}

#[test]
fn attributes_of_repeated_body_tags_are_not_collected() {
    let html: String = (0..2000).map(|i| format!("<body b{i}=1 c{i}=2><html d{i}=3 e{i}=4>x")).collect();
    let document = parse(&html).unwrap();
    walk(&document, &Bounds::none(), |node, _| {
        if let NodeData::Element { name, attrs, .. } = &node.data {
            assert_eq!(attrs.borrow().len(), 0, "{:?}", name.local);
        }
    })
    .unwrap();
}

#[test]
fn nodes_and_unknown_names_have_a_limit() {
    assert!(parse(&"<br>&".repeat(100_000)).is_err());
    let names = |count: usize| {
        (0..count).map(|i| format!("<longname{i}>some words</longname{i}>")).collect::<String>()
    };
    assert!(parse(&names(9_000)).is_ok());
    assert!(parse(&names(11_000)).map(drop).unwrap_err().to_string().contains("unknown element names"));
}

#[test]
fn parsing_stops_when_the_time_of_the_document_is_used_up() {
    let limits = kb_types::Limits { time: Some(std::time::Duration::ZERO), ..kb_types::Limits::none() };
    let bounds = Bounds::begin(limits);
    let error = super::parse(&"<p>some words ".repeat(1_000_000), &bounds).map(drop).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert!(bounds.spent() < 100_000, "{}", bounds.spent());
}
