//! The server's environment specifies the instructions with which local models are computed.

use crate::support::APP;
use kb_kernels::{InstructionSet, VARIABLE};

/// A set of instructions that this machine lacks is an error; the others give vectors that differ in their
/// last digits.
#[test]
fn a_server_computes_with_the_instructions_that_its_environment_names() {
    let available = InstructionSet::available();
    let foreign =
        [InstructionSet::Neon, InstructionSet::Avx2].into_iter().find(|set| !available.contains(set));
    let mut cluster = crate::cluster!();
    cluster.stop("fast", 30);
    cluster.give(VARIABLE, foreign.unwrap().name());
    cluster.up();
    let mut db = cluster.connect(APP);
    let fault = db.refused("SELECT kb.embed('minilm', ARRAY['a text'])", "22023");
    assert!(fault.text.contains(VARIABLE) && fault.text.contains("portable"), "{fault:?}");
    drop(db);
    let mut vectors: Vec<Vec<f32>> = Vec::new();
    for set in available {
        cluster.stop("fast", 30);
        cluster.give(VARIABLE, set.name());
        cluster.up();
        let sql = "SELECT v::real[] FROM kb.embed('minilm', ARRAY['How many days off do I get?']) AS v";
        vectors.push(cluster.connect(APP).one(sql));
    }
    // The seventh digit differs, not the fifth.
    for vector in &vectors {
        assert!(vector.iter().zip(&vectors[0]).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert!(vectors.len() == 1 || vectors.iter().any(|vector| *vector != vectors[0]), "all computed as one");
}
