use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn named(id_ref: &str) -> Binding {
    Binding { id_ref: id_ref.into(), ..Binding::default() }
}

#[test]
fn scopes_are_read_and_put_in_order() {
    let read = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        let scopes = Scope::parse_all(&texts)?;
        Ok::<String, String>(scopes.iter().map(Scope::to_string).collect::<Vec<String>>().join(" "))
    };
    let all = ["agent:helper", "task:a:b", "project", "workflow:Ärzte & Co"];
    assert_eq!(read(&all).unwrap(), "project workflow:Ärzte & Co task:a:b agent:helper");
    assert_eq!(read(&[]).unwrap(), "");
    for (wrong, says) in [
        (&["project", "project"][..], "appears twice"),
        (&["task:a", "task:b"], "at most one task may be given"),
        (&["workflow:a/b"], "may not contain /"),
        (&["agent:a/b"], "the name of an agent may not contain /"),
        (&["workflow:"], "\"workflow:\" is not"),
        (&["workflow"], "is not project, workflow:NAME, task:NAME or agent:NAME"),
        (&["project:x"], "is not"),
        (&["project:"], "is not"),
        (&["Project"], "is not"),
        (&["agent: a"], "is not"),
        (&["agent:a\nb"], "control characters"),
        (&[""], "is not"),
        (&[&format!("agent:{}", "x".repeat(255))], "261 bytes"),
    ] {
        let problem = read(wrong).unwrap_err();
        assert!(problem.contains(says), "{wrong:?}: {problem}");
    }
}

#[test]
fn the_own_knowledge_base_of_a_scope_has_no_name_outside_of_it() {
    let own = |scope: &str| Scope::parse(scope).unwrap().own_id("manuals");
    for scope in ["workflow:support", "task:support", "agent:support"] {
        assert_eq!(own(scope), Some(format!("{scope}/manuals")));
        assert!(id_ref_problem(&format!("{scope}/manuals")).is_some());
    }
    assert_eq!(own("project"), None);
    assert!(id_ref_problem(" ").is_some() && id_ref_problem(&"x".repeat(256)).is_some());
    assert_eq!((id_ref_problem("workflow/x"), id_ref_problem("a:b/c")), (None, None));
}

#[test]
fn narrower_scopes_override_scalars_merge_objects_and_replace_arrays() {
    let filter = |value: Value| Some(Json::new(value.to_string()));
    let resolved = resolve([
        (
            "project".into(),
            Binding {
                top_k: Some(8),
                fallback: Some("none".into()),
                filter: filter(json!({"lang": {"x": ["de", "fr"]}, "team": "a", "n": {"min": 1}})),
                ..named("a")
            },
        ),
        ("project".into(), named("b")),
        ("workflow:w".into(), named("c")),
        ("workflow:w".into(), Binding { min_score: Some(0.5), top_k: Some(3), ..named("a") }),
        (
            "agent:x".into(),
            Binding {
                top_k: Some(2),
                inject_as: Some("docs".into()),
                filter: filter(json!({"lang": {"x": ["en"]}, "team": {"y": "b"}, "n": {"max": 9}})),
                ..named("a")
            },
        ),
        ("agent:x".into(), named("c")),
    ]);
    let order: Vec<(&str, String)> =
        resolved.iter().map(|found| (found.binding.id_ref.as_str(), found.scopes.join(" "))).collect();
    assert_eq!(
        order,
        [
            ("a", "project workflow:w agent:x".into()),
            ("b", "project".into()),
            ("c", "workflow:w agent:x".into())
        ]
    );
    let a = &resolved[0].binding;
    assert_eq!((a.top_k, a.min_score, a.max_tokens), (Some(2), Some(0.5), None));
    assert_eq!((a.fallback.as_deref(), a.inject_as.as_deref()), (Some("none"), Some("docs")));
    let merged: Value = serde_json::from_str(a.filter.as_ref().unwrap().as_str()).unwrap();
    assert_eq!(merged, json!({"lang": {"x": ["en"]}, "team": {"y": "b"}, "n": {"min": 1, "max": 9}}));
}

