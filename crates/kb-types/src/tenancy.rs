//! Determines the tenant for which a session acts, from the tenant that it asks for and those that its roles
//! are bound to.

use std::rc::Rc;

/// The tenant whose rows every tenant may read and only kb_admin may write.
pub const SHARED: &str = "shared";

/// The tenants that a role is bound to. None means that it is bound to none, so that it may act for any.
pub type BoundTenants = Option<Rc<[String]>>;

/// Why a session may not act for any tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It asks for a tenant that its roles are not bound to.
    Outside { asked: String },
    /// It asks for no tenant, and its roles are bound to several.
    Unset,
    /// There is no tenant that all of its roles are bound to.
    NothingInCommon,
}

/// The tenants that all of these roles may act for. None means any tenant.
pub fn in_common<'a>(roles: impl IntoIterator<Item = &'a BoundTenants>) -> Option<Vec<String>> {
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

/// The tenant for which a session acts, given the tenant that it asks for ('' for none) and those that it may
/// act for.
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

    fn to(tenants: &[&str]) -> BoundTenants {
        Some(tenants.iter().map(|tenant| tenant.to_string()).collect())
    }

    fn acting(asked: &str, roles: &[BoundTenants]) -> Result<String, Refusal> {
        acting_for(asked, in_common(roles).as_deref())
    }

    #[test]
    fn a_role_without_bindings_acts_for_the_tenant_that_it_names() {
        for asked in ["", "a", SHARED] {
            assert_eq!(acting(asked, &[]).as_deref(), Ok(asked));
            assert_eq!(acting(asked, &[None, None]).as_deref(), Ok(asked));
        }
    }

    #[test]
    fn a_role_of_one_tenant_acts_for_it_without_a_setting_and_for_no_other() {
        assert_eq!(acting("", &[None, to(&["a"])]).as_deref(), Ok("a"));
        assert_eq!(acting("a", &[to(&["a"])]).as_deref(), Ok("a"));
        assert_eq!(acting("b", &[to(&["a"])]), Err(Refusal::Outside { asked: "b".into() }));
    }

    #[test]
    fn a_role_of_several_tenants_must_name_one() {
        let roles = [to(&["a", "b"]), None];
        assert_eq!(acting("b", &roles).as_deref(), Ok("b"));
        assert_eq!(acting("", &roles), Err(Refusal::Unset));
        assert_eq!(acting("", &[to(&["a", ""])]).as_deref(), Ok(""));
    }

    #[test]
    fn several_bound_roles_act_only_for_tenants_that_all_have_in_common() {
        let roles = [to(&["a", "b"]), to(&["b", "c"])];
        assert_eq!(acting("", &roles).as_deref(), Ok("b"));
        assert_eq!(acting("a", &roles), Err(Refusal::Outside { asked: "a".into() }));
        assert_eq!(acting("a", &[to(&["a"]), to(&["b"])]), Err(Refusal::NothingInCommon));
    }
}
