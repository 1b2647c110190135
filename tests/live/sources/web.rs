//! Pages of the web: a knowledge base follows a site, whatever its server does.

use super::site::{Answer, ENDLESS, Site};
use super::{counts, failures, ingest, ready};
use crate::support::{APP, Cluster, Db, PRELOAD, SOON, assert_sound, signal, until};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::Write;

/// A cluster that may ask this machine, with knowledge base k, and a site.
fn with_site(settings: &[&str]) -> Option<(Cluster, Db, Site)> {
    let all = [&["kb.allowed_hosts = '127.0.0.1, *.example.com'"][..], settings].concat();
    let cluster = Cluster::start(&all)?;
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    Some((cluster, db, Site::start()))
}

fn create(db: &mut Db, config: &str) {
    db.run(&format!("SELECT kb.create_source('k', 's', 'url', '{config}')"));
}

fn urls(site: &Site, paths: &[&str], more: &str) -> String {
    let urls: Vec<String> = paths.iter().map(|path| format!("\"{}{path}\"", site.url)).collect();
    format!("{{\"urls\": [{}], \"rate\": 1000, \"robots\": false{more}}}", urls.join(", "))
}

/// The paths of the documents that are ready, and their texts.
fn pages(db: &mut Db, site: &Site) -> Vec<String> {
    ready(db).iter().map(|page| page.replace(&format!("s/{}", site.url), "")).collect()
}

fn failed(db: &mut Db, site: &Site) -> Vec<String> {
    failures(db).iter().map(|page| page.replace(&format!("s/{}", site.url), "")).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A PDF of one page, all of it printable.
fn pdf(text: &str) -> String {
    let content = format!("BT /F1 24 Tf 72 700 Td ({text}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_string(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_string(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>".to_string(),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_string(),
    ];
    let (mut file, mut places) = ("%PDF-1.4\n".to_string(), Vec::new());
    for (number, object) in objects.iter().enumerate() {
        places.push(file.len());
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", number + 1));
    }
    let table = file.len();
    file.push_str(&format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1));
    places.iter().for_each(|place| file.push_str(&format!("{place:010} 00000 n \n")));
    file.push_str(&format!(
        "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n",
        objects.len() + 1
    ));
    file
}

