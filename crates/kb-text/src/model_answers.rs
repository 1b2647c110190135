//! Answers of models and services about a document that chunking needs: the text of a file, the distances
//! between neighbouring sentences, and a sentence for each chunk that says what it is about. Each answer is
//! stored under a hash of its request, so that after an edit only what changed is requested.

use kb_types::Llm;
use kb_types::Prompt;
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, ServiceText};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The first bytes of the BLAKE3 hash of the request and of the model.
pub type Key = u128;

/// Answers by the hash of their requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    distances: BTreeMap<Key, f32>,
    sentences: BTreeMap<Key, String>,
    #[serde(default)]
    files: BTreeMap<Key, ServiceText>,
}

impl Answers {
    /// The inverse of [`Answers::encode`]. Answers that cannot be read are requested again.
    pub fn decode(stored: &[u8]) -> Answers {
        rmp_serde::from_slice(stored).unwrap_or_default()
    }

    /// None where there are no answers.
    pub fn encode(&self) -> Result<Option<Vec<u8>>> {
        if self.distances.is_empty() && self.sentences.is_empty() && self.files.is_empty() {
            return Ok(None);
        }
        let encoded =
            rmp_serde::to_vec(self).map_err(|e| Error::Internal(format!("answers of models: {e}")))?;
        Ok(Some(encoded))
    }

    pub fn add_distance(&mut self, key: Key, distance: f32) {
        self.distances.insert(key, distance);
    }

    pub fn add_file(&mut self, key: Key, text: ServiceText) {
        self.files.insert(key, text);
    }

    pub fn add_sentence(&mut self, key: Key, sentence: String) {
        self.sentences.insert(key, sentence);
    }
}

/// Neighbouring sentences whose distances are requested.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub build_no: i64,
    /// The fingerprint of the build's embedder.
    pub fingerprint: i64,
    pub sentences: Vec<String>,
}

/// A sentence that is requested from a chat model.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub build_no: i64,
    pub key: Key,
    pub prompt: Prompt,
}

/// A file whose text is requested from an extraction service.
#[derive(Debug, Clone, PartialEq)]
pub struct FileAsk {
    pub build_no: i64,
    pub key: Key,
    /// The id of the service.
    pub extractor: String,
    pub file: File,
}

/// The answers that are known while a document is chunked, which of them were used, and which are still
/// missing.
#[derive(Debug, Clone, Default)]
pub struct Consulted {
    pub known: Answers,
    pub used: Answers,
    pub runs: Vec<Run>,
    pub asks: Vec<Ask>,
    pub files: Vec<FileAsk>,
    /// For each build whose models do not answer, the reason.
    refused: HashMap<i64, Error>,
}

impl Consulted {
    pub fn new(known: Answers) -> Consulted {
        Consulted { known, ..Consulted::default() }
    }

    /// Starts another attempt to chunk the document.
    pub fn begin(&mut self) {
        (self.runs, self.asks, self.files) = (Vec::new(), Vec::new(), Vec::new());
        self.used = Answers::default();
    }

    /// Records that the models of a build do not answer. From now on its requests return this error.
    pub fn refuse(&mut self, build_no: i64, error: Error) {
        self.refused.entry(build_no).or_insert(error);
    }

    fn check(&self, build_no: i64) -> Result<()> {
        self.refused.get(&build_no).map_or(Ok(()), |error| Err(error.clone()))
    }

    pub fn is_complete(&self) -> bool {
        self.runs.is_empty() && self.asks.is_empty() && self.files.is_empty()
    }

