pub mod functions;
pub mod stored;
