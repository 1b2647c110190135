//! From a question to ranked rows: plan, dedupe, trim. Pure.
