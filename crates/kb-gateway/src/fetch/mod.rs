//! Fetches pages of the web for sources.
//!
//! `fetcher.rs` asks for a page and follows its redirects. `host.rs` says when a host may be asked next, and
//! what its robots.txt allows. `download.rs` reads the content of an answer part by part.
//!
//! **Invariant:** each address that is asked, whether a source, a redirect or a robots.txt names it, has been
//! checked by [`super::endpoint::egress`] first, and nothing is sent but GET without a credential.
//!
//! **Invariant:** whatever a server sends, one page takes a bounded time, a bounded number of requests, and
//! the memory of one part.

mod download;
mod fetcher;
mod host;

pub use fetcher::Fetcher;
