//! API keys: what a program shows to kb serve, so that it acts as a role, for a tenant, within scopes. Only
//! the hash of a key is stored.

mod api;
mod assume_api_key;
mod create_api_key;
mod key;
mod sql;
