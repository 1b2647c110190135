//! Bindings say which knowledge bases an agent asks, and how. They stand in scopes, and those of a narrower
//! scope override those of a wider one.

use kb_types::{Json, id};
use std::collections::HashMap;
use std::fmt;

/// The widest scope comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Project,
    Workflow,
    Task,
    Agent,
}

kb_types::named!(Level { Project => "project", Workflow => "workflow", Task => "task", Agent => "agent" });

/// Where a binding applies: in the whole project, or in one workflow, task or agent. Scopes are ordered from
/// the widest to the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    level: Level,
    /// Empty for the project.
    name: String,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str(self.level.name()),
            name => write!(f, "{}:{name}", self.level.name()),
        }
    }
}

impl Scope {
    /// Reads `project`, `workflow:NAME`, `task:NAME` or `agent:NAME`.
    pub fn parse(text: &str) -> Result<Scope, String> {
        let forms = "project, workflow:NAME, task:NAME or agent:NAME";
        let is_not = || format!("\"{}\" is not {forms}", kb_types::sizes::cut(text, 60));
        let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
        let level = <Level as kb_types::named::Named>::named(word).ok_or_else(is_not)?;
        let name = match (level, name) {
            (Level::Project, None) => "",
            (Level::Workflow | Level::Task | Level::Agent, Some(name))
                if !name.is_empty() && name.trim() == name =>
            {
                name
            }
            _ => return Err(is_not()),
        };
        if name.contains('/') {
            return Err(format!("the name of {} {} may not contain /", article(level), level.name()));
        }
        if name.chars().any(char::is_control) {
            return Err("a name contains control characters".into());
        }
        match id::problem(text, id::MAX_BYTES) {
            Some(problem) => Err(format!("\"{}\": {problem}", kb_types::sizes::cut(text, 60))),
            None => Ok(Scope { level, name: name.to_string() }),
        }
    }

    /// Reads the scopes that apply at one place, of each level at most one, and puts them in order.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Scope>, String> {
        let mut scopes =
            texts.iter().map(|text| Scope::parse(text)).collect::<Result<Vec<Scope>, String>>()?;
        scopes.sort();
        match scopes.windows(2).find(|pair| pair[0].level == pair[1].level) {
            Some(pair) if pair[0] == pair[1] => Err(format!("\"{}\" appears twice", pair[0])),
            Some(pair) => Err(format!(
                "\"{}\" and \"{}\" exclude each other; at most one {} may be given",
                pair[0],
                pair[1],
                pair[0].level.name()
            )),
            None => Ok(scopes),
        }
    }

    /// The id that a knowledge base of this workflow, task or agent has under a name. None: this is the
    /// project, whose knowledge bases have no other name.
    pub fn own_id(&self, id_ref: &str) -> Option<String> {
        (self.level != Level::Project).then(|| format!("{self}/{id_ref}"))
    }
}

fn article(level: Level) -> &'static str {
    if level == Level::Agent { "an" } else { "a" }
}

/// Says what is wrong with the name of a knowledge base in a binding. The own knowledge bases of a workflow,
/// task or agent have no name outside of it.
pub fn id_ref_problem(id_ref: &str) -> Option<String> {
    let is_of = |level: &Level| id_ref.split_once(':').is_some_and(|(word, _)| word == level.name());
    if let Some(level) = [Level::Workflow, Level::Task, Level::Agent].iter().find(|level| is_of(level)) {
        let (article, level) = (article(*level), level.name());
        return Some(format!(
            "the own knowledge base of {article} {level} is named without the {level}, in which alone it is visible"
        ));
    }
    id::problem(id_ref, id::MAX_BYTES)
}

/// How a knowledge base is asked. None: as the wider scope or else the knowledge base says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Binding {
    /// The name of the knowledge base.
    pub id_ref: String,
    pub top_k: Option<i32>,
    pub min_score: Option<f64>,
    pub max_tokens: Option<i32>,
    /// The text that is used where nothing qualifies.
    pub fallback: Option<String>,
    /// The name under which the texts enter the prompt.
    pub inject_as: Option<String>,
    /// An object.
    pub filter: Option<Json>,
}

