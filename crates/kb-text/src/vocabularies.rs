//! The vocabularies of OpenAI's tokenizers, compiled in packed: tiktoken-rs has the same ones in four times
//! the bytes. tools/pack-vocabularies.py makes the files from that crate, and says what is in them.

use flate2::read::DeflateDecoder;
use std::io::Read;
use std::sync::LazyLock;
use tiktoken_rs::tokenizer::Tokenizer as Encoding;
use tiktoken_rs::{CoreBPE, Rank};

const R50K_TOKENS: usize = 50_256;
const P50K_PATTERN: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
const CL100K_PATTERN: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";

/// A vocabulary, or why it cannot be read.
type Vocabulary = Result<CoreBPE, String>;

static O200K: LazyLock<Vocabulary> = LazyLock::new(|| {
    read(include_bytes!("vocabularies/o200k_base.bin"), usize::MAX, tiktoken_rs::O200K_BASE_PAT_STR)
});
static CL100K: LazyLock<Vocabulary> =
    LazyLock::new(|| read(include_bytes!("vocabularies/cl100k_base.bin"), usize::MAX, CL100K_PATTERN));
static P50K: LazyLock<Vocabulary> = LazyLock::new(|| read(P50K_PACKED, usize::MAX, P50K_PATTERN));
static R50K: LazyLock<Vocabulary> = LazyLock::new(|| read(P50K_PACKED, R50K_TOKENS, P50K_PATTERN));
/// r50k_base is the beginning of p50k_base.
const P50K_PACKED: &[u8] = include_bytes!("vocabularies/p50k_base.bin");

/// The vocabulary of an encoding, without its special tokens: kb reads them as text, so encodings that differ
/// in those only share one.
pub fn vocabulary(encoding: Encoding) -> Result<&'static CoreBPE, String> {
    let vocabulary = match encoding {
        Encoding::O200kHarmony | Encoding::O200kBase => &O200K,
        Encoding::Cl100kBase => &CL100K,
        Encoding::P50kBase | Encoding::P50kEdit => &P50K,
        Encoding::R50kBase | Encoding::Gpt2 => &R50K,
    };
    LazyLock::force(vocabulary).as_ref().map_err(String::clone)
}

/// The first `tokens` of a packed vocabulary.
fn read(packed: &[u8], tokens: usize, pattern: &str) -> Vocabulary {
    let mut bytes = Vec::new();
    DeflateDecoder::new(packed).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    let mut rest = bytes.as_slice();
    let by_rank = std::iter::from_fn(|| {
        let (length, after) = rest.split_first()?;
        let (token, after) = after.split_at_checked((*length).into())?;
        rest = after;
        Some(token.to_vec())
    });
    // A rank that has no token has an empty one.
    let encoder = by_rank.zip(0 as Rank..).take(tokens).filter(|(token, _)| !token.is_empty()).collect();
    CoreBPE::new(encoder, std::iter::empty().collect(), pattern).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiktoken_rs::bpe_for_tokenizer;

    const ENCODINGS: [Encoding; 7] = [
        Encoding::O200kHarmony,
        Encoding::O200kBase,
        Encoding::Cl100kBase,
        Encoding::P50kBase,
        Encoding::P50kEdit,
        Encoding::R50kBase,
        Encoding::Gpt2,
    ];

    #[test]
    fn packed_vocabularies_hold_the_tokens_of_tiktoken_rs() {
        for encoding in ENCODINGS {
            let (ours, theirs) = (vocabulary(encoding).unwrap(), bpe_for_tokenizer(encoding).unwrap());
            let special = theirs.special_tokens();
            let mut tokens = 0;
            for rank in 0..201_100 {
                let expected = theirs.decode_bytes(&[rank]).ok();
                let expected = expected.filter(|t| !special.contains(&*String::from_utf8_lossy(t)));
                tokens += usize::from(expected.is_some());
                assert_eq!(ours.decode_bytes(&[rank]).ok(), expected, "{encoding:?}, rank {rank}");
            }
            assert!(tokens >= R50K_TOKENS, "{encoding:?} has {tokens} tokens");
        }
    }

    #[test]
    fn packed_vocabularies_encode_as_tiktoken_rs_does() {
        let corpus = [
            include_str!("vocabularies.rs"),
            include_str!("../../../README.md"),
            include_str!("../../../tests/data/unspaced.tsv"),
            "It's WE'LL they'VE 1234567 12,5  a\t\tb \r\n\r\n  \n x   ",
            "<|endoftext|> Hëllo  wörld\n\nnaïve 🦀🦀👩‍👩‍👧 漢字かな ไทย ភាសា \u{301}e\u{301} ǅ ٣٤٥",
        ];
        for encoding in ENCODINGS {
            let (ours, theirs) = (vocabulary(encoding).unwrap(), bpe_for_tokenizer(encoding).unwrap());
            for text in corpus {
                assert!(ours.encode_ordinary(text) == theirs.encode_ordinary(text), "{encoding:?}: {text}");
            }
        }
    }
}
