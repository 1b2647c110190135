//! The lexemes of words that this process has met before: parsing a word and looking it up in dictionaries takes most of the
//! time that a text's words take.

use crate::bm25::terms::{SHORT, key, term_of};
use crate::bm25::{Occurrences, plain_words};
use crate::error::Result;
use crate::pg::spi::{self, Arg};
use crate::pg::{text_search, txn};
use crate::sync::lock;
use foldhash::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

/// Words that are remembered at most, of all configurations; then no more are, and all are forgotten before the next text.
const MOST: usize = 50_000;

/// A lexeme of a word that is known.
enum Lexeme<'a> {
    /// By its key.
    Short(u128),
    Other(&'a [u8]),
}

impl Lexeme<'_> {
    fn tell(self, each: &mut impl FnMut(&[u8])) {
        match self {
            Lexeme::Short(key) => each(term_of(&key.to_be_bytes())),
            Lexeme::Other(bytes) => each(bytes),
        }
    }
}

/// Words, and the lexemes of each.
#[derive(Default)]
struct Words {
    /// By the keys of short words that have one short lexeme or none, the key of that or of no bytes: one place in memory is read.
    short: HashMap<u128, u128>,
    /// Where the lexemes of other words are.
    places: HashMap<Box<str>, Range<usize>>,
    /// Each behind its length, in four bytes.
    lexemes: Vec<u8>,
}

impl Words {
    /// Calls `each` with the lexemes of a word, if it is known.
    fn recall(&self, word: &str, each: &mut impl FnMut(Lexeme)) -> bool {
        if word.len() <= SHORT
            && let Some(lexeme) = self.short.get(&key(word.as_bytes()))
        {
            if *lexeme != key(b"") {
                each(Lexeme::Short(*lexeme));
            }
            return true;
        }
        let Some(place) = self.places.get(word) else { return false };
        let mut rest = &self.lexemes[place.clone()];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (lexeme, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            each(Lexeme::Other(lexeme));
            rest = behind;
        }
        true
    }

    /// Remembers a word with its lexemes; whether it was not known.
    fn learn(&mut self, word: &str, lexemes: &[Vec<u8>]) -> bool {
        if self.recall(word, &mut |_| {}) {
            return false;
        }
        let only = match lexemes {
            [] => Some(&[][..]),
            [only] => Some(&only[..]).filter(|only| (1..=SHORT).contains(&only.len())),
            _ => None,
        };
        if let Some(only) = only.filter(|_| word.len() <= SHORT) {
            return self.short.insert(key(word.as_bytes()), key(only)).is_none();
        }
        let start = self.lexemes.len();
        for lexeme in lexemes {
            self.lexemes.extend((lexeme.len() as u32).to_le_bytes());
            self.lexemes.extend(lexeme);
        }
        self.places.insert(word.into(), start..self.lexemes.len()).is_none()
    }
}

#[derive(Default)]
struct Known {
    /// [`text_search::changes`] when all of it was found.
    changes: u64,
    /// By the oid of a text search configuration; None: in it a word may depend on others.
    configurations: HashMap<u32, Option<Words>>,
    count: usize,
    /// Oids of configurations, by the names that they were last found by.
    names: HashMap<String, u32>,
}

impl Known {
    /// Calls `each` with the lexemes of a word, if they are known.
    fn recall(&self, configuration: u32, word: &str, each: &mut impl FnMut(Lexeme)) -> bool {
        let words = self.configurations.get(&configuration).and_then(Option::as_ref);
        words.is_some_and(|words| words.recall(word, each))
    }
}

/// Read by helper threads, too; only the main one, which may call PostgreSQL, adds to it.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// What could be said of a text's terms without PostgreSQL.
pub struct InAdvance {
    configuration: u32,
    /// As [`Known::changes`].
    changes: u64,
    found: Found,
}

enum Found {
    /// As kb.chunks.terms has them.
    All(Vec<u8>),
    /// The lexemes of words that are known; the other words, each with a space behind it; and what PostgreSQL's parser is to read.
    Some { occurrences: Occurrences, unknown: String, others: String },
}

