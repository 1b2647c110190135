use super::*;
use crate::formats::by_extension;

/// The names and levels of the definitions of a file, and the line on which each begins.
fn found(extension: &str, text: &str) -> Vec<String> {
    let file = File {
        name: Some(format!("a.{extension}")),
        bytes: text.as_bytes().to_vec(),
        max_text: usize::MAX,
        ..File::default()
    };
    let extraction = crate::extract(&file).unwrap();
    assert_eq!(extraction.text, text);
    assert_eq!(extraction.content_type, by_extension(extension).unwrap().content_types[0]);
    let name = |marked: &Marked| {
        let line = text[..marked.offset].matches('\n').count() + 1;
        match &marked.mark {
            Mark::Definition { level, name } => format!("{line} {level} {name}").trim_end().to_string(),
            other => panic!("{other:?}"),
        }
    };
    extraction.marks.iter().map(name).collect()
}

#[test]
fn definitions_of_rust_have_marks_with_their_comments_and_attributes() {
    let text = "\
use a::b; // c

/// Adds.
///
/// More.
#[inline]
pub fn add(a: u8) -> u8 {
    a
}
// Apart.

impl<T> Show for Stack<T> {
    const N: u8 = 1;
    // Shows.
    fn show(&self) {}
    fn more(&self) {}
}
static S: u8 = 1;
mod tests { struct Q; }
";
    assert_eq!(
        found("rs", text),
        ["3 1 add", "12 1 Stack<T>", "14 2 show", "16 2 more", "18 1", "19 1 tests", "19 2 Q"]
    );
}

#[test]
fn definitions_of_each_language_have_marks() {
    let python = "import a\n\n@b\ndef f():\n    pass\n\nclass C(D):\n    # G.\n    def g(self):\n        def h(): pass\n        return h\n\nprint(1)\n";
    assert_eq!(found("py", python), ["3 1 f", "7 1 C", "8 2 g", "10 3 h", "11 3", "13 1"]);
    let javascript = "// a\nexport default function f() {}\n\nexport const g = async () => { go(); }, n = 1;\nclass A extends B {\n  static x() {}\n}\nf();\n";
    assert_eq!(found("js", javascript), ["1 1 f", "4 1 g", "4 1", "5 1 A", "6 2 x", "8 1"]);
    let typescript = "export interface I { a: string }\nexport abstract class A<T> {\n  @x() b(): void {}\n}\nnamespace N {\n  export type U = 1;\n}\ndeclare function q(): void;\n";
    assert_eq!(found("ts", typescript), ["1 1 I", "2 1 A", "3 2 b", "5 1 N", "6 2 U", "8 1 q"]);
    let tsx = "const V: F<P> = ({ a }) => <div>{a}</div>;\n";
    assert_eq!(found("tsx", tsx), ["1 1 V"]);
    let go = "package a\n\n// T is.\ntype T struct{ x int }\n\nfunc (t *T) Get() int { return t.x }\n\nvar z = 1\n\nfunc main() {}\n";
    assert_eq!(found("go", go), ["3 1 T", "6 1 Get", "8 1", "10 1 main"]);
    let java = "package a;\n/** C. */\n@X\npublic class C {\n  C() {}\n  @Override\n  int m() { return 1; }\n  enum E { A }\n}\n";
    assert_eq!(found("java", java), ["2 1 C", "5 2 C", "6 2 m", "8 2 E"]);
    let c = "#include <a.h>\nstatic int *f(struct s *x)\n{ return 0; }\nstruct s { int a; };\ntypedef struct { int b; } t;\nint z;\n";
    assert_eq!(found("c", c), ["2 1 f", "4 1 s", "5 1 t", "6 1"]);
    let cpp =
        "namespace n {\ntemplate <class T>\nclass A {\n  void m() {}\n};\nint &A::r() { return x; }\n}\n";
    let expected = ["1 1 n", "2 2 A", "4 3 m", "6 2 A::r"];
    assert_eq!(found("hpp", cpp), expected);
    assert_eq!(found("h", cpp), expected);
    let c_sharp = "using A;\nnamespace N {\n  public class C {\n    public int P { get; set; }\n    void M() { }\n  }\n}\n";
    assert_eq!(found("cs", c_sharp), ["2 1 N", "3 2 C", "4 3 P", "5 3 M"]);
    let ruby = "module M\n  class C < D\n    def m(a)\n    end\n    def self.s; end\n  end\nend\n";
    assert_eq!(found("rb", ruby), ["1 1 M", "2 2 C", "3 3 m", "5 3 s"]);
    let php = "<h1>x</h1>\n<?php\nfunction f() {}\nclass C { public function m() {} }\n";
    assert_eq!(found("php", php), ["3 1 f", "4 1 C", "4 2 m"]);
    let shell = "#!/bin/sh\nset -e\nf() {\n  echo\n}\nf\n";
    assert_eq!(found("sh", shell), ["3 1 f", "6 1"]);
}

#[test]
fn code_with_errors_keeps_its_text_and_definitions_that_can_be_told() {
    assert_eq!(found("rs", "fn a() {}\n)(*&^%$ fn\nfn b() {}\n").first().map(String::as_str), Some("1 1 a"));
    assert!(found("py", "\u{1}\u{2} é 漢字 \"").is_empty());
    assert!(found("ts", "").is_empty());
    // A text that is too long, and one that is nested too deep, only lack marks.
    assert!(found("c", &"int f() {}\n".repeat(200_000)).is_empty());
    let nested = found("js", &"function f() {\n".repeat(1000));
    assert!(nested.iter().all(|mark| mark.split(' ').nth(1).is_some_and(|level| level <= "5")), "{nested:?}");
}