#[test]
fn unchanged_pages_cost_one_conditional_request_each_and_nothing_else() {
    let Some((_cluster, mut db, site)) = with_site(&[]) else { return };
    let other = Site::start();
    for n in 0..150 {
        site.html(&format!("/{n}"), &format!("<p>page {n}</p>"));
        other.html(&format!("/{n}"), &format!("<p>other {n}</p>"));
    }
    // One without an ETag is known again by its bytes.
    site.answer("/plain", Answer::Page("text/plain".into(), "plain".into(), false));
    let mut all: Vec<String> =
        (0..150).flat_map(|n| [format!("{}/{n}", site.url), format!("{}/{n}", other.url)]).collect();
    all.push(format!("{}/plain", site.url));
    let list = all.iter().map(|url| format!("\"{url}\"")).collect::<Vec<_>>().join(", ");
    create(&mut db, &format!(r#"{{"urls": [{list}], "rate": 1000, "metadata": {{"of": "site"}}}}"#));
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [301, 301, 0, 0, 0, 0]);
    let row: String = db.one(&format!(
        "SELECT concat_ws(' ', uri, content_type, metadata) FROM kb.documents WHERE external_id = 's/{}/7'",
        site.url
    ));
    assert_eq!(row, format!(r#"{}/7 text/html {{"of": "site"}}"#, site.url));
    let chunks: String = db.one("SELECT string_agg(chunk_id::text, ' ' ORDER BY chunk_id) FROM kb.chunks");
    drop((site.take_seen(), other.take_seen()));
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [301, 0, 0, 301, 0, 0]);
    let mut seen = [site.take_seen(), other.take_seen()].concat();
    seen.sort();
    let plain = ("/plain".to_string(), false);
    assert!(seen.contains(&plain));
    seen.retain(|request| *request != plain);
    assert_eq!(seen.len(), 300);
    assert!(seen.iter().all(|(_, is_conditional)| *is_conditional), "{seen:?}");
    let now: String = db.one("SELECT string_agg(chunk_id::text, ' ' ORDER BY chunk_id) FROM kb.chunks");
    assert_eq!(now, chunks);
    // A page that changes, and one that is gone.
    site.html("/3", "<p>page 3 is new</p>");
    other.remove("/4");
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [301, 0, 1, 299, 1, 0]);
    assert_eq!(db.found("k", "page 3 is new", 1), [format!("s/{}/3", site.url)]);
}

#[test]
fn a_page_that_fails_keeps_its_document_and_others_are_read() {
    let Some((_cluster, mut db, site)) = with_site(&["kb.max_document_size = '100kB'"]) else { return };
    let faulty = [
        "/metadata",
        "/private",
        "/loop",
        "/endless",
        "/false",
        "/bomb",
        "/large",
        "/busy",
        "/never",
        "/error",
        "/stuck",
        "/certain",
    ];
    for path in faulty {
        site.html(path, "<p>as it was</p>");
    }
    site.html("/asked", "<p>by the name that was asked</p>");
    site.html("/strange%20%22%3C'%C3%A4?x=%00%0A&y=%27--", "<p>strange</p>");
    site.put("/paper", "text/html", pdf("A paper on harbors"));
    let strange = r#"/strange \"<''ä?x=%00%0A&y=''--#fragment"#;
    let paths = [&faulty[..], &["/asked", strange, "/paper"]].concat();
    create(&mut db, &urls(&site, &paths, r#", "timeout_ms": 2000"#));
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [15, 15, 0, 0, 0, 0], "{:?}", failures(&mut db));
    let paper: String = db.one(&format!(
        "SELECT concat_ws(' ', content_type, metadata ->> 'content_type_claimed', content) FROM kb.documents \
         WHERE external_id = 's/{}/paper'",
        site.url
    ));
    assert!(
        paper.starts_with("application/pdf text/html") && paper.contains("A paper on harbors"),
        "{paper}"
    );
    let before = pages(&mut db, &site);
    site.redirect("/metadata", "http://169.254.169.254/latest/meta-data/");
    site.redirect("/private", "http://10.1.2.3/");
    site.redirect("/loop", "/loop");
    let raw = |head: &str, body: &[u8]| Answer::Raw([head.as_bytes(), body].concat());
    site.answer("/endless", raw("HTTP/1.1 200 X\r\n\r\n", ENDLESS));
    site.answer("/false", raw("HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\n", b"short"));
    let bomb = gzip(&vec![b' '; 50_000_000]);
    let head = format!("HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    site.answer("/bomb", raw(&head, &bomb));
    site.html("/large", &"x".repeat(200_000));
    site.status("/busy", 429, "retry-after: 1\r\n");
    site.status("/never", 403, "");
    site.status("/error", 501, "");
    site.hold("/stuck");
    site.redirect("/certain", "https://127.0.0.1:1/");
    site.redirect("/asked", "/moved");
    site.html("/moved", "<p>from where it was moved to</p>");
    let run_no = ingest(&mut db);
    site.release();
    assert_eq!(counts(&mut db, run_no), [15, 0, 1, 2, 0, 12]);
    let says = [
        ("/bomb", "bytes"),
        ("/busy", "status 429"),
        ("/certain", "cannot be reached"),
        ("/endless", "bytes"),
        ("/error", "status 501"),
        ("/false", "connection failed"),
        ("/large", "bytes"),
        ("/loop", "redirects more than"),
        ("/metadata", "169.254.169.254"),
        ("/never", "status 403"),
        ("/private", "10.1.2.3"),
        ("/stuck", "did not answer in time"),
    ];
    let failed = failed(&mut db, &site);
    assert_eq!(failed.len(), says.len(), "{failed:?}");
    for ((path, says), failed) in says.iter().zip(&failed) {
        assert!(failed.starts_with(&format!("{path}: ")) && failed.contains(says), "{says}: {failed}");
    }
    // They have the texts that they had, and are found.
    let texts: i64 = db.one("SELECT count(*) FROM kb.documents WHERE content LIKE '%as it was%'");
    assert_eq!((texts, before.len()), (12, 15));
    assert_eq!(db.found("k", "from where it was moved to", 1), [format!("s/{}/asked", site.url)]);
    // They come back by themselves.
    for path in faulty {
        site.html(path, "<p>as it was</p>");
    }
    let run_no = ingest(&mut db);
    assert_eq!((counts(&mut db, run_no)[5], failures(&mut db)), (0, vec![]));
}

#[test]
fn a_sitemap_that_fails_half_way_deletes_nothing() {
    let Some((_cluster, mut db, site)) = with_site(&[]) else { return };
    let urlset = |paths: &[&str]| {
        let urls: String =
            paths.iter().map(|path| format!("<url><loc>{}{path}</loc></url>", site.url)).collect();
        format!(
            "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{urls}</urlset>"
        )
    };
    let sitemap = |name: &str| format!("<sitemap><loc>{}/{name}</loc></sitemap>", site.url);
    let index = format!(
        "<sitemapindex>{}{}{}</sitemapindex>",
        sitemap("1.xml"),
        sitemap("2.xml.gz"),
        sitemap("index.xml")
    );
    for path in ["/a", "/b", "/c", "/d"] {
        site.html(path, &format!("<p>{path}</p>"));
    }
    site.put("/index.xml", "application/xml", index);
    site.put("/1.xml", "application/xml", urlset(&["/a", "/b"]));
    site.put("/2.xml.gz", "application/gzip", gzip(urlset(&["/c"]).as_bytes()));
    create(&mut db, &format!(r#"{{"sitemap": "{}/index.xml", "rate": 1000}}"#, site.url));
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [3, 3, 0, 0, 0, 0]);
    assert_eq!(pages(&mut db, &site), ["/a=/a", "/b=/b", "/c=/c"]);
    let error = "SELECT error FROM kb.sources";
    // A sitemap that breaks off, one that is packed again and again, and one that is away.
    let long = gzip(&vec![b' '; 60_000_000]);
    for (broken, says) in [
        (Answer::Page("application/xml".into(), b"<urlset><url>".to_vec(), false), "not XML"),
        (Answer::Page("application/gzip".into(), long, false), "bytes, unpacked"),
        (Answer::Status(500, String::new()), "status 500"),
    ] {
        site.put("/1.xml", "application/xml", urlset(&["/d"]));
        site.answer("/2.xml.gz", broken);
        ingest(&mut db);
        assert_eq!(pages(&mut db, &site).len(), 4);
        let problem: String = db.one(error);
        assert!(problem.contains(says) && problem.contains("no document was deleted"), "{problem}");
    }
    // What it lists of other sites is not fetched.
    site.put(
        "/2.xml.gz",
        "application/xml",
        "<urlset><url><loc>http://www.example.com/</loc></url></urlset>",
    );
    let run_no = ingest(&mut db);
    assert_eq!(pages(&mut db, &site), ["/d=/d"]);
    assert_eq!(counts(&mut db, run_no)[4], 3);
    let failed = failures(&mut db);
    assert!(failed.len() == 1 && failed[0].contains("not of the site of the sitemap"), "{failed:?}");
    assert!(db.one::<bool>("SELECT error IS NULL FROM kb.sources"));
    // The sitemap changes while its pages are read: a page of the old one is gone, and a new one waits for
    // the next run.
    site.put("/2.xml.gz", "application/xml", urlset(&["/a"]));
    site.hold("/a");
    site.take_seen();
    let run_no: i64 = db.one("SELECT kb.ingest('k')");
    until(SOON, "the pages are read", || site.has_seen("/a"));
    site.remove("/a");
    site.put("/1.xml", "application/xml", urlset(&["/b"]));
    site.release();
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
    assert_eq!(pages(&mut db, &site), ["/d=/d"]);
    ingest(&mut db);
    assert_eq!(pages(&mut db, &site), ["/b=/b"]);
}

#[test]
fn a_crawl_follows_the_links_of_its_site_and_what_disappears() {
    let Some((_cluster, mut db, site)) = with_site(&[]) else { return };
    site.put("/robots.txt", "text/plain", "User-agent: kb\nDisallow: /secret\n");
    let start =
        "<a href='/docs/a'>a</a> <a href='docs/b#c'>b</a> <a href='/secret/x'>x</a> <a href='/other'>o</a>
         <a href='/docs/old/y'>y</a> <a href='http://www.example.com/docs/'>e</a> <a href='/docs/away'>w</a>";
    site.html("/", start);
    site.html(
        "/docs/a",
        "<p>text a</p><a href='/docs/deep'>deep</a><a href='/docs/a'>self</a><a href='/docs/logo.png'>l</a>",
    );
    site.html("/docs/b", "<p>text b</p><a href='/docs/same'>same</a><a href='mailto:a@b'>m</a>");
    site.redirect("/docs/same", "/docs/a");
    let other = Site::start();
    other.html("/", "elsewhere");
    site.redirect("/docs/away", &format!("{}/", other.url));
    site.put("/docs/logo.png", "image/png", "x");
    site.html("/docs/deep", "<p>text deep</p><a href='/docs/deeper'>deeper</a>");
    site.html("/docs/deeper", "<p>text deeper</p>");
    for path in ["/secret/x", "/other", "/docs/old/y"] {
        site.html(path, "no");
    }
    let crawl = r#""crawl": {"depth": 2, "include": ["/docs/**"], "exclude": ["/docs/old/**"]}"#;
    create(&mut db, &format!(r#"{{"urls": ["{}"], "rate": 1000, {crawl}}}"#, site.url));
    let run_no = ingest(&mut db);
    let paths = |db: &mut Db| -> Vec<String> {
        pages(db, &site).iter().map(|page| page.split('=').next().unwrap().to_string()).collect()
    };
    assert_eq!(paths(&mut db), ["/", "/docs/a", "/docs/b", "/docs/deep"]);
    assert_eq!(counts(&mut db, run_no), [4, 4, 0, 0, 0, 0]);
    assert!(
        other.has_seen("/")
            && !site.has_seen("/secret/x")
            && !site.has_seen("/other")
            && !site.has_seen("/docs/deeper")
    );
    site.take_seen();
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [4, 0, 0, 4, 0, 0]);
    let mut seen: Vec<String> = site.take_seen().into_iter().map(|(path, _)| path).collect();
    seen.sort();
    assert_eq!(
        seen,
        ["/", "/docs/a", "/docs/a", "/docs/away", "/docs/b", "/docs/deep", "/docs/logo.png", "/docs/same"]
    );
    // A page whose links cannot be read leaves what may be behind it as it is.
    site.status("/docs/a", 500, "");
    let run_no = ingest(&mut db);
    let away: Vec<String> = failed(&mut db, &site);
    assert!(
        away.len() == 2 && away[0].starts_with("/docs/a: ") && away[1].starts_with("/docs/same: "),
        "{away:?}"
    );
    assert_eq!((counts(&mut db, run_no)[4], paths(&mut db).len()), (0, 3));
    site.html("/docs/a", "<p>text a</p>");
    let run_no = ingest(&mut db);
    assert_eq!(
        (paths(&mut db), counts(&mut db, run_no)[4]),
        (vec!["/".into(), "/docs/a".into(), "/docs/b".into()], 2)
    );
    // More pages than wanted are not a reason to delete any.
    db.run(&format!(
        r#"SELECT kb.alter_source('k', 's', '{{"urls": ["{}"], "rate": 1000, "crawl": {{"max_pages": 2}}}}')"#,
        site.url
    ));
    ingest(&mut db);
    assert!(db.one::<String>("SELECT error FROM kb.sources").contains("max_pages"));
    assert_eq!(paths(&mut db).len(), 3);
}

#[test]
fn robots_txt_is_honoured_unless_the_source_says_otherwise() {
    let Some((_cluster, mut db, site)) = with_site(&[]) else { return };
    site.put("/robots.txt", "text/plain", "User-agent: *\nDisallow: /b\n");
    site.html("/a", "a");
    site.html("/b", "b");
    create(&mut db, &format!(r#"{{"urls": ["{0}/a", "{0}/b"], "rate": 1000}}"#, site.url));
    ingest(&mut db);
    assert_eq!(pages(&mut db, &site), ["/a=a"]);
    let failed = failed(&mut db, &site);
    assert!(
        failed.len() == 1 && failed[0].starts_with("/b: ") && failed[0].contains("robots.txt"),
        "{failed:?}"
    );
    let asked: Vec<String> = site.take_seen().into_iter().map(|(path, _)| path).collect();
    assert_eq!(asked, ["/robots.txt", "/a"]);
    db.run(&format!("SELECT kb.alter_source('k', 's', '{}')", urls(&site, &["/a", "/b"], "")));
    ingest(&mut db);
    assert_eq!(pages(&mut db, &site), ["/a=a", "/b=b"]);
}

#[test]
fn only_kb_admin_names_addresses_and_only_those_that_may_be_asked() {
    let Some((cluster, mut db, site)) = with_site(&[]) else { return };
    let source =
        |kind: &str, config: &str| format!("SELECT kb.create_source('k', 's', '{kind}', '{config}')");
    for (kind, config, says) in [
        ("url", r#"{"urls": ["http://169.254.169.254/"]}"#, "link-local"),
        ("url", r#"{"urls": ["http://10.0.0.1/"]}"#, "not in kb.allowed_hosts"),
        ("url", r#"{"sitemap": "file:///etc/passwd"}"#, "http or https"),
        ("url", r#"{"urls": ["http://a:b@www.example.com/"]}"#, "user name or password"),
        ("url", "{}", "config.urls: is missing"),
        ("media_transcript", r#"{"provider": "youtube", "video_id": "x"}"#, "put them by kb.put_file"),
        ("media_transcript", r#"{"path": "a.vtt"}"#, "kb.source_dirs"),
    ] {
        let fault = db.refused(&source(kind, config), "22023");
        assert!(fault.text.contains(says), "{config}: {fault:?}");
    }
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE stranger LOGIN IN ROLE kb_admin");
    let config = urls(&site, &["/a"], "");
    cluster.connect_as(APP, "writer").refused(&source("url", &config), "42501");
    // kb_admin of another tenant finds no such knowledge base.
    db.run("SELECT kb.bind_role('stranger', 'other')");
    cluster.connect_as(APP, "stranger").refused(&source("url", &config), "42704");
    assert_eq!(db.count("kb.sources"), 0);
}

#[test]
fn transcripts_are_read_by_address_and_nothing_else_is() {
    let Some((_cluster, mut db, site)) = with_site(&[]) else { return };
    let vtt = "WEBVTT\n\n00:00:01.000 --> 00:00:04.000\n<v Ann>The harbor is closed.\n";
    site.put("/talk.vtt", "text/plain", vtt);
    site.put("/talk", "application/x-subrip", "1\n00:00:01,000 --> 00:00:04,000\nThe market is open.\n");
    site.html("/page", "<p>no transcript</p>");
    let config = urls(&site, &["/talk.vtt", "/talk", "/page"], "");
    db.run(&format!("SELECT kb.create_source('k', 's', 'media_transcript', '{config}')"));
    ingest(&mut db);
    let types: Vec<String> = db.all(
        "SELECT content_type FROM kb.documents WHERE status = 'ready' ORDER BY external_id COLLATE \"C\"",
    );
    assert_eq!(types, ["application/x-subrip", "text/vtt"]);
    assert_eq!(db.found("k", "harbor is closed", 1), [format!("s/{}/talk.vtt", site.url)]);
    let failed = failed(&mut db, &site);
    assert!(failed.len() == 1 && failed[0].contains("neither WebVTT (.vtt) nor SubRip"), "{failed:?}");
}

#[test]
fn after_kills_of_worker_and_gateway_the_knowledge_base_equals_the_site() {
    let Some((mut cluster, mut db, site)) = with_site(&[PRELOAD, "kb.launcher_naptime = 1"]) else { return };
    cluster.expects_crashes = true;
    let paths: Vec<String> = (0..200).map(|n| format!("/{n}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    create(&mut db, &urls(&site, &paths, ""));
    let mut state: BTreeMap<&str, String> = BTreeMap::new();
    for round in 0..4 {
        for (n, path) in paths.iter().enumerate() {
            match (n + round) % 5 {
                0 => {
                    site.remove(path);
                    state.remove(path);
                }
                1 | 2 if round > 0 => {}
                _ => {
                    let text = format!("text {n} of round {round}");
                    site.put(path, "text/plain", text.clone());
                    state.insert(path, text);
                }
            }
        }
        // The run is in its middle while this page is not answered.
        site.hold("/77");
        site.take_seen();
        let run_no: i64 = db.one("SELECT kb.ingest('k')");
        until(SOON, "the run is in its middle", || site.has_seen("/77"));
        let killed = if round % 2 == 0 { cluster.worker(APP) } else { cluster.gateway() };
        signal(killed, libc::SIGKILL);
        site.release();
        db = cluster.reconnect_after_crash(db);
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
        db.wait("k");
        let mut expected: Vec<String> = state.iter().map(|(path, text)| format!("{path}={text}")).collect();
        let mut found = pages(&mut db, &site);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "round {round}");
    }
    assert_sound(&mut db, "k", state.len() as i64, 0);
}