/// The terms of a text, as far as they are known under the configuration that was last found by this name; None: it was not, or
/// a word may depend on others in it. On any thread: it calls nothing of PostgreSQL.
pub fn in_advance(configuration: &str, text: &str) -> Option<InAdvance> {
    let known = lock(&KNOWN);
    let configuration = *known.names.get(configuration)?;
    let words = known.configurations.get(&configuration)?.as_ref()?;
    let (mut occurrences, mut unknown, mut others) =
        (Occurrences::of_text(text.len()), String::new(), String::new());
    let mut add = |lexeme: Lexeme| match lexeme {
        Lexeme::Short(key) => occurrences.add_key(key),
        Lexeme::Other(bytes) => occurrences.add(bytes),
    };
    let look_up = |word: &str| {
        if !words.recall(word, &mut add) {
            unknown.push_str(word);
            unknown.push(' ');
        }
    };
    plain_words::split(text, look_up, &mut others);
    let changes = known.changes;
    drop(known);
    let found = match unknown.is_empty() && others.is_empty() {
        true => Found::All(occurrences.encode()),
        false => Found::Some { occurrences, unknown, others },
    };
    Some(InAdvance { configuration, changes, found })
}

/// The terms of a text as kb.chunks.terms has them, where much is known `in_advance`; None: that is of another configuration, or
/// something was altered since.
pub fn complete(configuration: u32, in_advance: &InAdvance) -> Result<Option<Vec<u8>>> {
    forget_what_changed();
    if in_advance.configuration != configuration || in_advance.changes != lock(&KNOWN).changes {
        return Ok(None);
    }
    Ok(Some(match &in_advance.found {
        Found::All(terms) => terms.clone(),
        Found::Some { occurrences, unknown, others } => {
            let (mut occurrences, mut others) = (occurrences.clone(), others.clone());
            let each = &mut |lexeme: &[u8]| occurrences.add(lexeme);
            find_unknown(configuration, unknown.split_terminator(' '), &mut others, each)?;
            text_search::lexemes(configuration, &others, each)?;
            occurrences.encode()
        }
    }))
}

/// Remembers which configuration a name means.
pub fn note_name(name: &str, configuration: u32) {
    let mut known = lock(&KNOWN);
    if known.names.get(name) != Some(&configuration) {
        known.names.insert(name.into(), configuration);
    }
}

/// Calls `each` with every lexeme of a text, as [`text_search::lexemes`] does, in another order.
pub fn lexemes(configuration: u32, text: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    forget_what_changed();
    if !has_plain_words(configuration)? {
        return text_search::lexemes(configuration, text, each);
    }
    let (mut unknown, mut others) = (Vec::new(), String::new());
    let known = lock(&KNOWN);
    let look_up = |word| {
        if !known.recall(configuration, word, &mut |lexeme| lexeme.tell(&mut each)) {
            unknown.push(word);
        }
    };
    plain_words::split(text, look_up, &mut others);
    drop(known);
    find_unknown(configuration, unknown.into_iter(), &mut others, &mut each)?;
    text_search::lexemes(configuration, &others, each)
}

/// Calls `each` with the lexemes of words that were not known, and remembers them as long as there is room; words beyond that are
/// added to `others`, which the caller gives to PostgreSQL's parser.
fn find_unknown<'a>(
    configuration: u32,
    unknown: impl Iterator<Item = &'a str>,
    others: &mut String,
    each: &mut impl FnMut(&[u8]),
) -> Result<()> {
    for word in unknown {
        // A text may have it several times.
        let known = lock(&KNOWN);
        let is_known = known.recall(configuration, word, &mut |lexeme| lexeme.tell(each));
        let is_full = known.count >= MOST;
        drop(known);
        match (is_known, is_full) {
            (true, _) => {}
            (false, false) => learn(configuration, word, each)?,
            (false, true) => {
                others.push(' ');
                others.push_str(word);
            }
        }
    }
    Ok(())
}

/// Dictionaries and configurations may have been altered.
fn forget_what_changed() {
    let changes = text_search::changes();
    let mut known = lock(&KNOWN);
    if known.changes != changes || known.count >= MOST {
        *known = Known { changes, ..Known::default() };
    }
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
    let known = lock(&KNOWN).configurations.get(&configuration).map(Option::is_some);
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
    lock(&KNOWN).configurations.insert(configuration, is_plain.then(Words::default));
    Ok(is_plain)
}

fn learn(configuration: u32, word: &str, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    // As it is read where it stands.
    text_search::lexemes(configuration, &format!(" {word}"), |lexeme| found.push(lexeme.to_vec()))?;
    found.iter().for_each(|lexeme| each(lexeme));
    let mut known = lock(&KNOWN);
    let Known { configurations, count, .. } = &mut *known;
    let words = configurations.get_mut(&configuration).and_then(Option::as_mut);
    if words.is_some_and(|words| words.learn(word, &found)) {
        *count += 1;
    }
    Ok(())
}
