//! Tests against a server of this process that answers with given bytes.

use super::super::super::endpoint::access::EgressSettings;
use super::super::super::endpoint::egress::AllowedHosts;
use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The answer to a path and the head of the request. An empty one leaves the connection open.
type Answers = dyn Fn(&str, &str) -> Vec<u8> + Send + Sync;

struct Stub {
    url: String,
    /// The heads of all requests.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn start(answer: impl Fn(&str, &str) -> Vec<u8> + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (answer, heads): (Arc<Answers>, _) = (Arc::new(answer), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, heads) = (Arc::clone(&answer), Arc::clone(&heads));
                std::thread::spawn(move || serve(stream, &*answer, &heads));
            }
        });
        Stub { url, seen }
    }

    fn paths(&self) -> Vec<String> {
        let path = |head: &String| head.split(' ').nth(1).unwrap_or_default().to_string();
        lock(&self.seen).iter().map(path).collect()
    }
}

fn serve(mut stream: TcpStream, answer: &Answers, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_string();
    lock(heads).push(head.clone());
    let answer = answer(&path, &head);
    if answer.is_empty() {
        let _ = stream.read(&mut byte);
    }
    let is_endless = answer.ends_with(b"ENDLESS");
    let _ = stream.write_all(&answer);
    while is_endless && stream.write_all(&[b'x'; 1000]).is_ok() {}
}

fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    answer(302, &format!("location: {to}\r\n"), "")
}

fn fetcher(allowed_hosts: &str) -> Fetcher {
    let allowed_hosts = AllowedHosts::parse(allowed_hosts).unwrap();
    Fetcher::new(Arc::new(Endpoints::new(EgressSettings { allowed_hosts, ..Default::default() })))
}

