//! Extraction services: their requests, and their replies in the shapes that they publish.

use super::super::*;
use super::json_of;
use kb_types::extractor::{ExtractorConfig, PageText, TextType};
use serde_json::json;

fn extractor(provider: &str, config: Value) -> Extractor {
    Extractor {
        id: "ocr".into(),
        provider: provider.into(),
        model: "m".into(),
        base_url: None,
        config: ExtractorConfig::parse(&config).unwrap(),
    }
}

fn api(provider: &str) -> &'static dyn ExtractApi {
    find(ServiceKind::Extractor, provider).unwrap().extract.unwrap()
}

fn file() -> File {
    File {
        name: Some("scans/Übersicht 1.pdf".into()),
        content_type: Some("application/pdf".into()),
        bytes: b"%PDF-1.7 \xff\0".to_vec(),
        max_text: 1000,
        ..File::default()
    }
}

fn request(provider: &str, config: Value) -> HttpRequest {
    api(provider).request(&extractor(provider, config), "http://h/x".into(), &file())
}

/// The body of a request with a file, of which the file itself is read.
fn form_of(request: &HttpRequest) -> String {
    let Body::Bytes { content_type, bytes } = &request.body else { panic!("it is JSON") };
    assert!(content_type.starts_with("multipart/form-data; boundary="), "{content_type}");
    let bytes = bytes.as_slice();
    let at = bytes.windows(file().bytes.len()).position(|part| part == file().bytes);
    assert!(at.is_some(), "the file is not in the form");
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(provider: &str, config: Value, body: &str) -> Result<ServiceText, Unusable> {
    api(provider).read(&extractor(provider, config), body.as_bytes())
}

fn pages(text: &ServiceText) -> Vec<(Option<u32>, &str)> {
    text.pages.iter().map(|page| (page.number, page.text.trim())).collect()
}

fn problems(provider: &str, config: Value) -> Vec<String> {
    api(provider).problems(&extractor(provider, config))
}

#[test]
fn tika_gets_the_file_by_put_and_its_html_has_pages() {
    let sent = request("tika", json!({}));
    assert_eq!((sent.method.as_str(), sent.url.as_str()), ("PUT", "http://h/x"));
    assert_eq!(
        sent.headers,
        [
            ("Accept", "text/html".to_string()),
            ("Content-Disposition", "attachment; filename=%C3%9Cbersicht%201.pdf".to_string())
        ]
    );
    let bytes = Body::Bytes { content_type: "application/pdf".into(), bytes: file().bytes };
    assert_eq!(sent.body, bytes);
    assert_eq!(request("tika", json!({"text_type": "text/plain"})).headers[0].1, "text/plain");
    let reply = r#"<html xmlns="http://www.w3.org/1999/xhtml"><head><meta name="pdf:PDFVersion" content="1.4"/>
<title>Minutes</title></head><body><div class="page"><p/><p>One &amp; two</p></div>
<div class="page"><p/></div><div class="page"><p>Three</p></div></body></html>"#;
    let text = read("tika", json!({}), reply).unwrap();
    assert_eq!(text.text_type, TextType::Html);
    assert_eq!(
        text.pages.iter().map(|page| page.number).collect::<Vec<_>>(),
        [None, Some(1), Some(2), Some(3)]
    );
    assert!(text.pages[0].text.contains("<title>Minutes") && text.pages[1].text.contains("One &amp; two"));
    assert!(text.pages[3].text.contains("Three"));
    let plain = read("tika", json!({"text_type": "text/plain"}), "\nOne\n").unwrap();
    assert_eq!((plain.text_type, pages(&plain)), (TextType::Plain, vec![(None, "One")]));
    // Status 204.
    assert_eq!(read("tika", json!({}), "").unwrap().size(), 0);
    assert!(matches!(read("tika", json!({}), "{\"error\": \"x\"}"), Err(Unusable::Unreadable(_))));
    let latin1 = api("tika").read(&extractor("tika", json!({})), b"<html>\xe4");
    assert!(matches!(latin1, Err(Unusable::Unreadable(_))));
    assert_eq!(problems("tika", json!({"text_type": "text/markdown"})).len(), 1);
}

#[test]
fn docling_gets_a_form_and_its_markdown_has_pages() {
    let sent = request("docling", json!({"form": {"ocr_lang": ["de", "en"], "do_ocr": true}}));
    let form = form_of(&sent);
    for (name, value) in [
        ("to_formats", "md"),
        ("image_export_mode", "placeholder"),
        ("md_page_break_placeholder", "<!-- page of kb -->"),
        ("ocr_lang", "de"),
        ("ocr_lang", "en"),
        ("do_ocr", "true"),
    ] {
        assert!(form.contains(&format!("name=\"{name}\"\r\n\r\n{value}\r\n")), "{name}: {form}");
    }
    assert!(
        form.contains("name=\"files\"; filename=\"Übersicht 1.pdf\"\r\nContent-Type: application/pdf\r\n")
    );
    let reply = |status: &str, text: Value| {
        json!({"document": {"filename": "a.pdf", "md_content": text, "json_content": null, "html_content": null,
                            "text_content": null, "doctags_content": null},
               "status": status, "processing_time": 1.5, "timings": {},
               "errors": [{"component_type": "document_backend", "module_name": "x", "error_message": "bad\nfile"}]})
        .to_string()
    };
    let both = "# A\n\n<!-- image -->\n\n<!-- page of kb -->\n\nB";
    let text = read("docling", json!({}), &reply("success", json!(both))).unwrap();
    assert_eq!(pages(&text), [(Some(1), "# A"), (Some(2), "B")]);
    assert!(text.text_type == TextType::Markdown && !text.is_partial);
    let text = read("docling", json!({}), &reply("partial_success", json!("A"))).unwrap();
    assert_eq!((pages(&text), text.is_partial), (vec![(None, "A")], true));
    let failed = read("docling", json!({}), &reply("failure", json!(null))).unwrap_err();
    assert_eq!(failed, Unusable::Rejected("docling could not convert the file: bad file".into()));
    let failed = read("docling", json!({}), r#"{"status": "failure"}"#).unwrap_err();
    assert_eq!(failed, Unusable::Rejected("docling could not convert the file".into()));
    for body in ["<html>", "{}", r#"{"status": "done"}"#, &reply("success", json!(null))] {
        assert!(matches!(read("docling", json!({}), body), Err(Unusable::Unreadable(_))), "{body}");
    }
    assert_eq!(problems("docling", json!({"form": {"to_formats": "html", "do_ocr": true}})).len(), 1);
}

#[test]
fn the_elements_of_unstructured_become_pages() {
    let sent = request("unstructured", json!({"form": {"strategy": "hi_res", "languages": ["deu", "eng"]}}));
    let form = form_of(&sent);
    for (name, value) in [
        ("output_format", "application/json"),
        ("strategy", "hi_res"),
        ("languages", "deu"),
        ("languages", "eng"),
    ] {
        assert!(form.contains(&format!("name=\"{name}\"\r\n\r\n{value}\r\n")), "{name}: {form}");
    }
    let metadata =
        |page: Option<u32>| json!({"filetype": "application/pdf", "page_number": page, "filename": "a"});
    let reply = json!([
        {"type": "Title", "element_id": "1", "text": "A < B", "metadata": metadata(Some(1))},
        {"type": "NarrativeText", "element_id": "2", "text": "one\ntwo", "metadata": metadata(Some(1))},
        {"type": "PageBreak", "element_id": "3", "text": "", "metadata": metadata(Some(1))},
        {"type": "Title", "element_id": "4", "text": "C", "metadata": {"page_number": 2, "category_depth": 1}},
        {"type": "ListItem", "element_id": "5", "text": "item", "metadata": metadata(Some(2))},
        {"type": "Table", "element_id": "6", "text": "x y",
         "metadata": {"page_number": 2, "text_as_html": "<table><tr><td>x</td></tr></table>"}},
        {"type": "Table", "element_id": "7", "text": "plain", "metadata": metadata(Some(4))},
    ]);
    let text = read("unstructured", json!({}), &reply.to_string()).unwrap();
    assert_eq!(text.text_type, TextType::Html);
    assert_eq!(
        pages(&text),
        [
            (Some(1), "<h1>A &lt; B</h1><p>one<br>two</p>"),
            (Some(2), "<h2>C</h2><ul><li>item</li></ul><table><tr><td>x</td></tr></table>"),
            (Some(4), "<p>plain</p>"),
        ]
    );
    let text =
        read("unstructured", json!({}), r#"[{"type": "NarrativeText", "text": "a", "element_id": "1"}]"#);
    assert_eq!(pages(&text.unwrap()), [(None, "<p>a</p>")]);
    assert_eq!(read("unstructured", json!({}), "[]").unwrap().size(), 0);
    for body in ["", "{\"detail\": \"no\"}", "[{\"text\": \"a\"}]"] {
        assert!(matches!(read("unstructured", json!({}), body), Err(Unusable::Unreadable(_))), "{body}");
    }
    assert_eq!(problems("unstructured", json!({"form": {"chunking_strategy": "by_title"}})).len(), 1);
}

#[test]
fn provider_http_sends_a_file_as_the_config_says() {
    let sent = request("http", json!({"method": "PUT"}));
    assert_eq!(sent.method, "PUT");
    assert_eq!(sent.body, Body::Bytes { content_type: "application/pdf".into(), bytes: file().bytes });
    let sent = request("http", json!({"send_as": "form", "file_field": "scan", "form": {"lang": "de"}}));
    let form = form_of(&sent);
    assert!(
        form.contains("name=\"scan\"; filename=") && form.contains("name=\"lang\"\r\n\r\nde\r\n"),
        "{form}"
    );
    assert!(form_of(&request("http", json!({"send_as": "form"}))).contains("name=\"file\"; filename="));
    let body = json!({
        "model": "{{model}}",
        "document": {"type": "document_url", "document_url": "data:{{content_type}};base64,{{base64}}"},
        "as it is": [1, null, "{{other}} {{ {{filename}}"],
    });
    let mut hostile = file();
    hostile.name = Some("{{model}}.pdf".into());
    let extractor = extractor("http", json!({"send_as": "json", "body": body}));
    let sent = api("http").request(&extractor, "http://h".into(), &hostile);
    assert_eq!(
        json_of(sent),
        json!({
            "model": "m",
            "document": {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0xLjcg/wA="},
            "as it is": [1, null, "{{other}} {{ {{model}}.pdf"],
        })
    );
    for config in [
        json!({"send_as": "json"}),
        json!({"send_as": "json", "body": {"a": "{{model}}"}}),
        json!({"body": {"a": "{{base64}}"}}),
        json!({"form": {"a": 1}}),
        json!({"send_as": "json", "body": {"a": "{{base64}}"}, "file_field": "a"}),
        json!({"method": "GET"}),
    ] {
        assert_eq!(problems("http", config.clone()).len(), 1, "{config}");
    }
}

#[test]
fn provider_http_finds_the_text_where_the_config_says() {
    let text = read("http", json!({}), "plain words").unwrap();
    assert_eq!((text.text_type, pages(&text)), (TextType::Plain, vec![(None, "plain words")]));
    let config = json!({"text_pointer": "/result/text", "text_type": "text/markdown"});
    let text = read("http", config.clone(), r##"{"result": {"text": "# A"}}"##).unwrap();
    assert_eq!((text.text_type, pages(&text)), (TextType::Markdown, vec![(None, "# A")]));
    assert_eq!(read("http", config.clone(), r#"{"result": {"text": null}}"#).unwrap().size(), 0);
    for body in ["not json", "{}", r#"{"result": {"text": 1}}"#] {
        assert!(matches!(read("http", config.clone(), body), Err(Unusable::Unreadable(_))), "{body}");
    }
    let config = json!({"pages_pointer": "/pages", "text_pointer": "/markdown"});
    let body =
        r#"{"pages": [{"index": 0, "markdown": "A"}, {"index": 1, "markdown": ""}, {"markdown": "C"}]}"#;
    let text = read("http", config.clone(), body).unwrap();
    assert_eq!(pages(&text), [(Some(1), "A"), (Some(2), ""), (Some(3), "C")]);
    for body in ["{}", r#"{"pages": {}}"#, r#"{"pages": [{"text": "A"}]}"#] {
        assert!(matches!(read("http", config.clone(), body), Err(Unusable::Unreadable(_))), "{body}");
    }
    let text = read("http", json!({"pages_pointer": ""}), r#"["A", "B"]"#).unwrap();
    let expected = |number, text: &str| PageText { number: Some(number), text: text.into() };
    assert_eq!(text.pages, [expected(1, "A"), expected(2, "B")]);
}
