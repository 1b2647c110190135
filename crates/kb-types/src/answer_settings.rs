//! Settings of retrieval that shape an answer after its chunks have been found.

use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};

/// Keeps an answer from repeating itself. A field that is None changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Diversity {
    /// The most rows of one document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_document: Option<usize>,
    /// Texts whose resemblance is at least this count once. 1 means equal except for case and white space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mmr: Option<Mmr>,
}

/// Maximal marginal relevance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mmr {
    /// At 1 only relevance counts; at 0 only how much a row differs from the rows before it.
    pub lambda: f64,
}

/// What an answer includes of a document besides the chunk that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// How many chunks before and after it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub neighbors: usize,
    /// Whether to include the section that contains it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub section: bool,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// The largest `max_per_document`, which is the number of rows that an answer can have.
const MAX_PER_DOCUMENT: i64 = 10_000;

/// The most neighbours on each side.
const MAX_NEIGHBORS: i64 = 100;

/// The least threshold: texts below this resemblance are not alike.
const LEAST_RESEMBLANCE: f64 = 0.3;

impl Diversity {
    pub fn is_none(&self) -> bool {
        *self == Diversity::default()
    }

    /// Replaces the settings that the fields name and keeps the others.
    pub fn read(&mut self, fields: &mut Fields) {
        if fields.null("per_document") {
            self.per_document = None;
        }
        if fields.null("collapse") {
            self.collapse = None;
        }
        let rows = fields.integer("per_document", 1, MAX_PER_DOCUMENT);
        self.per_document = rows.map(|n| n as usize).or(self.per_document);
        self.collapse = fields.number("collapse", LEAST_RESEMBLANCE, 1.0).or(self.collapse);
        let Some(given) = fields.object_or_null("mmr") else { return };
        let Some(value) = given else {
            self.mmr = None;
            return;
        };
        let mut inner = Fields::new("mmr", &value);
        let lambda = inner.number("lambda", 0.0, 1.0);
        self.mmr = Some(Mmr { lambda: lambda.or(self.mmr.map(|mmr| mmr.lambda)).unwrap_or(0.5) });
        fields.problems.extend(inner.finish());
    }
}

impl Surroundings {
    pub fn is_none(&self) -> bool {
        *self == Surroundings::default()
    }

    /// Replaces the settings that the fields name and keeps the others.
    pub fn read(&mut self, fields: &mut Fields) {
        if let Some(n) = fields.integer("neighbors", 0, MAX_NEIGHBORS) {
            self.neighbors = n as usize;
        }
        self.section = fields.boolean("section").unwrap_or(self.section);
    }
}

#[cfg(test)]
mod tests {
    use crate::Retrieval;
    use serde_json::json;

    #[test]
    fn options_of_a_call_override_the_knowledge_bases_settings() {
        let given = json!({"per_document": 2, "collapse": 0.9, "mmr": {"lambda": 0.3}, "neighbors": 1, "section": true});
        let own = Retrieval::parse(&given).unwrap();
        assert_eq!(Retrieval::parse(&own.to_json()).unwrap(), own);
        let asked = own.with_options(&json!({"mmr": {}, "neighbors": 0, "section": false, "collapse": 1}));
        let asked = asked.unwrap();
        assert_eq!((asked.diversity.per_document, asked.diversity.collapse), (Some(2), Some(1.0)));
        assert_eq!(asked.diversity.mmr.unwrap().lambda, 0.3);
        assert!(asked.surroundings.is_none());
        let none = own.with_options(&json!({"mmr": null, "collapse": null, "per_document": null})).unwrap();
        assert!(none.diversity.is_none());
        let plain = Retrieval::parse(&json!({"mmr": {}})).unwrap();
        assert_eq!(plain.diversity.mmr.unwrap().lambda, 0.5);
        // A setting at its default is not stored.
        assert!(!Retrieval::default().to_json().to_string().contains("neighbors"));
    }

    #[test]
    fn each_key_that_options_can_have_is_named_once() {
        let given = json!({"per_document": null, "collapse": null, "mmr": null, "speed": 1});
        let problems = Retrieval::default().with_options(&given).unwrap_err();
        let (_, known) = problems[0].split_once("known keys are ").unwrap();
        let known: Vec<&str> = known.split(", ").collect();
        for key in ["per_document", "collapse", "mmr", "explain"] {
            assert_eq!(known.iter().filter(|name| **name == key).count(), 1, "{known:?}");
        }
    }

    #[test]
    fn all_problems_are_reported_together() {
        let given = json!({"per_document": 0, "collapse": 0.1, "mmr": {"lambda": 1.5, "k": 1}, "neighbors": 101, "section": 1});
        assert_eq!(Retrieval::parse(&given).unwrap_err().len(), 6);
        for mmr in [json!(true), json!(0.5), json!([])] {
            assert_eq!(
                Retrieval::parse(&json!({ "mmr": mmr })).unwrap_err(),
                ["retrieval.mmr: must be a JSON object"]
            );
        }
    }
}
