//! Prints what is found in a file: `cargo run -p kb-extract --example text -- FILE [CONTENT_TYPE]`.

use kb_types::extraction::File;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let bytes = match std::fs::read(&name) {
        Ok(bytes) => bytes,
        Err(error) => return eprintln!("{name}: {error}"),
    };
    let file = File {
        name: Some(name),
        content_type: arguments.next(),
        bytes,
        max_text: usize::MAX,
        ..File::default()
    };
    match kb_extract::extract(&file) {
        Ok(found) => {
            println!("{} as {}, title {:?}", found.content_type, found.text_type, found.title);
            println!("{}", serde_json::Value::Object(found.metadata));
            found.marks.iter().for_each(|marked| println!("{marked:?}"));
            for part in &found.parts {
                println!("part {:?} {:?}: {} bytes", part.name, part.content_type, part.bytes.len());
            }
            println!("----\n{}", found.text);
        }
        Err(fault) => eprintln!("{fault}"),
    }
}