/// A binding as it results from all scopes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedBinding {
    pub binding: Binding,
    /// The scopes that have it, the widest first.
    pub scopes: Vec<String>,
}

/// Merges the bindings of scopes, of which the widest comes first: those of one name become one, at the place
/// where the name appears first.
pub fn resolve(bindings: impl IntoIterator<Item = (String, Binding)>) -> Vec<ResolvedBinding> {
    let mut resolved: Vec<ResolvedBinding> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (scope, binding) in bindings {
        match places.get(&binding.id_ref).and_then(|place| resolved.get_mut(*place)) {
            Some(wider) => {
                wider.binding.override_by(binding);
                if wider.scopes.last() != Some(&scope) {
                    wider.scopes.push(scope);
                }
            }
            None => {
                places.insert(binding.id_ref.clone(), resolved.len());
                resolved.push(ResolvedBinding { binding, scopes: vec![scope] });
            }
        }
    }
    resolved
}

impl Binding {
    /// Takes what a narrower scope specifies.
    fn override_by(&mut self, narrower: Binding) {
        let Binding { id_ref: _, top_k, min_score, max_tokens, fallback, inject_as, filter } = narrower;
        self.top_k = top_k.or(self.top_k);
        self.min_score = min_score.or(self.min_score);
        self.max_tokens = max_tokens.or(self.max_tokens);
        self.fallback = fallback.or(self.fallback.take());
        self.inject_as = inject_as.or(self.inject_as.take());
        self.filter = match (self.filter.take(), filter) {
            (Some(wider), Some(narrower)) if !has_type(&wider) && !has_type(&narrower) => {
                Some(merged(&wider, narrower))
            }
            (wider, narrower) => narrower.or(wider),
        };
    }
}

/// Whether a filter has operators, so that its members mean nothing one by one. A filter of keys and values
/// that has a key named `type` counts as one, because the members of another could change its meaning.
fn has_type(filter: &Json) -> bool {
    filter.members().is_some_and(|members| members.iter().any(|(key, _)| key == "type"))
}

/// Merges objects member by member. Of anything else, arrays included, the narrower scope's value counts.
fn merged(wider: &Json, narrower: Json) -> Json {
    let (Some(mut members), Some(others)) = (wider.members(), narrower.members()) else { return narrower };
    let mut places: HashMap<String, usize> =
        members.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    for (key, value) in others {
        match places.get(&key).and_then(|place| members.get_mut(*place)) {
            Some((_, own)) => *own = merged(own, value),
            None => {
                places.insert(key.clone(), members.len());
                members.push((key, value));
            }
        }
    }
    Json::object(&members)
}

/// What decides which rows stay where not all fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weighed {
    /// The similarity. None: no vectors were compared.
    pub score: Option<f64>,
    /// The place of the row in its knowledge base's answer, from 0.
    pub rank: usize,
    pub tokens: usize,
}

/// The places of rows, the one that is left out last first: by their scores, or, where not all rows have one,
/// by their ranks. Of equal rows, the first one stays longer.
pub fn by_worth(rows: &[Weighed]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    match rows.iter().map(|row| row.score).collect::<Option<Vec<f64>>>() {
        Some(scores) => places.sort_by(|a, b| scores[*b].total_cmp(&scores[*a])),
        None => places.sort_by_key(|place| rows[*place].rank),
    }
    places
}

/// The places of the rows that remain when rows are left out, the worst first, until the others have at most
/// this many tokens. In the order of the rows.
pub fn within(rows: &[Weighed], max_tokens: Option<usize>) -> Vec<usize> {
    let mut kept = by_worth(rows);
    if let Some(most) = max_tokens {
        let mut tokens: usize = rows.iter().map(|row| row.tokens).sum();
        while tokens > most
            && let Some(place) = kept.pop()
        {
            tokens -= rows[place].tokens;
        }
    }
    kept.sort_unstable();
    kept
}

/// How many characters count as a token where no tokeniser is at hand.
const CHARACTERS_PER_TOKEN: usize = 4;

/// An estimate of the tokens of a text.
pub fn estimated_tokens(text: &str) -> usize {
    text.chars().count().div_ceil(CHARACTERS_PER_TOKEN)
}

#[cfg(test)]
#[path = "bindings_tests.rs"]
mod tests;
