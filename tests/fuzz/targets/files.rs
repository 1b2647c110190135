//! Files of any format: what is found in them can be stored and cut, or they fail by name. The first line of
//! an input is the name of the file.
//!
//! A panic of a library is no fault here, because a program of its own reads files, whose end the worker
//! survives. A panic of kb's own crates is.

use super::{Target, choices, chunks};
use crate::memory::{Limits, measure};
use kb_extract::extract;
use kb_types::extraction::{Extraction, Fault, File};
use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::thread;

pub const TARGET: Target = Target {
    name: "files",
    run,
    seeds: Vec::new,
    words: r##"
        a.md⏎ a.html⏎ a.rst⏎ a.adoc⏎ a.vtt⏎ a.srt⏎ a.eml⏎ a.mbox⏎ a.rtf⏎ a.csv⏎ a.tsv⏎ a.json⏎ a.jsonl⏎
        a.yaml⏎ a.xml⏎ a.rs⏎ a.py⏎ a.ts⏎ a.c⏎ a.sh⏎ a⏎ ⏎ ⏎⏎ ---⏎ === ..␣note:: |=== ---- ++++ WEBVTT⏎
        00:00:01.000␣-->␣00:00:02.500 -->␣ <v␣Ann> From␣a⏎ Content-Type:␣ multipart/mixed;␣boundary=b --b
        {\rtf1 {\* \u8211? \'e9 \par \trowd \cell \row { } [ ] " , ; : - <a␣b="c"> </a> <?xml␣?> &amp;
        <![CDATA[ ]]> &#x41; {"a":␣1} null fn␣f() class␣C: def␣f(): /* */ // # ( ) %PDF-1.4⏎ obj endobj
        stream endstream trailer PK‹3›‹4› ‹0› ‹feff› ‹d›⏎ ␣␣␣␣ ‹9› é 漢字
    "##,
};

/// As much as the program may use by default. Its own limits are in bytes of the file.
const LIMITS: Limits = Limits { bytes: (512 << 20, 0), allocations: (20_000_000, 0) };
/// The most text that a file may have.
const MAX_TEXT: usize = 1 << 20;
/// The longest text that is also cut.
const CUT: usize = 64 << 10;
/// As the program has it.
const STACK: usize = 64 << 20;

thread_local! {
    /// Whether the last panic of this thread is a fault here.
    static IS_FAULT: Cell<bool> = const { Cell::new(false) };
}

/// Notes where a panic is from, in place of what would end the fuzzer at each.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            let is_reader = thread::current().name() == Some(READER);
            let file = what.location().map_or("", |location| location.file());
            let is_fault = !is_reader || !file.contains("registry");
            IS_FAULT.set(is_fault);
            if is_fault {
                before(what);
            }
        }));
    });
}

const READER: &str = "reader";

fn run(data: &[u8]) {
    watch_panics();
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (name, bytes) = data.split_at(end);
    let file = File {
        name: Some(String::from_utf8_lossy(name).into_owned()),
        bytes: bytes.get(1..).unwrap_or_default().to_vec(),
        max_text: MAX_TEXT,
        ..File::default()
    };
    let Some(found) = read(file.clone()) else { return };
    let Some(again) = read(file) else { panic!("not the same twice") };
    assert_eq!(found, again, "not the same twice");
    if let Ok(found) = found {
        check(&found);
        let mut random = choices(data);
        if found.text.len() <= CUT {
            chunks::cut(&found.text, random.bool(), &mut random);
        }
    }
}

/// Reads a file as the program does. None if a library panics.
fn read(file: File) -> Option<Result<Extraction, Fault>> {
    let read = move || {
        let size = file.bytes.len();
        let attempt = panic::catch_unwind(|| {
            let (found, cost) = measure(|| extract(&file));
            cost.within(&LIMITS, size);
            found
        });
        attempt.map_err(|_| IS_FAULT.get())
    };
    let reader = thread::Builder::new().name(READER.into()).stack_size(STACK).spawn(read).unwrap();
    match reader.join().unwrap() {
        Ok(found) => Some(found),
        Err(is_fault) => {
            assert!(!is_fault, "kb's own code panics");
            None
        }
    }
}

fn check(found: &Extraction) {
    assert!(found.text.len() <= MAX_TEXT, "{} bytes of text", found.text.len());
    assert!(!found.text.contains(['\r', '\0', '\u{feff}']), "text that cannot be stored");
    let mut before = 0;
    for marked in &found.marks {
        assert!(marked.offset >= before, "marks that are not in order");
        assert!(found.text.is_char_boundary(marked.offset), "a mark within a character");
        before = marked.offset;
    }
    let metadata = serde_json::to_string(&found.metadata).unwrap();
    assert!(!metadata.contains("\\u0000"), "metadata that cannot be stored");
}
