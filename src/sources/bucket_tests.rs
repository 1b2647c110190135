use super::*;

fn allowed() -> Allowed {
    Allowed { dirs: Vec::new(), hosts: Default::default(), max_size: 100 }
}

fn parse(kind: SourceType, config: Value) -> Result<BucketConfig, Vec<String>> {
    let mut fields = Fields::new("config", &config);
    let config = BucketConfig::parse(kind, &mut fields);
    let problems = fields.finish();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn reader(config: Value) -> BucketReader {
    let config = parse(SourceType::S3, config).unwrap();
    config.reader(Access::default(), Client::default(), &allowed()).unwrap()
}

#[test]
fn a_bucket_is_named_by_its_type_or_by_its_provider() {
    let config = json!({"provider": "gcs", "bucket": "b", "prefix": "docs/", "secret": "kb:s"});
    let named = parse(SourceType::CloudStorage, config.clone()).unwrap();
    assert_eq!(named.bucket.storage, Storage::Gcs);
    assert_eq!(Value::Object(named.to_json()), config);
    for (kind, config) in [
        (SourceType::S3, json!({"bucket": "b", "region": "r", "path": "a/**", "anonymous": true})),
        (SourceType::Gcs, json!({"bucket": "b", "secret": "file:key"})),
        (
            SourceType::Azure,
            json!({"bucket": "b", "account": "a", "endpoint": "http://x/a", "secret": "env:A"}),
        ),
    ] {
        assert_eq!(Value::Object(parse(kind, config.clone()).unwrap().to_json()), config);
    }
    for (kind, wrong) in [
        (SourceType::CloudStorage, json!({"bucket": "b", "secret": "kb:s"})),
        (SourceType::CloudStorage, json!({"bucket": "b", "provider": "ftp", "secret": "kb:s"})),
        (SourceType::S3, json!({"bucket": "b", "provider": "gcs", "secret": "kb:s"})),
        (SourceType::S3, json!({"bucket": "b"})),
        (SourceType::S3, json!({"bucket": "b", "secret": "kb:s", "anonymous": true})),
        (SourceType::S3, json!({"bucket": "b", "secret": "kb:s", "path": "a/["})),
        (SourceType::S3, json!({"bucket": "b", "secret": "AKID:key"})),
        (SourceType::S3, json!({"bucket": "b", "secret": {"id": "AKID"}, "anonymous": true})),
        (SourceType::S3, json!({"bucket": "b", "endpoint": "https://AKID:key@host", "secret": "kb:s"})),
    ] {
        let problems = parse(kind, wrong.clone()).unwrap_err();
        assert!(problems.len() == 1 && !problems[0].contains("AKID"), "{wrong}: {problems:?}");
    }
}

#[test]
fn the_prefix_that_is_listed_is_the_longest_that_all_wanted_keys_have() {
    let prefix = |config: Value| {
        let mut config = config;
        config["bucket"] = "b".into();
        config["anonymous"] = true.into();
        reader(config).prefix
    };
    assert_eq!(prefix(json!({})), "");
    assert_eq!(prefix(json!({"path": "docs/a*/**/*.pdf"})), "docs/");
    assert_eq!(prefix(json!({"path": "docs/one.pdf"})), "docs/one.pdf");
    assert_eq!(prefix(json!({"path": "docs/sub/*.pdf", "prefix": "docs/"})), "docs/sub/");
    assert_eq!(prefix(json!({"path": "docs/*.pdf", "prefix": "docs/2026"})), "docs/2026");
}

#[test]
fn only_matching_objects_are_listed_each_once_and_in_order() {
    let reader = reader(json!({"bucket": "b", "path": "docs/**/*.md", "anonymous": true}));
    let object = |key: &str| Object { key: key.into(), size: 3, version: "e".into() };
    let mut listing = Listing::default();
    let failed = vec![("docs/../x.md".into(), "why".into()), ("docs/./x.pdf".into(), "why".into())];
    reader.take_page(
        vec![object("docs/b.md"), object("docs/a/c.md"), object("docs/x.pdf")],
        failed,
        &mut listing,
    );
    reader.take_page(vec![object("docs/b.md"), object("docs//.md")], Vec::new(), &mut listing);
    let listing = ended(listing);
    let paths: Vec<&str> = listing.items.iter().map(|item| item.path.as_str()).collect();
    assert_eq!(paths, ["docs//.md", "docs/a/c.md", "docs/b.md"]);
    assert_eq!((listing.failed.len(), listing.items[0].version.as_deref()), (1, Some("3 e")));
}

#[test]
fn an_object_is_what_its_parts_of_one_version_are() {
    let wanted = Wanted { path: "a".into(), known: None, size: 0 };
    let part = |bytes: &[u8], size: u64, etag: &str| ObjectPart::Read {
        bytes: bytes.to_vec(),
        size,
        etag: Some(etag.into()),
        content_type: Some("binary/octet-stream".into()),
        is_packed: false,
    };
    let read = |parts: Vec<ObjectPart>| {
        let mut reading = Reading::new(&wanted);
        for part in parts {
            assert_eq!(reading.end, None);
            reading.take(part, 100);
        }
        reading.end
    };
    let found = |bytes: &[u8], version: &str| {
        Some(Content::Read(Found { bytes: bytes.to_vec(), version: version.into(), ..Found::default() }))
    };
    assert_eq!(read(vec![part(b"", 0, "e")]), found(b"", "0 e"));
    assert_eq!(read(vec![part(b"ab", 4, "e"), part(b"cd", 4, "e")]), found(b"abcd", "4 e"));
    assert_eq!(read(vec![part(b"ab", 4, "e"), ObjectPart::Changed, part(b"x", 1, "f")]), found(b"x", "1 f"));
    assert_eq!(read(vec![part(b"a", 101, "e")]), Some(Content::TooLarge(101)));
    assert_eq!(read(vec![ObjectPart::Gone]), Some(Content::Gone));
    let packed = |bytes: &[u8]| ObjectPart::Read {
        bytes: bytes.to_vec(),
        size: bytes.len() as u64,
        etag: Some("e".into()),
        content_type: Some("text/html".into()),
        is_packed: true,
    };
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let small = gzip(b"unpacked");
    let Some(Content::Read(unpacked)) = read(vec![packed(&small)]) else { panic!() };
    assert_eq!(
        (unpacked.bytes.as_slice(), unpacked.content_type.as_deref()),
        (&b"unpacked"[..], Some("text/html"))
    );
    assert_eq!(unpacked.version, format!("{} e", small.len()));
    assert_eq!(read(vec![packed(&gzip(&[0; 5000]))]), Some(Content::TooLarge(101)));
    let unreadable = |parts| matches!(read(parts), Some(Content::Unreadable(_)));
    assert!(unreadable(vec![part(b"ab", 4, "e"), part(b"cd", 4, "f")]));
    assert!(unreadable(vec![part(b"", 4, "e")]));
    assert!(unreadable(vec![packed(b"no gzip")]));
    assert!(unreadable(vec![ObjectPart::Changed, ObjectPart::Changed, ObjectPart::Changed]));
    assert!(unreadable(vec![ObjectPart::Failed("why".into())]));
}
