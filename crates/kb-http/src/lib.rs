//! The HTTP interface without a server and without a database: [`Request`] is what a client sent,
//! [`routes`] lists what it can ask for, [`openapi`] describes that, [`bodies`] are the documents that are
//! sent and returned, and [`Problem`] is an answer that says what was wrong.

pub mod bodies;
pub mod openapi;
mod problem;
mod request;
mod response;
pub mod routes;

pub use problem::Problem;
pub use request::Request;
pub use response::Response;
