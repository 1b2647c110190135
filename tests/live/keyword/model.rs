//! BM25 in a few lines, with which answers by words are compared.

use std::collections::BTreeMap;

/// Documents by external id, each with one chunk; white space separates words.
#[derive(Default, Clone)]
pub struct Model(pub BTreeMap<String, String>);

pub struct Scored {
    pub id: String,
    pub score: f64,
}

impl Model {
    /// All documents that have a word of the question, the best first, those with equal scores by id. `k1`
    /// and `b` are those of BM25.
    pub fn ask(&self, question: &str, (k1, b): (f64, f64), keeps: impl Fn(&str) -> bool) -> Vec<Scored> {
        let texts: Vec<(&String, Vec<&str>)> =
            self.0.iter().map(|(id, text)| (id, text.split_whitespace().collect())).collect();
        let count = texts.len() as f64;
        let average = texts.iter().map(|(_, words)| words.len()).sum::<usize>() as f64 / count;
        let mut scored: Vec<Scored> =
            texts.iter().map(|(id, _)| Scored { id: id.to_string(), score: 0.0 }).collect();
        for word in question.split_whitespace() {
            let has = |words: &Vec<&str>| words.iter().filter(|other| **other == word).count() as f64;
            let df = texts.iter().filter(|(_, words)| has(words) > 0.0).count() as f64;
            let idf = (1.0 + (count - df + 0.5) / (df + 0.5)).ln();
            for (scored, (_, words)) in scored.iter_mut().zip(&texts) {
                let (f, length) = (has(words), words.len() as f64);
                if f > 0.0 {
                    scored.score += idf * f * (k1 + 1.0) / (f + k1 * (1.0 - b + b * length / average));
                }
            }
        }
        scored.retain(|scored| scored.score > 0.0 && keeps(&scored.id));
        scored.sort_by(|x, y| y.score.total_cmp(&x.score).then(x.id.cmp(&y.id)));
        scored
    }
}
