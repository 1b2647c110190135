//! The lexemes of words that this process has met before. Parsing a word and looking it up in dictionaries
//! takes most of the time that the words of a text take.

use crate::pg::spi::{self, Arg, Row};
use crate::pg::{text_search, txn};
use foldhash::HashMap;
use kb_search::bm25::compound;
use kb_search::bm25::compound::{apart, humps, names};
use kb_search::bm25::signs::{Cut, cut, normal};
use kb_search::bm25::terms::{SHORT, key, term_of};
use kb_search::bm25::{Occurrences, Share, plain_words};
use kb_types::error::Result;
use kb_types::sync::lock;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

/// The most words that are remembered, of all configurations. When it is reached no more are added, and all
/// are forgotten before the next text.
const MOST: usize = 50_000;

/// A lexeme of a word that is known.
enum Lexeme<'a> {
    /// By its key.
    Short(u128),
    Other(&'a [u8]),
}

impl Lexeme<'_> {
    fn tell(self, share: Share, each: &mut impl FnMut(&[u8], Share)) {
        match self {
            Lexeme::Short(key) => each(term_of(&key.to_be_bytes()), share),
            Lexeme::Other(bytes) => each(bytes, share),
        }
    }

    fn add_to(self, occurrences: &mut Occurrences, share: Share) {
        match self {
            Lexeme::Short(key) => occurrences.add_key(key, share),
            Lexeme::Other(bytes) => occurrences.add(bytes, share),
        }
    }
}

/// Words and the lexemes of each.
#[derive(Default)]
struct WordLexemes {
    /// By the key of a short word that has at most one lexeme, and a short one: the key of the lexeme, or
    /// that of no bytes. One place in memory is read.
    short: HashMap<u128, u128>,
    /// The position of the lexemes of each other word.
    places: HashMap<Box<str>, Range<usize>>,
    /// Each lexeme follows its length, which has four bytes.
    lexemes: Vec<u8>,
}

impl WordLexemes {
    /// Calls `each` with the lexemes of a word. Returns whether the word is known.
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

    /// Remembers a word with its lexemes. Returns whether it was new.
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

/// The words that are known under a configuration.
#[derive(Default)]
struct Vocabulary {
    words: WordLexemes,
    /// The lexemes that joined words have in addition to their own: those of their parts.
    parts: WordLexemes,
}

impl Vocabulary {
    /// Calls `each` with the known lexemes of a text, which [`readable`] prepares, and returns the rest.
    fn look_up(&self, text: &str, mut each: impl FnMut(Lexeme, Share)) -> UnknownText {
        let (mut unknown, mut joined, mut others) = (String::new(), String::new(), String::new());
        let each = std::cell::RefCell::new(&mut each);
        let word = |word: &str| {
            if !self.words.recall(word, &mut |lexeme| each.borrow_mut()(lexeme, Share::Word)) {
                unknown.push_str(word);
                unknown.push(' ');
            }
        };
        let several = |word: &str| {
            if !self.recall_parts(word, &mut |lexeme, share| each.borrow_mut()(lexeme, share)) {
                joined.push_str(word);
                joined.push(' ');
            }
        };
        plain_words::split(text, word, several, &mut others);
        UnknownText { unknown, joined, others }
    }

    fn recall_parts(&self, word: &str, each: &mut impl FnMut(Lexeme, Share)) -> bool {
        let mut count = 0;
        if !self.parts.recall(word, &mut |_| count += 1) {
            return false;
        }
        self.parts.recall(word, &mut |lexeme| each(lexeme, Share::Part(count)))
    }
}

/// The parts of a text for which PostgreSQL is to be called.
struct UnknownText {
    /// Unknown words, each followed by a space.
    unknown: String,
    /// Joined words whose parts are unknown, in the same form.
    joined: String,
    /// Text for its parser.
    others: String,
}

impl UnknownText {
    fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.joined.is_empty() && self.others.is_empty()
    }

    /// Calls `each` with the lexemes of these, and remembers them.
    fn find(&self, configuration: u32, mut each: impl FnMut(&[u8], Share)) -> Result<()> {
        let mut others = self.others.clone();
        let words = self.unknown.split_terminator(' ');
        find_unknown(configuration, words, &mut others, &mut |lexeme| each(lexeme, Share::Word))?;
        for word in self.joined.split_terminator(' ') {
            find_parts(configuration, word, &mut each)?;
        }
        text_search::lexemes(configuration, &others, |lexeme| each(lexeme, Share::Word))
    }
}

