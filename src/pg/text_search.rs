//! PostgreSQL's text search: applies its parser and dictionaries to a text.

use kb_types::error::Result;
use pgrx::{PgMemoryContexts, pg_guard, pg_sys};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes that are parsed at once, which bounds memory.
const PIECE: usize = 256 * 1024;

/// Calls `each` with every lexeme of a text, as often as it occurs. These are the lexemes that to_tsvector
/// finds, but without its limit on positions. `configuration` is the oid of a text search configuration. A
/// word of more than 2,046 bytes has no lexeme.
pub fn lexemes(configuration: u32, text: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    for piece in pieces(text) {
        let mut context = PgMemoryContexts::new("kb lexemes");
        // SAFETY: the parser allocates in a memory context of its own, which is freed when it goes out of
        // scope, also while an ERROR unwinds. It writes words[..curwords], each with len bytes, and does not
        // write to the text.
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

/// The number of times that a parser, dictionary or configuration was altered, or may have been, as far as
/// this process knows.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// A number that changes when a parser, dictionary or configuration of text search is altered. Like
/// everything that PostgreSQL caches of its catalogs, a change becomes known here when a lock is taken or a
/// transaction begins.
pub fn changes() -> u64 {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        use pg_sys::SysCacheIdentifier::{TSCONFIGMAP, TSCONFIGOID, TSDICTOID, TSPARSEROID, TSTEMPLATEOID};
        for cache in [TSCONFIGMAP, TSCONFIGOID, TSDICTOID, TSPARSEROID, TSTEMPLATEOID] {
            // SAFETY: called on the main thread, once in each process. The function lives as long as the
            // library, which is never unloaded, and changes nothing but a number.
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

/// The text in pieces that end after white space, if there is any.
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
        // A character of white space may have several bytes.
        let end = rest.ceil_char_boundary(end);
        let (piece, others) = rest.split_at(end);
        rest = others;
        Some(piece)
    })
}
