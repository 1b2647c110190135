//! The one process that runs models and talks to providers.

pub mod local;
