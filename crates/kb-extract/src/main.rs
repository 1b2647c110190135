//! The program kb-extract: reads requests from standard input and writes replies to standard output.

#![forbid(unsafe_code)]

fn main() {}
