//! Parses HTML into a tree whose depth and size are limited.
//!
//! The converter recurses into the tree, and a stack overflow would end the process, for which PostgreSQL
//! restarts the whole cluster. Depth is therefore measured in the tree that the parser builds, because a scan
//! of the tags cannot foresee it (omitted end tags, `<div/>`, quotes, comments, foreign elements).
//!
//! The parser compares each attribute of an element with all attributes before it, and there are other
//! operations of this kind. Each of them is counted here and has a limit.

use super::tree::walk;
use crate::parse::html::attribute_count::Attributes;
use crate::parse::html::element_role::Role;
use html5ever::buffer_queue::BufferQueue;
use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, ExpandedName, LocalName, QualName, TokenizerResult, local_name};
use kb_types::Bounds;
use kb_types::error::{Error, Result};
use markup5ever_rcdom::{Handle, Node, NodeData, RcDom};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

/// The most levels of elements. Real pages have some dozens, and the converter needs several kilobytes of
/// stack for each.
pub const MAX_DEPTH: usize = 200;
/// The most nodes (elements, texts, comments) beyond one for every four bytes. Formatting that is never
/// closed (<p><b><p><b>…) is opened again in every paragraph, so that a small text could make a tree that
/// fills the memory.
const SPARE_NODES: usize = 10_000;
/// The most nodes of any text. Each takes about 200 bytes.
const MAX_NODES: usize = 2_000_000;
/// The most misplaced pieces of content in tables, because moving one costs as much as all before it.
const MAX_MISPLACED: usize = 5_000;
/// The most attributes of a tag, because each is compared with all before it.
const MAX_ATTRIBUTES: usize = 256;
/// The most names of elements that HTML does not know, because they are looked up in lists that grow with
/// them.
const MAX_NAMES: usize = 10_000;
/// How many bytes are given to the parser at a time. It can only be stopped in between.
const STEP: usize = 1024;

/// Parses a document. Errors: [`Error::Argument`], which says what is wrong with the document, and
/// [`Error::Limit`].
pub fn parse(html: &str, bounds: &Bounds) -> Result<Handle> {
    let sink = Sink {
        dom: RcDom::default(),
        nodes: Cell::new((html.len() / 4).saturating_add(SPARE_NODES).min(MAX_NODES)),
        misplaced: Cell::new(MAX_MISPLACED),
        names: RefCell::default(),
        problem: Cell::new(None),
    };
    let tokens =
        Tokens { builder: TreeBuilder::new(sink, TreeBuilderOpts::default()), seen: Cell::new(false) };
    let tokenizer = Tokenizer::new(tokens, TokenizerOpts::default());
    let input = BufferQueue::default();
    let feed = |piece: &str| {
        input.push_back(StrTendril::from(piece));
        // Scripts are not run, and the text is UTF-8 whatever encoding it declares.
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        match tokenizer.sink.builder.sink.problem.get() {
            Some(problem) => Err(problem.error()),
            None => Ok(()),
        }
    };
    // The tag that the tokeniser is reading, if any. It reports a tag only when it is complete.
    let mut tag: Option<Attributes> = None;
    let mut rest = html;
    while !rest.is_empty() {
        // A '<' alone, or the text up to the next one.
        let opens = rest.starts_with('<');
        let length = if opens { 1 } else { rest.floor_char_boundary(STEP) };
        let piece = &rest[..length];
        let piece = if opens { piece } else { piece.split('<').next().unwrap_or(piece) };
        rest = &rest[piece.len()..];
        bounds.spend(piece.len())?;
        tokenizer.sink.seen.set(false);
        feed(piece)?;
        if tokenizer.sink.seen.get() {
            tag = None;
        }
        match &mut tag {
            Some(tag) => {
                tag.read(piece);
                if tag.count > MAX_ATTRIBUTES {
                    return Err(Problem::Attributes.error());
                }
            }
            None if opens => tag = Some(Attributes::default()),
            None => {}
        }
    }
    tokenizer.end();
    let sink = &tokenizer.sink.builder.sink;
    // Elements that the parser moved later can be deeper than they were at first.
    let mut deep = false;
    walk(&sink.dom.document, bounds, |_, depth| deep |= depth > MAX_DEPTH)?;
    match sink.problem.get().or(deep.then_some(Problem::Depth)) {
        Some(problem) => Err(problem.error()),
        None => Ok(sink.dom.document.clone()),
    }
}

/// Passes on the tokens of the tokeniser and records that there were some.
struct Tokens {
    builder: TreeBuilder<Handle, Sink>,
    seen: Cell<bool>,
}

impl TokenSink for Tokens {
    type Handle = Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Handle> {
        if !matches!(token, Token::ParseError(_)) {
            self.seen.set(true);
        }
        // The tag ended before its attributes were counted.
        if let Token::TagToken(tag) = &token
            && tag.attrs.len() > MAX_ATTRIBUTES
        {
            self.builder.sink.problem.set(Some(Problem::Attributes));
        }
        self.builder.process_token(token, line)
    }

