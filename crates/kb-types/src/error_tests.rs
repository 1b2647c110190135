//! Tests of kb-types/src/error.rs.

use super::*;

#[test]
fn every_problem_of_a_configuration_is_in_the_detail() {
    let error = Error::configuration("knowledge base \"x\"", vec!["a".into(), "b".into()]);
    assert_eq!(error.detail().as_deref(), Some("a\nb"));
    assert_eq!(error.sqlstate(), "22023");
}

#[test]
fn only_faults_that_pass_by_themselves_are_transient() {
    assert!(Error::Gateway { problem: "is gone".into() }.is_transient());
    assert!(!Error::InputTooLong { model: "m".into(), tokens: 9, limit: 8 }.is_transient());
}

#[test]
fn what_is_stale_has_a_code_of_its_own_and_says_the_present_etag() {
    let stale = Error::Stale { what: ObjectKind::VectorDb, id: "v".into(), etag: "\"1f\"".into() };
    assert_eq!(stale.sqlstate(), "KB412");
    assert_eq!(stale.detail().as_deref(), Some("Its etag is \"1f\" now."));
}
