//! PostgreSQL's text search: its parser and dictionaries on a text.

use kb_types::error::Result;
use pgrx::{PgMemoryContexts, pg_guard, pg_sys};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a text that are parsed at once, to bound memory.
const PIECE: usize = 256 * 1024;

/// Calls `each` with every lexeme of a text, as often as it occurs: what to_tsvector finds, without its bounds on numbers
/// of positions. `configuration` is the oid of a text search configuration. A word of over 2,046 bytes has no lexeme.
pub fn lexemes(configuration: u32, text: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    for piece in pieces(text) {
        let mut context = PgMemoryContexts::new("kb lexemes");
        // SAFETY: the parser allocates in a context of its own, which is freed when it goes out of scope, by an ERROR's
        // unwinding, too. It writes words[..curwords], each with len bytes; it does not write to the text.
        unsafe {
            context.switch_to(|_| {
                let room = (piece.len() / 6).max(16);
                let words = pg_sys::palloc(room * size_of::<pg_sys::ParsedWord>()) as *mut pg_sys::ParsedWord;
                let mut parsed = pg_sys::ParsedText { words, lenwords: room as i32, curwords: 0, pos: 0 };
                pg_sys::parsetext(
                    pg_sys::Oid::from(configuration),
                    &mut parsed,
                    piece.as_ptr() as *mut _,
                    piece.len() as i32,
                );
                for word in std::slice::from_raw_parts(parsed.words, parsed.curwords as usize) {
                    each(std::slice::from_raw_parts(word.word.cast::<u8>(), usize::from(word.len)));
                }
            });
        }
    }
    Ok(())
}

/// Times that a parser, dictionary or configuration was altered, or may have been, as far as this process knows.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// A number that changes when a parser, dictionary or configuration of text search is altered. As everything that PostgreSQL
/// remembers of its catalogs, that is known here when a lock is taken or a transaction begins.
pub fn changes() -> u64 {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        use pg_sys::SysCacheIdentifier::{TSCONFIGMAP, TSCONFIGOID, TSDICTOID, TSPARSEROID, TSTEMPLATEOID};
        for cache in [TSCONFIGMAP, TSCONFIGOID, TSDICTOID, TSPARSEROID, TSTEMPLATEOID] {
            // SAFETY: on the main thread, once for each process; the function lives as long as the library, which is never
            // unloaded, and changes nothing but a number.
            unsafe {
                pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(note_change), pg_sys::Datum::null())
            };
        }
    });
    CHANGES.load(Ordering::Relaxed)
}

#[pg_guard]
unsafe extern "C-unwind" fn note_change(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// A text in pieces that end after white space, where there is some.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let most = rest.floor_char_boundary(PIECE.min(rest.len()));
        let end = match most < rest.len() {
            true => rest[..most].rfind(char::is_whitespace).map_or(most, |space| space + 1),
            false => most,
        };
        // White space may have several bytes.
        let end = rest.ceil_char_boundary(end);
        let (piece, others) = rest.split_at(end);
        rest = others;
        Some(piece)
    })
}
