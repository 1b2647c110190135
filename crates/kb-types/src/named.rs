//! Enums whose values have names, in SQL and in JSON.

/// An enum of named values; [`named!`](crate::named!) makes it one.
pub trait Named: Copy + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The value with this name, or the problem of the name.
    fn one_of(name: &str) -> Result<Self, String> {
        let known = || Self::NAMES.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        Self::named(name).ok_or_else(|| format!("\"{name}\" is not one of {}", known()))
    }
}

/// Gives the values of an enum their names: [`Named`], and a method `name`.
#[macro_export]
macro_rules! named {
    ($type:ident { $($value:ident => $name:literal),+ $(,)? }) => {
        impl $crate::named::Named for $type {
            const NAMES: &'static [(&'static str, $type)] = &[$(($name, $type::$value)),+];
        }

        impl $type {
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name,)+
                }
            }
        }
    };
}