    /// The distance of each sentence from the next one. None where it is not known and has been noted as
    /// missing. Errors: see [`Consulted::refuse`].
    pub fn distances(
        &mut self,
        build_no: i64,
        fingerprint: i64,
        sentences: &[&str],
    ) -> Result<Option<Vec<f32>>> {
        let mut found = Vec::with_capacity(sentences.len().saturating_sub(1));
        let mut run: Vec<String> = Vec::new();
        for pair in sentences.windows(2) {
            let &[first, second] = pair else { continue };
            let key = pair_key(fingerprint, first, second);
            match self.known.distances.get(&key) {
                Some(distance) => {
                    self.used.add_distance(key, *distance);
                    found.push(*distance);
                    self.end_run(build_no, fingerprint, &mut run);
                }
                None => {
                    if run.is_empty() {
                        run.push(first.to_string());
                    }
                    run.push(second.to_string());
                }
            }
        }
        self.end_run(build_no, fingerprint, &mut run);
        if found.len() + 1 >= sentences.len() {
            return Ok(Some(found));
        }
        self.check(build_no).map(|()| None)
    }

    fn end_run(&mut self, build_no: i64, fingerprint: i64, run: &mut Vec<String>) {
        if !run.is_empty() {
            self.runs.push(Run { build_no, fingerprint, sentences: std::mem::take(run) });
        }
    }

    /// The answer of a chat model to a prompt. None where it is not known and has been noted as missing.
    /// Errors: see [`Consulted::refuse`].
    pub fn sentence(&mut self, build_no: i64, llm: &Llm, prompt: Prompt) -> Result<Option<String>> {
        let key = prompt_key(llm, &prompt);
        match self.known.sentences.get(&key) {
            Some(sentence) => {
                self.used.add_sentence(key, sentence.clone());
                Ok(Some(sentence.clone()))
            }
            None => {
                self.check(build_no)?;
                self.asks.push(Ask { build_no, key, prompt });
                Ok(None)
            }
        }
    }
}

impl Consulted {
    /// The text that a service finds in a file, if it is known.
    pub fn known_file(&mut self, extractor: &Extractor, file: &File) -> Option<ServiceText> {
        let key = file_key(extractor, file);
        let text = self.known.files.get(&key)?.clone();
        self.used.add_file(key, text.clone());
        Some(text)
    }

    /// Notes that the text of a file is missing. Errors: see [`Consulted::refuse`].
    pub fn request_file(&mut self, build_no: i64, extractor: &Extractor, file: File) -> Result<()> {
        self.check(build_no)?;
        let (key, extractor) = (file_key(extractor, &file), extractor.id.clone());
        self.files.push(FileAsk { build_no, key, extractor, file });
        Ok(())
    }
}

fn file_key(extractor: &Extractor, file: &File) -> Key {
    let url = extractor.base_url.as_deref().unwrap_or_default();
    let name = file.name.as_deref().unwrap_or_default();
    key(&[extractor.version().as_bytes(), url.as_bytes(), name.as_bytes(), &file.bytes])
}

/// The key of the distance between two consecutive sentences, for one embedder.
pub fn pair_key(fingerprint: i64, first: &str, second: &str) -> Key {
    key(&[&fingerprint.to_le_bytes(), first.as_bytes(), second.as_bytes()])
}

fn prompt_key(llm: &Llm, prompt: &Prompt) -> Key {
    let Llm { provider, model, base_url, config, .. } = llm;
    let settings = format!("{:?}", (config.temperature_millis, config.max_output_tokens));
    let url = base_url.as_deref().unwrap_or_default();
    let parts = [provider, model, url, &settings, &prompt.system, &prompt.user];
    key(&parts.map(str::as_bytes))
}

fn key(parts: &[&[u8]]) -> Key {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Key::from_le_bytes(key)
}

