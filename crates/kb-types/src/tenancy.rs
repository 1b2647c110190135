//! Which tenant a session acts for: of what it asks for, and of what its roles are bound to.

use std::rc::Rc;

/// Its rows are read by every tenant, and written by kb_admin.
pub const SHARED: &str = "shared";

/// Tenants that a role is bound to; None: to none, so that it may act for any.
pub type Bound = Option<Rc<[String]>>;

/// Why a session acts for no tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It asks for one that its roles are not bound to.
    Outside { asked: String },
    /// It asks for none, and its roles are bound to several.
    Unset,
    /// Each of its roles is bound to other tenants.
    NothingInCommon,
}

/// The tenants that all roles may act for; None: any.
pub fn in_common<'a>(roles: impl IntoIterator<Item = &'a Bound>) -> Option<Vec<String>> {
    let mut common: Option<Vec<String>> = None;
    for tenants in roles.into_iter().flatten() {
        common = Some(match common {
            None => tenants.to_vec(),
            Some(mut common) => {
                common.retain(|tenant| tenants.contains(tenant));
                common
            }
        });
    }
    common
}

/// The tenant that a session acts for which asks for `asked` ('' where it asks for none) and may act for `allowed`.
pub fn acting_for(asked: &str, allowed: Option<&[String]>) -> Result<String, Refusal> {
    let Some(allowed) = allowed else { return Ok(asked.to_string()) };
    match allowed {
        [] => Err(Refusal::NothingInCommon),
        _ if allowed.iter().any(|tenant| tenant == asked) => Ok(asked.to_string()),
        [only] if asked.is_empty() => Ok(only.clone()),
        _ if asked.is_empty() => Err(Refusal::Unset),
        _ => Err(Refusal::Outside { asked: asked.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(tenants: &[&str]) -> Bound {
        Some(tenants.iter().map(|tenant| tenant.to_string()).collect())
    }

    fn acting(asked: &str, roles: &[Bound]) -> Result<String, Refusal> {
        acting_for(asked, in_common(roles).as_deref())
    }

    #[test]
    fn a_role_that_is_bound_to_none_acts_for_whom_it_says() {
        for asked in ["", "a", SHARED] {
            assert_eq!(acting(asked, &[]).as_deref(), Ok(asked));
            assert_eq!(acting(asked, &[None, None]).as_deref(), Ok(asked));
        }
    }

    #[test]
    fn a_role_of_one_tenant_is_in_it_without_a_setting_and_in_no_other() {
        assert_eq!(acting("", &[None, to(&["a"])]).as_deref(), Ok("a"));
        assert_eq!(acting("a", &[to(&["a"])]).as_deref(), Ok("a"));
        assert_eq!(acting("b", &[to(&["a"])]), Err(Refusal::Outside { asked: "b".into() }));
    }

    #[test]
    fn a_role_of_several_tenants_says_which() {
        let roles = [to(&["a", "b"]), None];
        assert_eq!(acting("b", &roles).as_deref(), Ok("b"));
        assert_eq!(acting("", &roles), Err(Refusal::Unset));
        assert_eq!(acting("", &[to(&["a", ""])]).as_deref(), Ok(""));
    }

    #[test]
    fn of_several_roles_that_are_bound_what_all_may_counts() {
        let roles = [to(&["a", "b"]), to(&["b", "c"])];
        assert_eq!(acting("", &roles).as_deref(), Ok("b"));
        assert_eq!(acting("a", &roles), Err(Refusal::Outside { asked: "a".into() }));
        assert_eq!(acting("a", &[to(&["a"]), to(&["b"])]), Err(Refusal::NothingInCommon));
    }
}
