//! kb.tune: finds the mode and weights that answer the questions of an evaluation set best.

use super::evaluate::{Evaluated, Trial, measure};
use crate::builds::knowledge_bases;
use crate::knowledge_bases::alter_knowledge_base::alter_knowledge_base;
use crate::knowledge_bases::knowledge_base_settings::WantedKnowledgeBase;
use crate::pg::report;
use crate::pg::role::as_owner;
use crate::query::search;
use kb_search::tuning;
use kb_search::tuning::{Gain, LEAST_QUESTIONS, Proposal, propose};
use kb_types::Retrieval;
use kb_types::error::{Error, Result};
use serde_json::{Value, json};

/// Settings that were tried.
pub struct Tuned {
    pub evaluated: Evaluated,
    /// The gain in nDCG over the present settings.
    pub gain: Gain,
    pub is_present: bool,
    pub is_proposed: bool,
}

/// Measures the present settings (first) and others, and proposes the best; with `apply` these become the
/// settings of the knowledge base. `k` and `top_k` apply to all of them, and are not stored.
pub fn tune(
    kb_id: &str,
    eval_set: &str,
    apply: bool,
    k: Option<i32>,
    top_k: Option<i32>,
) -> Result<Vec<Tuned>> {
    if apply {
        // Only the owner may change the knowledge base, which is checked before anything is measured.
        knowledge_bases::get_own(kb_id)?;
    }
    let own = search::target(kb_id)?.retrieval;
    let mut options = vec![json!({})];
    options.extend(
        candidates().into_iter().filter(|candidate| own.with_options(candidate).as_ref() != Ok(&own)),
    );
    let trials = Trial::all(kb_id, options)?;
    let trials = trials.into_iter().map(|trial| trial.at(k, top_k)).collect::<Result<Vec<Trial>>>()?;
    let (_, outcomes) = measure(kb_id, eval_set, &trials, false)?;
    let scores: Vec<Vec<f64>> = outcomes
        .iter()
        .map(|of_trial| of_trial.iter().map(|outcome| outcome.measures.ndcg).collect())
        .collect();
    let proposal = propose(&scores);
    explain(&proposal, &trials[proposal.best].options, scores[0].len());
    if apply && proposal.place > 0 {
        let kb = knowledge_bases::get_own(kb_id)?;
        let now = as_owner(|| knowledge_bases::lock(&kb))?.retrieval;
        apply_options(kb_id, &now, &trials[proposal.place].options)?;
    }
    let rows = trials.iter().zip(&outcomes).zip(&scores).enumerate();
    Ok(rows
        .map(|(place, ((trial, outcomes), of_trial))| Tuned {
            evaluated: Evaluated::of(trial, outcomes),
            gain: tuning::gain(of_trial, &scores[0]),
            is_present: place == 0,
            is_proposed: place == proposal.place,
        })
        .collect())
}

/// The settings that are tried besides the present ones.
fn candidates() -> Vec<Value> {
    let mut candidates = vec![json!({"mode": "dense"}), json!({"mode": "keyword"})];
    for (dense, keyword) in [(1.0, 0.5), (1.0, 1.0), (0.5, 1.0)] {
        let hybrid = json!({"fusion": "rrf", "weights": {"dense": dense, "keyword": keyword}});
        candidates.push(json!({"mode": "hybrid", "hybrid": hybrid}));
    }
    for alpha in [0.3, 0.5, 0.7] {
        candidates.push(json!({"mode": "hybrid", "hybrid": {"fusion": "z_score", "alpha": alpha}}));
    }
    candidates.push(json!({"mode": "hybrid", "hybrid": {"fusion": "score", "alpha": 0.5}}));
    candidates
}

fn apply_options(kb_id: &str, now: &Retrieval, options: &Value) -> Result<()> {
    let retrieval = now
        .with_options(options)
        .map_err(|problems| Error::Argument { argument: "options", problem: problems.join("; ") })?;
    let wanted = WantedKnowledgeBase { retrieval: Some(retrieval.to_json()), ..Default::default() };
    alter_knowledge_base(kb_id, wanted)
}

/// Gives the reason for the proposal.
fn explain(proposal: &Proposal, best: &Value, questions: usize) {
    let Gain { mean, error } = proposal.held_out;
    report::notice(&if questions < LEAST_QUESTIONS {
        format!("{questions} questions are too few for a proposal; {LEAST_QUESTIONS} are needed")
    } else if proposal.best == 0 {
        "the current settings are the best of those that were tried".to_string()
    } else {
        let proposed = if proposal.place > 0 {
            "proposed"
        } else {
            "not proposed: the gain may be due to chance, or is too small"
        };
        format!(
            "{best} is best; chosen by four fifths of the questions, settings gain {mean:.4} nDCG for the others \
             (standard error {error:.4}): {proposed}"
        )
    });
}
