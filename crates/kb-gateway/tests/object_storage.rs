//! Buckets of stubs that verify signatures and have faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kb_gateway::endpoint::access::{Access, EgressSettings};
use kb_gateway::endpoint::egress::{AllowedHosts, origin};
use kb_gateway::endpoint::pool::Endpoints;
use kb_gateway::endpoint::secret::Secret;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::object_storage::{ATTEMPTS, ObjectStorage, PART};
use kb_gateway::protocol::{ObjectPart, Page, WantedPart};
use kb_gateway::turns::Whose;
use kb_types::bucket::{Bucket, Storage};
use kb_types::json_reader::Fields;
use std::sync::Arc;
use stub::{ACCOUNT, BUCKET, BucketStub, Fault, Flavour, REGION};
use tokio::runtime::Runtime;

#[path = "../../../tests/stub/bucket.rs"]
mod stub;

/// A storage that may be asked at this machine, and the bucket of a stub.
struct Case {
    stub: BucketStub,
    bucket: Bucket,
    access: Access,
    storage: ObjectStorage,
    runtime: Runtime,
}

fn hosts(allowed: &str) -> EgressSettings {
    EgressSettings { allowed_hosts: AllowedHosts::parse(allowed).unwrap(), ..EgressSettings::default() }
}

fn access(bucket: &Bucket, secret: &str) -> Access {
    Access {
        reference: Some(Reference::parse("kb:s").unwrap()),
        stored: Some(Secret::new(secret)),
        host: origin(&bucket.url()),
        ..Access::default()
    }
}