/// The text that the parser is to read. Calls `each` with signs of scripts that have no blanks.
fn readable<'a>(text: &'a str, mut each: impl FnMut(&str, Share)) -> Cow<'a, str> {
    let mut tell = |signs: &str, what| match what {
        Cut::Pair | Cut::Alone => each(signs, Share::Word),
        Cut::Sign => each(signs, Share::Sign),
    };
    let text = match normal(text) {
        Cow::Borrowed(text) => cut(text, tell),
        Cow::Owned(text) => Cow::Owned(cut(&text, &mut tell).into_owned()),
    };
    compound::shortened(text)
}

#[derive(Default)]
struct KnownWords {
    /// The value of [`text_search::changes`] when these were found.
    changes: u64,
    /// By the oid of a text search configuration. None: in this configuration a word may depend on others.
    configurations: HashMap<u32, Option<Vocabulary>>,
    count: usize,
    /// The oids of configurations, by the names under which they were last found.
    names: HashMap<String, u32>,
}

impl KnownWords {
    fn of(&self, configuration: u32) -> Option<&Vocabulary> {
        self.configurations.get(&configuration)?.as_ref()
    }
}

/// Helper threads read it, too. Only the main thread, which may call PostgreSQL, adds to it.
static KNOWN: LazyLock<Mutex<KnownWords>> = LazyLock::new(Mutex::default);

/// The terms of a text that could be found without PostgreSQL.
pub struct InAdvance {
    configuration: u32,
    /// The value of [`KnownWords::changes`] at that time.
    changes: u64,
    found: KnownTerms,
}

enum KnownTerms {
    /// All terms, in the form of kb.chunks.terms.
    All(Vec<u8>),
    Some {
        occurrences: Occurrences,
        rest: UnknownText,
    },
}

/// The terms of a text, as far as they are known under the configuration that was last found by this name.
/// Returns None if that is not known, or if a word may depend on others in it. May be called on any thread,
/// because it calls nothing of PostgreSQL.
pub fn in_advance(configuration: &str, text: &str) -> Option<InAdvance> {
    let mut occurrences = Occurrences::of_text(text.len());
    let text = readable(text, |signs, share| occurrences.add(signs.as_bytes(), share));
    let known = lock(&KNOWN);
    let configuration = *known.names.get(configuration)?;
    let vocabulary = known.of(configuration)?;
    let rest = vocabulary.look_up(&text, |lexeme, share| lexeme.add_to(&mut occurrences, share));
    let changes = known.changes;
    drop(known);
    let found = match rest.is_empty() {
        true => KnownTerms::All(occurrences.encode()),
        false => KnownTerms::Some { occurrences, rest },
    };
    Some(InAdvance { configuration, changes, found })
}

/// The terms of a text in the form of kb.chunks.terms, using those found `in_advance`. Returns None if these
/// belong to another configuration, or if something was altered since.
pub fn complete(configuration: u32, in_advance: &InAdvance) -> Result<Option<Vec<u8>>> {
    forget_what_changed();
    if in_advance.configuration != configuration || in_advance.changes != lock(&KNOWN).changes {
        return Ok(None);
    }
    Ok(Some(match &in_advance.found {
        KnownTerms::All(terms) => terms.clone(),
        KnownTerms::Some { occurrences, rest } => {
            let mut occurrences = occurrences.clone();
            rest.find(configuration, |lexeme, share| occurrences.add(lexeme, share))?;
            occurrences.encode()
        }
    }))
}

/// Remembers which configuration a name denotes.
pub fn note_name(name: &str, configuration: u32) {
    let mut known = lock(&KNOWN);
    if known.names.get(name) != Some(&configuration) {
        known.names.insert(name.into(), configuration);
    }
}

/// Calls `each` with every lexeme of a text. These are the lexemes that [`text_search::lexemes`] finds, in
/// another order, and in addition the parts of joined words and the signs of scripts without blanks.
pub fn lexemes(configuration: u32, text: &str, mut each: impl FnMut(&[u8], Share)) -> Result<()> {
    forget_what_changed();
    let text = readable(text, |signs, share| each(signs.as_bytes(), share));
    if !has_plain_words(configuration)? {
        for word in compound::compounds(&text) {
            find_parts(configuration, word, &mut each)?;
        }
        return text_search::lexemes(configuration, &text, |lexeme| each(lexeme, Share::Word));
    }
    let known = lock(&KNOWN);
    // If an alteration became known meanwhile, no word is known any more.
    let nothing = Vocabulary::default();
    let vocabulary = known.of(configuration).unwrap_or(&nothing);
    let rest = vocabulary.look_up(&text, |lexeme, share| lexeme.tell(share, &mut each));
    drop(known);
    rest.find(configuration, each)
}