    fn end(&self) {
        self.builder.end()
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

#[derive(Debug, Clone, Copy)]
enum Problem {
    Depth,
    Size,
    Misplaced,
    Attributes,
    Names,
}

impl Problem {
    fn error(self) -> Error {
        let problem = match self {
            Problem::Depth => format!("its HTML nests elements more than {MAX_DEPTH} deep"),
            Problem::Size => {
                "its HTML has too many elements for its length, or leaves formatting elements open"
                    .to_string()
            }
            Problem::Misplaced => {
                format!("its HTML has more than {MAX_MISPLACED} pieces in tables that belong to no cell")
            }
            Problem::Attributes => {
                format!("its HTML has an element with more than {MAX_ATTRIBUTES} attributes")
            }
            Problem::Names => {
                format!("its HTML has more than {MAX_NAMES} distinct unknown element names")
            }
        };
        Error::Argument { argument: "content", problem }
    }
}

/// RcDom with limits.
struct Sink {
    dom: RcDom,
    /// How many more nodes may be made.
    nodes: Cell<usize>,
    misplaced: Cell<usize>,
    /// Names of elements that HTML does not know.
    names: RefCell<HashSet<LocalName>>,
    problem: Cell<Option<Problem>>,
}

impl Sink {
    fn spend(&self, left: &Cell<usize>, problem: Problem) {
        match left.get().checked_sub(1) {
            Some(less) => left.set(less),
            None => self.problem.set(Some(problem)),
        }
    }

    fn check_depth(&self, parent: &Handle) {
        let mut depth = 0;
        let mut node = parent.clone();
        while let Some(above) = parent_of(&node) {
            depth += 1;
            if depth >= MAX_DEPTH {
                self.problem.set(Some(Problem::Depth));
                return;
            }
            node = above;
        }
    }
}

/// Keeps only the attributes that the converter reads, and a summary of what all of them say about the
/// element, because a small text can have many attributes, of about fifty bytes each.
fn keep_used(name: &LocalName, attrs: &mut Vec<Attribute>) {
    let used = match *name {
        local_name!("img") => Some(local_name!("alt")),
        local_name!("ol") => Some(local_name!("start")),
        // Mathematics is marked by a class only.
        local_name!("span") if attrs.len() == 1 => Some(local_name!("class")),
        _ => None,
    };
    let part = Role::of(name, attrs);
    attrs.retain(|attribute| used.as_ref() == Some(&attribute.name.local));
    attrs.extend(part.map(Role::attribute));
}

fn parent_of(node: &Node) -> Option<Rc<Node>> {
    let weak = node.parent.take();
    let parent = weak.as_ref().and_then(|weak| weak.upgrade());
    node.parent.set(weak);
    parent
}

/// Delegates to RcDom, except for errors, which nobody reads, processing instructions, which the converter
/// does not expect, and <selectedcontent>, which RcDom would copy recursively.
impl TreeSink for Sink {
    type Handle = Handle;
    type Output = Self;
    type ElemName<'a>
        = ExpandedName<'a>
    where
        Self: 'a;

    fn finish(self) -> Self {
        self
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.dom.elem_name(target)
    }

    fn create_element(&self, name: QualName, mut attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.spend(&self.nodes, Problem::Size);
        if name.local.is_dynamic() {
            let mut names = self.names.borrow_mut();
            names.insert(name.local.clone());
            if names.len() > MAX_NAMES {
                self.problem.set(Some(Problem::Names));
            }
        }
        keep_used(&name.local, &mut attrs);
        self.dom.create_element(name, attrs, flags)
    }

    fn create_comment(&self, _: StrTendril) -> Handle {
        self.spend(&self.nodes, Problem::Size);
        self.dom.create_comment(StrTendril::new())
    }

    fn create_pi(&self, _: StrTendril, data: StrTendril) -> Handle {
        self.create_comment(data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        match child {
            NodeOrText::AppendNode(_) => self.check_depth(parent),
            NodeOrText::AppendText(_) => {
                let children = parent.children.borrow();
                if !children.last().is_some_and(|last| matches!(last.data, NodeData::Text { .. })) {
                    self.spend(&self.nodes, Problem::Size);
                }
            }
        }
        self.dom.append(parent, child)
    }

    fn append_based_on_parent_node(&self, element: &Handle, previous: &Handle, child: NodeOrText<Handle>) {
        self.spend(&self.misplaced, Problem::Misplaced);
        self.dom.append_based_on_parent_node(element, previous, child)
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        self.dom.append_doctype_to_document(name, public, system)
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.dom.get_template_contents(target)
    }

    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        self.dom.same_node(x, y)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.dom.set_quirks_mode(mode)
    }

    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        self.spend(&self.misplaced, Problem::Misplaced);
        self.dom.append_before_sibling(sibling, child)
    }

    /// Ignores the attributes of a second <html> or <body>. Nobody reads them, and each would be compared
    /// with all before it.
    fn add_attrs_if_missing(&self, _: &Handle, _: Vec<Attribute>) {}

    fn remove_from_parent(&self, target: &Handle) {
        self.dom.remove_from_parent(target)
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.dom.reparent_children(node, new_parent)
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(handle)
    }
}

#[cfg(test)]
#[path = "dom_tests.rs"]
mod tests;
