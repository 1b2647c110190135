//! Tests of kb-text/src/model_files.rs.

use super::*;
use serde_json::json;
use tempfile::TempDir;

/// A safetensors file whose only tensor is a matrix of zeros.
fn weights(name: &str, rows: usize, columns: usize) -> Vec<u8> {
    let size = rows * columns * 4;
    let header =
        json!({name: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + size, 0);
    bytes
}

/// A model directory "m" with these files. A tokeniser and weights are added unless they are given as empty.
fn models(files: &[(&str, Value)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("m");
    std::fs::create_dir_all(dir.join("1_Pooling")).unwrap();
    std::fs::write(dir.join("tokenizer.json"), "{}").unwrap();
    std::fs::write(dir.join("model.safetensors"), weights("embeddings", 4, 3)).unwrap();
    for (name, value) in files {
        std::fs::write(dir.join(name), value.to_string()).unwrap();
    }
    root
}

fn bert() -> Value {
    json!({"model_type": "bert", "hidden_size": 384, "max_position_embeddings": 512})
}

fn open(root: &TempDir) -> Result<ModelFiles> {
    ModelFiles::open(root.path(), "m")
}

fn problem(result: Result<ModelFiles>) -> String {
    match result {
        Err(Error::ModelFiles { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_name_cannot_lead_out_of_the_model_directory() {
    let root = models(&[]);
    std::fs::create_dir(root.path().join(".hidden")).unwrap();
    for name in ["", ".", "..", "../m", "m/", "m/..", "./m", "/etc", ".hidden", "m\0", "a\\b", "m/1_Pooling"]
    {
        assert!(problem(ModelFiles::open(root.path(), name)).contains("plain name"), "{name:?}");
    }
    assert!(open(&root).is_ok());
}

#[test]
fn the_missing_file_is_named() {
    let root = models(&[]);
    assert!(problem(ModelFiles::open(root.path(), "other")).contains("no such directory"));
    let dir = root.path().join("m");
    std::fs::rename(dir.join("model.safetensors"), dir.join("x.safetensors")).unwrap();
    assert_eq!(open(&root).unwrap().weights, dir.join("x.safetensors"));
    std::fs::copy(dir.join("x.safetensors"), dir.join("y.safetensors")).unwrap();
    assert!(problem(open(&root)).contains("several"));
    std::fs::remove_file(dir.join("x.safetensors")).unwrap();
    std::fs::remove_file(dir.join("y.safetensors")).unwrap();
    assert!(problem(open(&root)).contains("model.safetensors is missing"));
    std::fs::remove_file(dir.join("tokenizer.json")).unwrap();
    assert!(problem(open(&root)).contains("tokenizer.json is missing"));
}

#[test]
fn a_matrix_without_config_is_a_static_model_of_its_second_axis() {
    let files = open(&models(&[])).unwrap();
    assert_eq!(files.architecture, Architecture::Static);
    assert_eq!((files.dimension, files.max_tokens, files.special_tokens), (3, None, 0));
    let files = open(&models(&[("config.json", json!({"model_type": "model2vec"}))])).unwrap();
    assert_eq!(files.architecture, Architecture::Static);
    assert!(files.config.is_some());
}

#[test]
fn the_token_limit_is_the_least_the_files_say() {
    let limit = |files: &[(&str, Value)]| {
        let mut all = vec![("config.json", bert())];
        all.extend_from_slice(files);
        open(&models(&all)).unwrap().max_tokens
    };
    let sentence = |n: u64| ("sentence_bert_config.json", json!({"max_seq_length": n}));
    let tokenizer = |n: Value| ("tokenizer_config.json", json!({"model_max_length": n}));
    assert_eq!(limit(&[]), Some(512));
    assert_eq!(limit(&[sentence(256), tokenizer(json!(128))]), Some(256));
    assert_eq!(limit(&[tokenizer(json!(128))]), Some(128));
    assert_eq!(limit(&[sentence(4096)]), Some(512));
    assert_eq!(limit(&[tokenizer(json!(1e30))]), Some(512));
}

#[test]
fn pooling_is_what_the_file_says_and_mean_without_one() {
    let pooling = |value: Value| open(&models(&[("config.json", bert()), ("1_Pooling/config.json", value)]));
    assert_eq!(open(&models(&[("config.json", bert())])).unwrap().pooling, Pooling::Mean);
    let cls = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
    assert_eq!(pooling(cls).unwrap().pooling, Pooling::Cls);
    let mean = json!({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true});
    assert_eq!(pooling(mean).unwrap().pooling, Pooling::Mean);
    assert!(problem(pooling(json!({"pooling_mode_max_tokens": true}))).contains("max_tokens"));
}

#[test]
fn models_that_would_run_wrongly_are_refused() {
    let deberta = models(&[("config.json", json!({"model_type": "deberta-v2"}))]);
    assert!(problem(open(&deberta)).contains("deberta-v2"));
    // The numbers before the first position have no position.
    let mut roberta = bert();
    roberta["model_type"] = json!("roberta");
    let positions = bert()["max_position_embeddings"].as_u64().unwrap() as usize;
    assert_eq!(open(&models(&[("config.json", roberta)])).unwrap().max_tokens, Some(positions - 2));
    let dense = json!([{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Dense"}]);
    assert!(problem(open(&models(&[("config.json", bert()), ("modules.json", dense)]))).contains("Dense"));
    assert!(
        problem(open(&models(&[("config.json", json!({"model_type": "bert"}))]))).contains("max_position")
    );
}

#[test]
fn weights_cut_short_or_of_another_kind_are_refused() {
    let root = models(&[]);
    let path = root.path().join("m/model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(problem(open(&root)).contains("header requires"));
    std::fs::write(&path, [0xff; 64]).unwrap();
    assert!(problem(open(&root)).contains("its header has"));
}