/// Calls `each` with the lexemes of unknown words, and remembers them as long as there is room. Words beyond
/// that are added to `others`, which the caller passes to PostgreSQL's parser.
fn find_unknown<'a>(
    configuration: u32,
    unknown: impl Iterator<Item = &'a str>,
    others: &mut String,
    each: &mut impl FnMut(&[u8]),
) -> Result<()> {
    for word in unknown {
        // A text may contain the word several times.
        let known = lock(&KNOWN);
        let mut tell = |lexeme: Lexeme| lexeme.tell(Share::Word, &mut |bytes, _| each(bytes));
        let is_known = known.of(configuration).is_some_and(|v| v.words.recall(word, &mut tell));
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

/// Calls `each` with the lexemes of a joined word's parts that the word does not have by itself. They are
/// remembered if the word may recur and there is room.
fn find_parts(configuration: u32, word: &str, each: &mut impl FnMut(&[u8], Share)) -> Result<()> {
    let known = lock(&KNOWN);
    // A text may contain the word several times.
    let is_known = known
        .of(configuration)
        .is_some_and(|v| v.recall_parts(word, &mut |lexeme, share| lexeme.tell(share, each)));
    let is_full = known.count >= MOST;
    drop(known);
    if is_known {
        return Ok(());
    }
    let mut own: HashMap<Vec<u8>, usize> = HashMap::default();
    text_search::lexemes(configuration, &format!(" {word}"), |lexeme| {
        *own.entry(lexeme.to_vec()).or_default() += 1;
    })?;
    let mut found: Vec<Vec<u8>> = names(word).map(String::into_bytes).collect();
    let parts = format!(" {} {}", apart(word), humps(word).join(" "));
    text_search::lexemes(configuration, &parts, |lexeme| match own.get_mut(lexeme) {
        Some(times) if *times > 0 => *times -= 1,
        _ => found.push(lexeme.to_vec()),
    })?;
    found.iter().for_each(|lexeme| each(lexeme, Share::Part(found.len())));
    if !is_full && plain_words::recurs(word) {
        remember(configuration, |vocabulary| vocabulary.parts.learn(word, &found));
    }
    Ok(())
}

/// Forgets what was found if dictionaries or configurations may have been altered since.
fn forget_what_changed() {
    let changes = text_search::changes();
    let mut known = lock(&KNOWN);
    if known.changes != changes || known.count >= MOST {
        *known = KnownWords { changes, ..KnownWords::default() };
    }
}

/// Whether a configuration, $1, has PostgreSQL's own parser, and dictionaries that look at one word at a
/// time.
const IS_PLAIN: &str = "SELECT EXISTS (
     SELECT FROM pg_catalog.pg_ts_config c JOIN pg_catalog.pg_ts_parser p ON p.oid = c.cfgparser
     WHERE c.oid = $1::oid AND p.prsname = 'default' AND p.prsnamespace = 'pg_catalog'::regnamespace)
     AND NOT EXISTS (
     SELECT FROM pg_catalog.pg_ts_config_map m JOIN pg_catalog.pg_ts_dict d ON d.oid = m.mapdict
     JOIN pg_catalog.pg_ts_template t ON t.oid = d.dicttemplate
     WHERE m.mapcfg = $1::oid AND (t.tmplnamespace <> 'pg_catalog'::regnamespace
         OR t.tmplname NOT IN ('simple', 'synonym', 'ispell', 'snowball')))";

/// Whether a word has the same lexemes wherever it stands: the parser is PostgreSQL's own, and so is every
/// dictionary, and none is a thesaurus, which looks at several words.
fn has_plain_words(configuration: u32) -> Result<bool> {
    let known = lock(&KNOWN).configurations.get(&configuration).map(Option::is_some);
    if let Some(known) = known {
        return Ok(known);
    }
    let look = || spi::read_one(IS_PLAIN, &[Arg::Long(configuration.into())], Row::only::<bool>);
    // A parallel process cannot take a newer snapshot than the statement's, and an answer under that one must
    // not be kept.
    if txn::is_parallel() {
        return Ok(look()? == Some(true));
    }
    // The newest state counts, whatever this transaction sees, because parser and dictionaries use it, too.
    let is_plain = txn::with_latest_snapshot(look)? == Some(true);
    lock(&KNOWN).configurations.insert(configuration, is_plain.then(Vocabulary::default));
    Ok(is_plain)
}

fn learn(configuration: u32, word: &str, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    // The parser reads the word as it does in a text.
    text_search::lexemes(configuration, &format!(" {word}"), |lexeme| found.push(lexeme.to_vec()))?;
    found.iter().for_each(|lexeme| each(lexeme));
    remember(configuration, |vocabulary| vocabulary.words.learn(word, &found));
    Ok(())
}

fn remember(configuration: u32, learn: impl FnOnce(&mut Vocabulary) -> bool) {
    let mut known = lock(&KNOWN);
    let KnownWords { configurations, count, .. } = &mut *known;
    let vocabulary = configurations.get_mut(&configuration).and_then(Option::as_mut);
    *count += usize::from(vocabulary.is_some_and(learn));
}
