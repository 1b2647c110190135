//! The options of a search, which query and ask share.

use crate::exit::{Error, Result};

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Mode {
    /// By meaning
    Dense,
    /// By words
    Keyword,
    /// Both
    Hybrid,
}

#[derive(clap::Args)]
pub struct Retrieval {
    /// The most passages
    #[arg(long, value_name = "N")]
    pub top_k: Option<i32>,
    /// The least score of a passage
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub min_score: Option<f64>,
    /// How to search
    #[arg(long, value_name = "MODE", value_enum)]
    mode: Option<Mode>,
    /// A condition on documents, as JSON, such as '{"site": "Oslo"}'
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
}

impl Retrieval {
    pub fn mode(&self) -> Option<&'static str> {
        self.mode.map(|mode| match mode {
            Mode::Dense => "dense",
            Mode::Keyword => "keyword",
            Mode::Hybrid => "hybrid",
        })
    }

    /// The filter as it was written, if it is JSON.
    pub fn filter(&self) -> Result<Option<String>> {
        let Some(text) = &self.filter else {
            return Ok(None);
        };
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(_) => Ok(Some(text.clone())),
            Err(e) => Err(Error::usage(format!("--filter is not JSON: {e}"))),
        }
    }

    /// The same as options of kb.answer.
    pub fn options(&self) -> Result<Option<String>> {
        let mut options = serde_json::Map::new();
        if let Some(top_k) = self.top_k {
            options.insert("top_k".into(), top_k.into());
        }
        if let Some(min_score) = self.min_score {
            options.insert("min_score".into(), min_score.into());
        }
        if let Some(mode) = self.mode() {
            options.insert("mode".into(), mode.into());
        }
        if let Some(filter) = self.filter()? {
            options.insert("filter".into(), serde_json::from_str(&filter).unwrap_or_default());
        }
        Ok((!options.is_empty()).then(|| serde_json::Value::from(options).to_string()))
    }
}