/// The cosine distance of two vectors, 1 minus their cosine. It is 1 where a vector has no direction.
pub fn distance(first: &[f32], second: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(first, first) * dot(second, second)).sqrt();
    if lengths > 0.0 { (1.0 - dot(first, second) / lengths) as f32 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kb_types::extractor::{ExtractorConfig, TextType};
    use serde_json::json;

    #[test]
    fn only_unknown_pairs_are_requested_and_only_used_ones_are_kept() {
        let mut consulted = Consulted::default();
        assert_eq!(consulted.distances(3, 7, &["a", "b", "c"]).unwrap(), None);
        assert_eq!(consulted.runs[0].sentences, ["a", "b", "c"]);
        assert!(!consulted.is_complete());
        for (first, second, distance) in [("a", "b", 0.25), ("b", "c", 0.5), ("x", "y", 0.9)] {
            consulted.known.add_distance(pair_key(7, first, second), distance);
        }
        consulted.begin();
        assert_eq!(consulted.distances(3, 7, &["a", "b", "c"]).unwrap(), Some(vec![0.25, 0.5]));
        assert!(consulted.is_complete());
        // The answers that were kept are all that an edit needs.
        let stored = consulted.used.encode().unwrap().unwrap();
        let mut later = Consulted::new(Answers::decode(&stored));
        assert_eq!(later.known.distances.len(), 2);
        assert_eq!(later.distances(3, 7, &["z", "a", "b", "c", "d", "e"]).unwrap(), None);
        let runs: Vec<String> = later.runs.iter().map(|run| run.sentences.concat()).collect();
        assert_eq!(runs, ["za", "cde"]);
        // Distances belong to one embedder.
        assert_eq!(later.distances(3, 8, &["a", "b"]).unwrap(), None);
        assert_eq!(later.distances(3, 8, &["a"]).unwrap(), Some(vec![]));
        assert_eq!(later.distances(3, 8, &[]).unwrap(), Some(vec![]));
        // Known distances are returned even where the models do not answer.
        later.refuse(3, Error::Internal("no".into()));
        assert!(later.distances(3, 8, &["a", "b"]).is_err() && later.distances(3, 7, &["a", "b"]).is_ok());
        assert!(later.distances(4, 8, &["a", "b"]).is_ok());
        assert_eq!(Answers::decode(b"nonsense"), Answers::default());
        assert_eq!(Answers::default().encode().unwrap(), None);
    }

    #[test]
    fn the_text_of_a_file_is_requested_once_for_each_service_and_content() {
        let extractor = |config: serde_json::Value| Extractor {
            id: "ocr".into(),
            provider: "tika".into(),
            model: String::new(),
            base_url: None,
            config: ExtractorConfig::parse(&config).unwrap(),
        };
        let (first, second) = (extractor(json!({})), extractor(json!({"text_type": "text/plain"})));
        let file = |bytes: &[u8]| File { bytes: bytes.to_vec(), ..File::default() };
        let mut consulted = Consulted::default();
        assert_eq!(consulted.known_file(&first, &file(b"a")), None);
        consulted.request_file(3, &first, file(b"a")).unwrap();
        assert!(!consulted.is_complete());
        let text = ServiceText::whole(TextType::Plain, "words".into());
        consulted.known.add_file(consulted.files[0].key, text.clone());
        consulted.begin();
        assert_eq!(consulted.known_file(&first, &file(b"a")), Some(text.clone()));
        assert!(consulted.is_complete());
        let stored = consulted.used.encode().unwrap().unwrap();
        let mut later = Consulted::new(Answers::decode(&stored));
        assert_eq!(later.known_file(&first, &file(b"a")), Some(text));
        assert_eq!(later.known_file(&first, &file(b"b")), None);
        assert_eq!(later.known_file(&second, &file(b"a")), None);
        later.refuse(3, Error::Internal("no".into()));
        assert!(later.request_file(3, &first, file(b"b")).is_err());
        // What an earlier version of kb has stored can be read.
        let earlier = rmp_serde::to_vec(&(BTreeMap::from([(7u128, 0.5f32)]), BTreeMap::<Key, String>::new()));
        assert_eq!(Answers::decode(&earlier.unwrap()).distances.len(), 1);
    }

    #[test]
    fn distances_depend_on_directions_only() {
        assert!(distance(&[1.0, 0.0], &[3.0, 0.0]).abs() < 1e-7);
        assert!((distance(&[1.0, 0.0], &[0.0, 2.0]) - 1.0).abs() < 1e-7);
        assert!((distance(&[1.0, 0.0], &[-1.0, 0.0]) - 2.0).abs() < 1e-7);
        assert_eq!(distance(&[0.0, 0.0], &[1.0, 0.0]), 1.0);
    }
}
