//! kb.http: the whole HTTP interface as one SQL function. It acts as its caller, whatever server is
//! before it. What it asks for is in crate kb-http; here it is done, by kb's own SQL functions, so that
//! privileges, row-level security and quotas hold as for whoever calls them.

mod answer;
mod api;
mod knowledge_bases;
mod search;
mod sql;
