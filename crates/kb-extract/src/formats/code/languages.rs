//! The languages, each with its grammar.

use super::Language;
use crate::formats::Format;

pub const RUST: Format = Format {
    content_types: &["text/x-rust", "text/rust"],
    extensions: &["rs"],
    is_text: true,
    read: |file| super::read(file, &[RUST_GRAMMAR]),
};

const RUST_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_rust::LANGUAGE,
    definitions: &[
        "function_item",
        "function_signature_item",
        "impl_item",
        "trait_item",
        "struct_item",
        "enum_item",
        "union_item",
        "mod_item",
        "macro_definition",
    ],
    around: &[],
};

pub const PYTHON: Format = Format {
    content_types: &["text/x-python", "text/x-script.python", "application/x-python-code"],
    extensions: &["py", "pyi", "pyw"],
    is_text: true,
    read: |file| super::read(file, &[PYTHON_GRAMMAR]),
};

const PYTHON_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_python::LANGUAGE,
    definitions: &["function_definition", "class_definition"],
    around: &["decorated_definition"],
};

pub const JAVASCRIPT: Format = Format {
    content_types: &[
        "text/javascript",
        "application/javascript",
        "application/x-javascript",
        "text/x-javascript",
    ],
    extensions: &["js", "mjs", "cjs", "jsx"],
    is_text: true,
    read: |file| super::read(file, &[JAVASCRIPT_GRAMMAR]),
};

const JAVASCRIPT_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_javascript::LANGUAGE,
    definitions: &[
        "function_declaration",
        "generator_function_declaration",
        "class_declaration",
        "method_definition",
        "variable_declarator",
    ],
    around: &["export_statement", "lexical_declaration", "variable_declaration"],
};

const TYPESCRIPT_DEFINITIONS: &[&str] = &[
    "function_declaration",
    "generator_function_declaration",
    "function_signature",
    "class_declaration",
    "abstract_class_declaration",
    "interface_declaration",
    "enum_declaration",
    "type_alias_declaration",
    "internal_module",
    "module",
    "method_definition",
    "variable_declarator",
];
const TYPESCRIPT_AROUND: &[&str] = &[
    "export_statement",
    "ambient_declaration",
    "expression_statement",
    "lexical_declaration",
    "variable_declaration",
];

pub const TYPESCRIPT: Format = Format {
    content_types: &["text/x-typescript", "application/typescript", "text/typescript"],
    extensions: &["ts", "mts", "cts"],
    is_text: true,
    read: |file| super::read(file, &[TYPESCRIPT_GRAMMAR]),
};

pub const TSX: Format = Format {
    content_types: &["text/x-tsx", "text/tsx"],
    extensions: &["tsx"],
    is_text: true,
    read: |file| super::read(file, &[TSX_GRAMMAR]),
};

const TYPESCRIPT_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
    definitions: TYPESCRIPT_DEFINITIONS,
    around: TYPESCRIPT_AROUND,
};

const TSX_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_typescript::LANGUAGE_TSX,
    definitions: TYPESCRIPT_DEFINITIONS,
    around: TYPESCRIPT_AROUND,
};

pub const GO: Format = Format {
    content_types: &["text/x-go"],
    extensions: &["go"],
    is_text: true,
    read: |file| super::read(file, &[GO_GRAMMAR]),
};

const GO_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_go::LANGUAGE,
    definitions: &["function_declaration", "method_declaration", "type_spec", "type_alias"],
    around: &["type_declaration"],
};

pub const JAVA: Format = Format {
    content_types: &["text/x-java", "text/x-java-source"],
    extensions: &["java"],
    is_text: true,
    read: |file| super::read(file, &[JAVA_GRAMMAR]),
};

const JAVA_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_java::LANGUAGE,
    definitions: &[
        "class_declaration",
        "interface_declaration",
        "enum_declaration",
        "record_declaration",
        "annotation_type_declaration",
        "method_declaration",
        "constructor_declaration",
        "compact_constructor_declaration",
    ],
    around: &[],
};

// A header may be one of C++.
pub const C: Format = Format {
    content_types: &["text/x-c", "text/x-csrc", "text/x-chdr"],
    extensions: &["c", "h"],
    is_text: true,
    read: |file| super::read(file, &[C_GRAMMAR, CPP_GRAMMAR]),
};

const C_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_c::LANGUAGE,
    definitions: &[
        "function_definition",
        "struct_specifier",
        "union_specifier",
        "enum_specifier",
        "type_definition",
    ],
    around: &[],
};

pub const CPP: Format = Format {
    content_types: &["text/x-c++", "text/x-c++src", "text/x-c++hdr"],
    extensions: &["cc", "cpp", "cxx", "hh", "hpp", "hxx"],
    is_text: true,
    read: |file| super::read(file, &[CPP_GRAMMAR]),
};

const CPP_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_cpp::LANGUAGE,
    definitions: &[
        "function_definition",
        "struct_specifier",
        "union_specifier",
        "enum_specifier",
        "type_definition",
        "class_specifier",
        "namespace_definition",
        "concept_definition",
    ],
    around: &["template_declaration"],
};

pub const C_SHARP: Format = Format {
    content_types: &["text/x-csharp"],
    extensions: &["cs"],
    is_text: true,
    read: |file| super::read(file, &[C_SHARP_GRAMMAR]),
};

const C_SHARP_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_c_sharp::LANGUAGE,
    definitions: &[
        "class_declaration",
        "interface_declaration",
        "struct_declaration",
        "record_declaration",
        "enum_declaration",
        "delegate_declaration",
        "namespace_declaration",
        "method_declaration",
        "constructor_declaration",
        "destructor_declaration",
        "property_declaration",
        "local_function_statement",
    ],
    around: &[],
};

pub const RUBY: Format = Format {
    content_types: &["text/x-ruby", "application/x-ruby"],
    extensions: &["rb"],
    is_text: true,
    read: |file| super::read(file, &[RUBY_GRAMMAR]),
};

const RUBY_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_ruby::LANGUAGE,
    definitions: &["class", "module", "method", "singleton_method", "singleton_class"],
    around: &[],
};

pub const PHP: Format = Format {
    content_types: &["text/x-php", "application/x-php", "application/x-httpd-php"],
    extensions: &["php"],
    is_text: true,
    read: |file| super::read(file, &[PHP_GRAMMAR]),
};

const PHP_GRAMMAR: &Language = &Language {
    grammar: tree_sitter_php::LANGUAGE_PHP,
    definitions: &[
        "class_declaration",
        "interface_declaration",
        "trait_declaration",
        "enum_declaration",
        "function_definition",
        "method_declaration",
    ],
    around: &[],
};

pub const SHELL: Format = Format {
    content_types: &["text/x-shellscript", "application/x-sh", "text/x-sh"],
    extensions: &["sh", "bash"],
    is_text: true,
    read: |file| super::read(file, &[SHELL_GRAMMAR]),
};

const SHELL_GRAMMAR: &Language =
    &Language { grammar: tree_sitter_bash::LANGUAGE, definitions: &["function_definition"], around: &[] };