fn case_of(stub: BucketStub, flavour: Flavour) -> Case {
    let mut config = serde_json::json!({"bucket": BUCKET, "endpoint": stub.endpoint()});
    let storage = match flavour {
        Flavour::S3 => {
            config["region"] = REGION.into();
            Storage::S3
        }
        Flavour::Gcs => Storage::Gcs,
        Flavour::Azure => {
            config["account"] = ACCOUNT.into();
            Storage::Azure
        }
    };
    let bucket = Bucket::read(storage, &mut Fields::new("config", &config));
    let access = access(&bucket, &stub.secret());
    let storage = ObjectStorage::new(Arc::new(Endpoints::new(hosts("127.0.0.1"))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Case { stub, bucket, access, storage, runtime }
}

fn case(flavour: Flavour, page: usize) -> Case {
    case_of(BucketStub::start(flavour, page, false), flavour)
}

impl Case {
    fn page(&self, prefix: &str, next: Option<&str>) -> Result<Page, String> {
        let whose = Whose::default();
        let page = self.storage.list(&self.bucket, &self.access, prefix, next, &whose);
        self.runtime.block_on(page)
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        let (mut keys, mut next) = (Vec::new(), None);
        loop {
            let page = self.page(prefix, next.as_deref()).unwrap();
            assert_eq!(page.failed, []);
            keys.extend(page.objects.into_iter().map(|object| object.key));
            next = page.next;
            if next.is_none() {
                return keys;
            }
        }
    }

    fn part(&self, key: &str, etag: Option<&str>, from: u64) -> ObjectPart {
        let part = WantedPart { key: key.into(), etag: etag.map(str::to_string), from };
        let whose = Whose::default();
        self.runtime.block_on(self.storage.read(&self.bucket, &self.access, &part, &whose))
    }

    /// The whole content of an object.
    fn content(&self, key: &str) -> Vec<u8> {
        let (mut content, mut known) = (Vec::new(), None::<String>);
        loop {
            match self.part(key, known.as_deref(), content.len() as u64) {
                ObjectPart::Read { bytes, size, etag, .. } => {
                    content.extend(bytes);
                    known = etag;
                    if content.len() as u64 == size {
                        return content;
                    }
                }
                other => panic!("{key:?}: {other:?}"),
            }
        }
    }
}

const FLAVOURS: [Flavour; 3] = [Flavour::S3, Flavour::Gcs, Flavour::Azure];

#[test]
fn every_storage_is_listed_page_by_page_and_read_with_right_signatures() {
    for flavour in FLAVOURS {
        let case = case(flavour, 3);
        let strange = [
            "a b",
            "a+b",
            "a%20b",
            "a&b=c?d#e",
            "<x>",
            "ä/ö",
            "a//b",
            "/lead",
            "quote'\"",
            "tab\tkey",
            "~*()!:@,;$",
            "back\\slash",
            "folder/file.md",
            "日本",
            "emoji 🦀",
            "a\nb",
        ];
        for key in strange {
            case.stub.put(key, format!("content of {key}"));
        }
        case.stub.put("empty", "");
        let mut sorted: Vec<String> = strange.iter().chain(&["empty"]).map(ToString::to_string).collect();
        sorted.sort();
        assert_eq!(case.keys(""), sorted, "{flavour:?}");
        assert!(case.stub.lists() == 6, "{flavour:?}");
        assert_eq!(case.keys("a&b="), ["a&b=c?d#e"]);
        for key in strange {
            assert_eq!(case.content(key), format!("content of {key}").into_bytes(), "{flavour:?}");
        }
        assert_eq!(case.content("empty"), b"");
        assert_eq!(case.part("absent", None, 0), ObjectPart::Gone);
        assert_eq!(case.stub.complaints(), Vec::<String>::new());
    }
}

#[test]
fn a_large_object_is_read_in_parts_of_one_version() {
    for flavour in FLAVOURS {
        let case = case(flavour, 10);
        let large: Vec<u8> = (0..2 * PART + 5).map(|at| (at % 251) as u8).collect();
        case.stub.put("large", large.clone());
        assert!(case.content("large") == large);
        assert_eq!(case.stub.reads().len(), 3);
        let ObjectPart::Read { etag, size, .. } = case.part("large", None, 0) else { panic!() };
        assert_eq!(size, large.len() as u64);
        case.stub.on_read("large", Some(b"short"));
        assert_eq!(case.part("large", etag.as_deref(), PART), ObjectPart::Changed);
        assert_eq!(case.part("large", None, PART), ObjectPart::Changed);
        // A server that sends the whole object instead of a part.
        case.stub.ignore_ranges();
        assert_eq!(case.content("large"), b"short");
        case.stub.put("large", large);
        let ObjectPart::Read { bytes, size, .. } = case.part("large", None, 0) else { panic!() };
        assert_eq!((bytes.len() as u64, size), (PART, 2 * PART + 5));
        let ObjectPart::Failed(problem) = case.part("large", None, PART) else { panic!() };
        assert_eq!(problem, "it sends no parts of objects");
    }
}

#[test]
fn passing_faults_are_tried_again_and_lasting_ones_are_not() {
    let case = case(Flavour::S3, 10);
    case.stub.put("a", "One");
    let passing = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::CutText,
        Fault::CutConnection,
        Fault::NoToken,
    ];
    for fault in passing {
        case.stub.fail_lists(fault.clone(), 1);
        assert_eq!(case.keys(""), ["a"], "{fault:?}");
    }
    for fault in [Fault::Status(503, "SlowDown"), Fault::CutConnection] {
        case.stub.fail_reads(fault, 1);
        assert_eq!(case.content("a"), b"One");
    }
    let lists = case.stub.lists();
    case.stub.fail_lists(Fault::Status(403, "AccessDenied"), 1);
    let problem = case.page("", None).unwrap_err();
    assert_eq!(problem, "it answered with status 403 (AccessDenied: Words of the storage.)");
    assert_eq!(case.stub.lists(), lists + 1);
    // What is no storage says nothing that is passed on, and no object is taken for gone because of it.
    case.stub.fail_lists(Fault::Html(404), 1);
    assert_eq!(case.page("", None).unwrap_err(), "it answered with status 404");
    case.stub.fail_reads(Fault::Html(404), 1);
    assert_eq!(case.part("a", None, 0), ObjectPart::Failed("it answered with status 404".into()));
    case.stub.fail_reads(Fault::Status(404, "NoSuchBucket"), 1);
    assert!(matches!(case.part("a", None, 0), ObjectPart::Failed(_)));
    case.stub.fail_lists(Fault::Status(503, "SlowDown"), ATTEMPTS);
    assert!(case.page("", None).unwrap_err().contains("503 (SlowDown"));
    assert_eq!(case.keys(""), ["a"]);
}

#[test]
fn a_redirect_is_not_followed_and_no_metadata_service_is_asked() {
    let case = case(Flavour::S3, 10);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    case.stub.fail_lists(Fault::Redirect(format!("http://{}/", other.local_addr().unwrap())), 1);
    assert!(case.page("", None).unwrap_err().contains("status 307"));
    assert!(other.accept().is_err());
    let ask = |storage: Storage, endpoint: &str, allowed: &str| {
        let config = serde_json::json!({"bucket": "b", "endpoint": endpoint, "account": "a"});
        let bucket = Bucket::read(storage, &mut Fields::new("config", &config));
        let asked = ObjectStorage::new(Arc::new(Endpoints::new(hosts(allowed))));
        let (access, whose) = (Access::default(), Whose::default());
        case.runtime.block_on(asked.list(&bucket, &access, "", None, &whose)).unwrap_err()
    };
    for storage in [Storage::S3, Storage::Gcs, Storage::Azure] {
        for allowed in ["", "169.254.169.254"] {
            let problem = ask(storage, "http://169.254.169.254/latest", allowed);
            assert!(problem.contains("metadata"), "{problem}");
        }
        let here = case.stub.endpoint();
        assert!(ask(storage, &here, "").contains("kb.allowed_hosts"));
        assert!(ask(storage, &here.replace("127.0.0.1", "localhost"), "").contains("kb.allowed_hosts"));
        assert_eq!(ask(storage, &here, "example.com"), "host 127.0.0.1 is not in kb.allowed_hosts");
    }
    assert_eq!(case.stub.lists(), 1);
}

#[test]
fn a_secret_is_sent_to_its_host_only_and_appears_in_no_error() {
    for flavour in FLAVOURS {
        let mut case = case(flavour, 10);
        case.stub.put("a", "One");
        let right = case.access.clone();
        case.access.host = Some("https://elsewhere.example".into());
        assert!(case.page("", None).unwrap_err().contains("is not bound to"));
        // A key of the wrong form.
        case.access = Access { stored: Some(Secret::new("no such form!")), ..right.clone() };
        let problem = case.page("", None).unwrap_err();
        assert!(problem.contains("must have the form") && !problem.contains("no such"), "{problem}");
        case.access = Access { stored: None, ..right };
        assert!(case.page("", None).unwrap_err().contains("does not exist"));
        assert_eq!(case.stub.lists(), 0);
    }
    let mut wrong = case(Flavour::S3, 10);
    wrong.access = access(&wrong.bucket, "AKIDEXAMPLE:wrong");
    assert!(wrong.page("", None).unwrap_err().contains("403 (SignatureDoesNotMatch"));
    assert_eq!(wrong.stub.complaints().len(), 1);
    wrong.stub.end_faults();
}

#[test]
fn a_public_bucket_is_read_without_a_credential() {
    for flavour in FLAVOURS {
        let mut case = case_of(BucketStub::start(flavour, 10, true), flavour);
        case.access = Access::default();
        case.stub.put("a", "One");
        assert_eq!((case.keys(""), case.content("a")), (vec!["a".to_string()], b"One".to_vec()));
        assert_eq!(case.stub.complaints(), Vec::<String>::new());
    }
}
