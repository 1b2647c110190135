//! Tests of texts that are longer than the part that is tokenised at once.

use super::*;

fn words(count: usize) -> String {
    "one two three four alpha beta ".repeat(count / 6)
}

#[test]
fn only_the_beginning_of_a_long_text_is_tokenised() {
    let model = bert_with(EmbedderConfig::default());
    let long = words(6_000_000);
    let Err(Error::InputTooLong { tokens, limit, .. }) = documents(model.as_ref(), &["one", &long]) else {
        panic!("it was taken");
    };
    assert_eq!(limit, 12);
    // 32 kB of the text, not 30 MB.
    assert!(tokens > limit && tokens < 10_000, "{tokens}");
    let truncating = bert_with(EmbedderConfig { truncate: true, ..EmbedderConfig::default() });
    let begins = "one two three four alpha beta one two three four";
    let vectors = documents(truncating.as_ref(), &[begins, &long, "one", &long]).unwrap();
    assert!(distance(&vectors[0], &vectors[1]) < 1e-6);
    assert!(distance(&vectors[1], &vectors[3]) < 1e-6);
    assert!(distance(&vectors[2], &documents(truncating.as_ref(), &["one"]).unwrap()[0]) < 1e-6);
}

#[test]
fn a_long_text_that_fits_has_the_vector_of_its_words() {
    let model = bert_with(EmbedderConfig::default());
    let gap = " ".repeat(100_000);
    let vectors =
        documents(model.as_ref(), &["alpha beta one", &format!("{gap}alpha{gap}beta{gap}one{gap}")]).unwrap();
    assert!(distance(&vectors[0], &vectors[1]) < 1e-6);
}

#[test]
fn a_static_model_reads_a_text_of_any_length() {
    let models = tempfile::tempdir().unwrap();
    write_static(models.path(), "plain", &[]);
    let model = load(&embedder("plain", EmbedderConfig::default()), models.path()).unwrap();
    let vectors = documents(model.as_ref(), &[&words(6), &words(600_000)]).unwrap();
    assert!(distance(&vectors[0], &vectors[1]) < 1e-3);
}
