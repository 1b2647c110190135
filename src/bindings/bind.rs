//! kb.bind and kb.unbind.

use crate::bindings::sql::bindings;
use crate::pg::advisory;
use crate::pg::role::as_owner;
use crate::tenants::bindings as tenant;
use kb_search::bindings::{Binding, Scope, id_ref_problem};
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::retrieval::MAX_TOP_K;
use kb_types::{Filter, id, sizes};

/// The most bindings of a tenant in all scopes.
const MOST: i64 = 1000;

/// Adds a binding to a scope of the caller's tenant. With `replace`, one of this name that exists is replaced
/// at its place.
pub fn bind(scope: &str, binding: &Binding, replace: bool) -> Result<()> {
    let object = || format!("binding \"{}\"", sizes::cut(&binding.id_ref, id::MAX_BYTES));
    let mut problems = problems(binding);
    let scope = match Scope::parse(scope) {
        Ok(scope) if problems.is_empty() => scope,
        Ok(_) => return Err(Error::configuration(object(), problems)),
        Err(problem) => {
            problems.insert(0, format!("scope: {problem}"));
            return Err(Error::configuration(object(), problems));
        }
    };
    let tenant_id = tenant::current()?;
    as_owner(|| {
        // Two calls at the same time would each miss what the other adds.
        advisory::lock(&format!("bindings of {tenant_id}"));
        if replace && bindings::update(&tenant_id, &scope, binding)? {
            return Ok(());
        }
        if bindings::count(&tenant_id, MOST)? >= MOST {
            return Err(Error::State {
                problem: format!("the tenant has {MOST} bindings, which is the most"),
                hint: "Delete bindings that are not needed (kb.unbind).".into(),
            });
        }
        match bindings::insert(&tenant_id, &scope, binding)? {
            true => Ok(()),
            false => Err(Error::AlreadyExists {
                what: ObjectKind::Binding,
                id: format!("{} in {scope}", binding.id_ref),
            }),
        }
    })
}

/// Everything that is wrong with a binding.
fn problems(binding: &Binding) -> Vec<String> {
    let Binding { id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter } = binding;
    let too_long =
        |text: &Option<String>, most| text.as_ref().and_then(|text| sizes::problem(text.len(), most));
    let filter_problem = filter.as_ref().and_then(|filter| match filter.is_object() {
        true => Filter::parse(filter).err(),
        false => Some("must be a JSON object".into()),
    });
    let size = filter.as_ref().map_or(0, |filter| filter.as_str().len());
    [
        ("id_ref", id_ref_problem(id_ref)),
        (
            "top_k",
            top_k
                .filter(|k| !(1..=MAX_TOP_K).contains(&i64::from(*k)))
                .map(|k| format!("{k} is not between 1 and {MAX_TOP_K}")),
        ),
        (
            "min_score",
            min_score.filter(|score| !score.is_finite()).map(|score| format!("{score} is not finite")),
        ),
        ("max_tokens", max_tokens.filter(|tokens| *tokens < 1).map(|tokens| format!("{tokens} is below 1"))),
        ("fallback", too_long(fallback, sizes::DESCRIPTION)),
        ("inject_as", inject_as.as_deref().and_then(id::name_problem)),
        ("filter", filter_problem.or_else(|| sizes::problem(size, sizes::FILTER))),
    ]
    .into_iter()
    .filter_map(|(argument, problem)| Some(format!("{argument}: {}", problem?)))
    .collect()
}

/// Deletes a binding of the caller's tenant. Returns false if there is none of this name.
pub fn unbind(scope: &str, id_ref: &str) -> Result<bool> {
    let scope = Scope::parse(scope).map_err(|problem| Error::Argument { argument: "scope", problem })?;
    let tenant_id = tenant::current()?;
    as_owner(|| bindings::delete(&tenant_id, &scope, id_ref))
}