fn wanted(url: String) -> Fetch {
    let (max_bytes, timeout_ms) = (10_000_000, 10_000);
    Fetch { url, known: None, max_bytes, timeout_ms, robots: false, per_second: 1e6 }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn get(fetch: Fetch) -> Fetched {
    run(fetcher("127.0.0.1").fetch(fetch, &Whose::default()))
}

fn problem(fetched: Fetched) -> (String, bool) {
    match fetched {
        Fetched::Failed { problem, passing } => (problem, passing),
        other => panic!("{other:?}"),
    }
}

fn body(fetched: &Fetched) -> &str {
    match fetched {
        Fetched::Page { part: Part { bytes, more: None }, .. } => std::str::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_that_has_not_changed_is_not_sent_again() {
    let headers = "etag: \"1\"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-type: text/html; charset=x\r\n";
    let stub = Stub::start(move |path, head| match (path, head.contains("if-none-match: \"1\"\r\n")) {
        ("/moved", _) => redirect("/page#there"),
        (_, true) if head.contains("if-modified-since: Sun, 06 Nov 1994") => answer(304, "", ""),
        _ => answer(200, headers, "text"),
    });
    let page = get(wanted(format!("{}/page#here", stub.url)));
    assert_eq!(body(&page), "text");
    let Fetched::Page { validators, content_type, .. } = page else { unreachable!() };
    assert_eq!(validators.url, format!("{}/page", stub.url));
    assert_eq!(content_type.unwrap(), "text/html; charset=x");
    let again = Fetch { known: Some(validators), ..wanted(format!("{}/page", stub.url)) };
    assert_eq!(get(again.clone()), Fetched::NotModified);
    // After a redirect the page is asked, and not what redirects to it.
    assert_eq!(get(Fetch { url: format!("{}/moved", stub.url), ..again }), Fetched::NotModified);
    let heads = lock(&stub.seen);
    assert!(!heads[2].contains("if-none-match") && heads[3].contains("if-none-match"), "{heads:?}");
    assert!(!heads.iter().any(|head| head.contains("authorization") || head.contains("cookie")));
}

#[test]
fn a_date_of_this_moment_does_not_tell_whether_a_page_has_changed() {
    let stub = Stub::start(|path, _| {
        let etag = if path == "/etag" { "etag: x\r\n" } else { "" };
        let headers = "date: Sun, 06 Nov 1994 08:49:38 GMT\r\nlast-modified: Sun, 06 Nov 1994 08:49:";
        answer(200, &format!("{headers}{} GMT\r\n{etag}", if path == "/old" { "30" } else { "37" }), "")
    });
    for (path, is_kept) in [("new", false), ("old", true), ("etag", true)] {
        let Fetched::Page { validators, .. } = get(wanted(format!("{}/{path}", stub.url))) else { panic!() };
        assert_eq!(validators.last_modified.is_some(), is_kept, "{path}");
    }
}

#[test]
fn a_server_that_says_not_modified_unasked_is_not_believed() {
    let stub = Stub::start(|_, _| answer(304, "", ""));
    assert!(problem(get(wanted(stub.url.clone()))).0.contains("status 304"));
}

#[test]
fn a_page_that_is_gone_is_told_from_one_that_fails() {
    let stub = Stub::start(|path, _| answer(path[1..].parse().unwrap(), "", ""));
    let of = |status| get(wanted(format!("{}/{status}", stub.url)));
    assert_eq!((of("404"), of("410")), (Fetched::Gone, Fetched::Gone));
    assert_eq!(problem(of("403")), ("its host answered with status 403".into(), false));
    assert!(problem(of("501")).1);
}

#[test]
fn each_hop_of_a_redirect_is_checked() {
    let there = Stub::start(|_, _| answer(200, "", "there"));
    let to = there.url.clone();
    let stub = Stub::start(move |path, _| match path {
        "/good" => redirect(&format!("{to}/x")),
        "/metadata" => redirect("http://169.254.169.254/latest/meta-data"),
        "/private" => redirect("http://10.0.0.1/"),
        "/named" => redirect("http://localhost:1/"),
        "/file" => redirect("file:///etc/passwd"),
        "/password" => redirect("http://user:word@127.0.0.1/"),
        "/nowhere" => answer(302, "", ""),
        _ => redirect("/loop"),
    });
    let of = |path: &str| get(wanted(format!("{}/{path}", stub.url)));
    assert_eq!(body(&of("good")), "there");
    for (path, says) in [
        ("metadata", "redirects to 169.254.169.254: its address is link-local"),
        ("private", "redirects to 10.0.0.1: host 10.0.0.1 is not in kb.allowed_hosts"),
        ("named", "redirects to localhost: host localhost is not"),
        ("file", "scheme must be http"),
        ("password", "must not contain a user name"),
        ("nowhere", "to no valid URL"),
        ("loop", "more than 5 times"),
    ] {
        let (problem, passing) = problem(of(path));
        assert!(problem.contains(says) && !passing, "{path}: {problem}");
    }
    assert_eq!(stub.paths().iter().filter(|path| *path == "/loop").count(), HOPS + 1);
    // Without a list, only public addresses are asked.
    let private = run(fetcher("").fetch(wanted(format!("{}/good", stub.url)), &Whose::default()));
    assert!(problem(private).0.contains("private network"));
}

#[test]
fn a_page_has_a_size_unpacked_and_a_time() {
    let zeros = vec![0u8; 3_000_000];
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&zeros).unwrap();
    let bomb = bomb.finish().unwrap();
    let stub = Stub::start(move |path, _| match path {
        "/bomb" => answer(200, "content-encoding: gzip\r\n", &bomb),
        "/long" => b"HTTP/1.1 200 X\r\ncontent-length: 5000000\r\n\r\nx".to_vec(),
        "/endless" => b"HTTP/1.1 200 X\r\n\r\nENDLESS".to_vec(),
        "/false" => b"HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\nshort".to_vec(),
        "/strange" => answer(200, "content-encoding: br\r\n", "x"),
        "/stuck" => b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n".to_vec(),
        _ => Vec::new(),
    });
    let fetch = |path: &str| Fetch { max_bytes: 1_000_000, ..wanted(format!("{}/{path}", stub.url)) };
    assert!(matches!(get(fetch("bomb")), Fetched::TooLarge(1_000_001..1_100_000)));
    assert_eq!(get(fetch("long")), Fetched::TooLarge(5_000_000));
    assert!(matches!(get(fetch("endless")), Fetched::TooLarge(1_000_001..1_100_000)));
    assert!(problem(get(fetch("false"))).0.contains("connection failed"));
    assert!(problem(get(fetch("strange"))).0.contains("packed"));
    let late = get(Fetch { timeout_ms: 200, ..fetch("silent") });
    assert_eq!(problem(late), ("it did not answer in time".into(), true));
    assert!(matches!(get(Fetch { max_bytes: 4_000_000, ..fetch("bomb") }), Fetched::Page { .. }));
}

#[test]
fn a_large_page_comes_in_parts_for_its_own_connection_only() {
    let text: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    let sent = text.clone();
    let stub = Stub::start(move |_, _| answer(200, "", &sent));
    let fetcher = fetcher("127.0.0.1");
    let whose = Whose { connection: 7, ..Whose::default() };
    let (mut all, mut parts) = (Vec::new(), 0);
    run(async {
        let Fetched::Page { mut part, .. } = fetcher.fetch(wanted(stub.url.clone()), &whose).await else {
            panic!("no page")
        };
        loop {
            parts += 1;
            all.extend(part.bytes);
            let Some(number) = part.more else { break };
            assert!(matches!(fetcher.more(number, 8).await, Fetched::Failed { .. }), "of another connection");
            let Fetched::More(next) = fetcher.more(number, 7).await else { panic!("no part") };
            part = next;
        }
    });
    assert!(all == text);
    assert_eq!((parts, lock(&fetcher.open).downloads.len()), (3, 0));
}

#[test]
fn robots_txt_is_honoured_and_asked_for_once() {
    let stub = Stub::start(|path, _| match path {
        "/robots.txt" => answer(
            200,
            "",
            "User-agent: kb\nDisallow: /private\nCrawl-delay: 0.01\n\nUser-agent: *\nDisallow: /\n",
        ),
        _ => answer(200, "", "page"),
    });
    let fetcher = fetcher("127.0.0.1");
    let fetch = |path: &str| Fetch { robots: true, ..wanted(format!("{}/{path}", stub.url)) };
    run(async {
        let (a, b) = (fetch("a"), fetch("private/b"));
        let whose = Whose::default();
        let (a, b) = tokio::join!(fetcher.fetch(a, &whose), fetcher.fetch(b, &whose));
        assert_eq!((body(&a), b), ("page", Fetched::Disallowed));
        let unasked = Fetch { robots: false, ..fetch("private/b") };
        assert_eq!(body(&fetcher.fetch(unasked, &whose).await), "page");
    });
    assert_eq!(stub.paths(), ["/robots.txt", "/a", "/private/b"]);
}

#[test]
fn a_host_whose_robots_txt_fails_is_not_read_and_one_without_is() {
    let stub = Stub::start(|path, _| match path {
        "/robots.txt" => answer(503, "", ""),
        _ => answer(200, "", "page"),
    });
    let fetch = |stub: &Stub| Fetch { robots: true, ..wanted(format!("{}/a", stub.url)) };
    let (problem, passing) = problem(get(fetch(&stub)));
    assert!(problem.contains("robots.txt of its host cannot be read (status 503)") && passing, "{problem}");
    assert_eq!(stub.paths(), ["/robots.txt"]);
    // Neither one that is missing nor one that leads in circles forbids anything.
    for robots in [answer(404, "", ""), redirect("/robots.txt"), redirect("http://10.0.0.1/")] {
        let stub = Stub::start(move |path, _| match path {
            "/robots.txt" => robots.clone(),
            _ => answer(200, "", "page"),
        });
        assert_eq!(body(&get(fetch(&stub))), "page");
    }
}

#[test]
fn a_redirect_does_not_lead_around_robots_txt() {
    let stub = Stub::start(|path, _| match path {
        "/robots.txt" => answer(200, "", "User-agent: *\nDisallow: /private\n"),
        "/a" => redirect("/private"),
        _ => answer(200, "", "page"),
    });
    let fetch = Fetch { robots: true, ..wanted(format!("{}/a", stub.url)) };
    assert_eq!(get(fetch), Fetched::Disallowed);
    assert_eq!(stub.paths(), ["/robots.txt", "/a"]);
}

#[test]
fn a_host_that_asks_to_wait_is_waited_for_or_left_alone() {
    let asked = AtomicUsize::new(0);
    let stub = Stub::start(move |path, _| match (path, asked.fetch_add(1, Ordering::SeqCst)) {
        ("/long", _) => answer(503, "retry-after: 3000\r\n", ""),
        (_, 0) => answer(429, "retry-after: 1\r\n", ""),
        _ => answer(200, "", "page"),
    });
    let fetcher = fetcher("127.0.0.1");
    run(async {
        let whose = Whose::default();
        let begun = Instant::now();
        let page = fetcher.fetch(wanted(format!("{}/a", stub.url)), &whose).await;
        assert_eq!(body(&page), "page");
        assert!(begun.elapsed() >= Duration::from_millis(900));
        let (problem_of, passing) =
            problem(fetcher.fetch(wanted(format!("{}/long", stub.url)), &whose).await);
        assert!(problem_of.contains("status 503") && passing, "{problem_of}");
        let before = stub.paths().len();
        let (left_alone, passing) = problem(fetcher.fetch(wanted(format!("{}/b", stub.url)), &whose).await);
        assert!(left_alone.contains("Retry-After") && passing, "{left_alone}");
        assert_eq!(stub.paths().len(), before);
    });
}

#[test]
fn a_host_is_asked_two_at_a_time_and_no_faster_than_wanted() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (under_way, largest) = (Arc::clone(&now), Arc::clone(&most));
    let stub = Stub::start(move |_, _| {
        largest.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(30));
        under_way.fetch_sub(1, Ordering::SeqCst);
        answer(200, "", "page")
    });
    let fetcher = Arc::new(fetcher("127.0.0.1"));
    let begun = Instant::now();
    run(async {
        let tasks: Vec<_> = (0..10)
            .map(|i| {
                let fetch = Fetch { per_second: 50.0, ..wanted(format!("{}/{i}", stub.url)) };
                let fetcher = Arc::clone(&fetcher);
                tokio::spawn(async move { fetcher.fetch(fetch, &Whose::default()).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(body(&task.await.unwrap()), "page");
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert!(begun.elapsed() >= Duration::from_millis(180), "{:?}", begun.elapsed());
}

#[test]
fn a_host_that_does_not_answer_is_not_asked_for_a_while() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fetcher = fetcher("127.0.0.1");
    run(async {
        for _ in 0..5 {
            let (problem, _) =
                problem(fetcher.fetch(wanted(format!("http://{address}/")), &Whose::default()).await);
            assert!(problem.contains("cannot be reached"), "{problem}");
        }
        let (problem, passing) =
            problem(fetcher.fetch(wanted(format!("http://{address}/")), &Whose::default()).await);
        assert!(problem.contains("did not answer several times") && passing, "{problem}");
    });
}
