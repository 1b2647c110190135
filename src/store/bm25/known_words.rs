//! The lexemes of words that this process has met before: parsing a word and looking it up in dictionaries takes most of the
//! time that a text's words take.

use crate::bm25::plain_words;
use crate::error::Result;
use crate::pg::spi::{self, Arg};
use crate::pg::{text_search, txn};
use std::cell::RefCell;
use std::collections::HashMap;

/// Words that are remembered at most, of all configurations; then no more are, and all are forgotten before the next text.
const MOST: usize = 50_000;

/// Words, and the lexemes of each.
type Words = HashMap<Box<str>, Box<[Box<[u8]>]>>;

#[derive(Default)]
struct Known {
    /// [`text_search::changes`] when all of it was found.
    changes: u64,
    /// By the oid of a text search configuration; None: in it a word may depend on others.
    configurations: HashMap<u32, Option<Words>>,
    count: usize,
}

impl Known {
    /// Calls `each` with the lexemes of a word, if they are known.
    fn recall(&self, configuration: u32, word: &str, each: &mut impl FnMut(&[u8])) -> bool {
        let words = self.configurations.get(&configuration).and_then(Option::as_ref);
        let lexemes = words.and_then(|words| words.get(word));
        lexemes.iter().flat_map(|lexemes| lexemes.iter()).for_each(|lexeme| each(lexeme));
        lexemes.is_some()
    }
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Calls `each` with every lexeme of a text, as [`text_search::lexemes`] does, in another order.
pub fn lexemes(configuration: u32, text: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    forget_what_changed();
    if !has_plain_words(configuration)? {
        return text_search::lexemes(configuration, text, each);
    }
    let (mut unknown, mut others) = (Vec::new(), String::new());
    KNOWN.with_borrow(|known| {
        let look_up = |word| {
            if !known.recall(configuration, word, &mut each) {
                unknown.push(word);
            }
        };
        plain_words::split(text, look_up, &mut others);
    });
    for word in unknown {
        // A text may have it several times.
        let (is_known, is_full) =
            KNOWN.with_borrow(|known| (known.recall(configuration, word, &mut each), known.count >= MOST));
        match (is_known, is_full) {
            (true, _) => {}
            (false, false) => learn(configuration, word, &mut each)?,
            (false, true) => {
                others.push(' ');
                others.push_str(word);
            }
        }
    }
    text_search::lexemes(configuration, &others, each)
}

/// Dictionaries and configurations may have been altered.
fn forget_what_changed() {
    let changes = text_search::changes();
    KNOWN.with_borrow_mut(|known| {
        if known.changes != changes || known.count >= MOST {
            *known = Known { changes, ..Known::default() };
        }
    });
}

/// Whether a configuration, $1, has PostgreSQL's parser and dictionaries that look at one word at a time.
const IS_PLAIN: &str = "SELECT EXISTS (
     SELECT FROM pg_catalog.pg_ts_config c JOIN pg_catalog.pg_ts_parser p ON p.oid = c.cfgparser
     WHERE c.oid = $1::oid AND p.prsname = 'default' AND p.prsnamespace = 'pg_catalog'::regnamespace)
     AND NOT EXISTS (
     SELECT FROM pg_catalog.pg_ts_config_map m JOIN pg_catalog.pg_ts_dict d ON d.oid = m.mapdict
     JOIN pg_catalog.pg_ts_template t ON t.oid = d.dicttemplate
     WHERE m.mapcfg = $1::oid AND (t.tmplnamespace <> 'pg_catalog'::regnamespace
         OR t.tmplname NOT IN ('simple', 'synonym', 'ispell', 'snowball')))";

/// Whether a word has the same lexemes wherever it stands: the parser is PostgreSQL's own, and so is every dictionary, but for
/// the thesaurus, which looks at several words.
fn has_plain_words(configuration: u32) -> Result<bool> {
    let known = KNOWN.with_borrow(|known| known.configurations.get(&configuration).map(Option::is_some));
    if let Some(known) = known {
        return Ok(known);
    }
    let look = || spi::read_one(IS_PLAIN, &[Arg::Long(configuration.into())], |row| row.get::<bool>(0));
    // There is no newer snapshot than the statement's, whose answer must not be kept.
    if txn::is_parallel() {
        return Ok(look()? == Some(true));
    }
    // As it is now, whatever this transaction sees: so are parser and dictionaries.
    let is_plain = txn::with_latest_snapshot(look)? == Some(true);
    KNOWN.with_borrow_mut(|known| {
        known.configurations.insert(configuration, is_plain.then(Words::default));
    });
    Ok(is_plain)
}

fn learn(configuration: u32, word: &str, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let mut found: Vec<Box<[u8]>> = Vec::new();
    text_search::lexemes(configuration, word, |lexeme| found.push(lexeme.into()))?;
    found.iter().for_each(|lexeme| each(lexeme));
    KNOWN.with_borrow_mut(|known| {
        let Known { configurations, count, .. } = known;
        let words = configurations.get_mut(&configuration).and_then(Option::as_mut);
        if words.is_some_and(|words| words.insert(word.into(), found.into()).is_none()) {
            *count += 1;
        }
    });
    Ok(())
}