#[test]
fn a_filter_with_operators_replaces_another_and_is_replaced_as_a_whole() {
    let short = Json::new(r#"{"lang": "de"}"#);
    let long = Json::new(r#"{"type": "in", "key": "lang", "value": ["en"]}"#);
    let not = Json::new(r#"{"type": "not", "filter": {"lang": "fr"}}"#);
    for (wider, narrower) in [(&short, &long), (&long, &short), (&long, &not), (&not, &long)] {
        let bound = |filter: &Json| Binding { filter: Some(filter.clone()), ..named("a") };
        let resolved = resolve([("project".into(), bound(wider)), ("agent:x".into(), bound(narrower))]);
        assert_eq!(resolved[0].binding.filter.as_ref(), Some(narrower));
        assert!(kb_types::Filter::parse(narrower).is_ok());
    }
}

#[test]
fn rows_of_the_lowest_scores_are_left_out_until_the_rest_fits() {
    let row = |score: f64, rank: usize, tokens: usize| Weighed { score: Some(score), rank, tokens };
    let rows = [row(0.9, 0, 50), row(0.2, 1, 10), row(0.8, 0, 30), row(0.5, 1, 10)];
    for (most, kept) in [
        (None, vec![0, 1, 2, 3]),
        (Some(100), vec![0, 1, 2, 3]),
        (Some(99), vec![0, 2, 3]),
        // Nothing is left out before what scores lower, even if it would fit.
        (Some(89), vec![0, 2]),
        (Some(79), vec![0]),
        (Some(49), vec![]),
        (Some(0), vec![]),
    ] {
        assert_eq!(within(&rows, most), kept, "{most:?}");
    }
    // Rows found by words have no score: then the ranks count for all.
    let mut mixed = rows;
    mixed[3].score = None;
    assert_eq!(within(&mixed, Some(80)), [0, 2]);
    assert_eq!(by_worth(&mixed), [0, 2, 1, 3]);
    let equal = [row(0.5, 0, 1), row(0.5, 0, 1)];
    assert_eq!(within(&equal, Some(1)), [0]);
    assert_eq!(within(&[], Some(1)), [0; 0]);
}

#[test]
fn tokens_are_estimated_by_characters() {
    assert_eq!(
        [estimated_tokens(""), estimated_tokens("ä"), estimated_tokens("äöüß"), estimated_tokens("abcde")],
        [0, 1, 1, 2]
    );
}

/// A small JSON value with objects inside of objects.
fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4).prop_map(Value::from),
        "[ab\"]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[xyz]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[xyz]", value(), 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

prop_compose! {
    fn binding()(
        id_ref in "[abc]", top_k in prop::option::of(1..9), min_score in prop::option::of(0.0..1.0),
        max_tokens in prop::option::of(1..9), fallback in prop::option::of("[fg]"),
        inject_as in prop::option::of("[ij]"), filter in prop::option::of(object()),
    ) -> Binding {
        let filter = filter.map(|filter| Json::new(filter.to_string()));
        Binding { id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter }
    }
}

/// A simple model of the merge of values.
fn model(wider: Option<Value>, narrower: Option<Value>) -> Option<Value> {
    match (wider, narrower) {
        (Some(Value::Object(wider)), Some(Value::Object(narrower))) => {
            let mut keys: Vec<&String> = wider.keys().chain(narrower.keys()).collect();
            keys.sort();
            keys.dedup();
            let member = |key: &String| {
                model(wider.get(key).cloned(), narrower.get(key).cloned()).map(|value| (key.clone(), value))
            };
            Some(Value::Object(keys.into_iter().filter_map(member).collect()))
        }
        (wider, narrower) => narrower.or(wider),
    }
}

fn as_value(binding: &Binding) -> Value {
    let members = [
        ("top_k", binding.top_k.map(Value::from)),
        ("min_score", binding.min_score.map(Value::from)),
        ("max_tokens", binding.max_tokens.map(Value::from)),
        ("fallback", binding.fallback.clone().map(Value::from)),
        ("inject_as", binding.inject_as.clone().map(Value::from)),
        ("filter", binding.filter.as_ref().map(|filter| serde_json::from_str(filter.as_str()).unwrap())),
    ];
    Value::Object(members.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect())
}

proptest! {
    #[test]
    fn merging_scopes_is_the_deep_merge_of_their_bindings_in_order(
        bindings in prop::collection::vec((0..4usize, binding()), 0..12)
    ) {
        let mut bindings = bindings;
        bindings.sort_by_key(|(scope, _)| *scope);
        let resolved =
            resolve(bindings.iter().map(|(scope, binding)| (scope.to_string(), binding.clone())));
        let mut names: Vec<&str> = Vec::new();
        for (_, binding) in &bindings {
            if !names.contains(&binding.id_ref.as_str()) {
                names.push(&binding.id_ref);
            }
        }
        // Each name once, in the order in which the names appear first.
        prop_assert_eq!(resolved.iter().map(|found| found.binding.id_ref.as_str()).collect::<Vec<_>>(), names);
        for found in &resolved {
            let of_name = || bindings.iter().filter(|(_, binding)| binding.id_ref == found.binding.id_ref);
            let merged = of_name().fold(None, |wider, (_, binding)| model(wider, Some(as_value(binding))));
            prop_assert_eq!(Some(as_value(&found.binding)), merged);
            let mut scopes: Vec<String> = of_name().map(|(scope, _)| scope.to_string()).collect();
            scopes.dedup();
            prop_assert_eq!(&found.scopes, &scopes);
        }
        // Merging what is merged changes nothing.
        let again = resolve(resolved.iter().map(|found| ("all".to_string(), found.binding.clone())));
        prop_assert_eq!(
            again.into_iter().map(|found| found.binding).collect::<Vec<_>>(),
            resolved.into_iter().map(|found| found.binding).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_is_kept_fits_and_scores_no_less_than_what_is_left_out(
        rows in prop::collection::vec((0..5u8, 0..9usize, 0..30usize), 0..12), most in 0..200usize
    ) {
        let rows: Vec<Weighed> = rows
            .into_iter()
            .map(|(score, rank, tokens)| Weighed { score: Some(f64::from(score)), rank, tokens })
            .collect();
        let kept = within(&rows, Some(most));
        let tokens: usize = kept.iter().map(|place| rows[*place].tokens).sum();
        prop_assert!(tokens <= most);
        prop_assert!(kept.is_sorted());
        let left: Vec<usize> = (0..rows.len()).filter(|place| !kept.contains(place)).collect();
        let worst = kept.iter().filter_map(|place| rows[*place].score).fold(f64::MAX, f64::min);
        let best = left.iter().filter_map(|place| rows[*place].score).fold(f64::MIN, f64::max);
        prop_assert!(left.is_empty() || worst >= best);
        // With one more row of those that are left out, it would not fit.
        let next = left.iter().filter(|place| rows[**place].score == Some(best)).min();
        prop_assert!(next.is_none_or(|place| tokens + rows[*place].tokens > most));
    }
}
