//! How a question's words are read.

use super::fields::Fields;
use serde::{Deserialize, Serialize};

/// Whether quotation marks and minus signs of a question mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syntax {
    /// They are text, as in what people and agents write.
    Plain,
    /// Of the words that are looked for, "these one after the other" must be there, and -this must not.
    Web,
    /// As web where no chunk has the phrases: only exclusions bind. Nobody asks for it.
    #[serde(rename = "web without phrases")]
    WithoutPhrases,
}

impl Syntax {
    /// Reads a setting, which stays as it is where nothing is said.
    pub fn read(syntax: &mut Option<Syntax>, fields: &mut Fields) {
        let Some(word) = fields.text("syntax") else { return };
        match word.as_str() {
            "plain" => *syntax = Some(Syntax::Plain),
            "web" => *syntax = Some(Syntax::Web),
            _ => fields.problem("syntax", format_args!("\"{word}\" is not one of plain, web")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Retrieval;
    use serde_json::json;

    #[test]
    fn only_plain_and_web_can_be_asked_for() {
        for (word, expected) in [("plain", Syntax::Plain), ("web", Syntax::Web)] {
            let retrieval = Retrieval::parse(&json!({ "syntax": word })).unwrap();
            assert_eq!((retrieval.syntax, &retrieval.to_json()["syntax"]), (Some(expected), &json!(word)));
        }
        assert_eq!(Retrieval::default().to_json().get("syntax"), None);
        for word in ["lucene", "web without phrases", ""] {
            let problems = Retrieval::parse(&json!({ "syntax": word })).unwrap_err();
            assert!(problems[0].contains("plain, web"), "{problems:?}");
        }
    }
}
