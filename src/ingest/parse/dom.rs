//! Parses HTML to a tree that is neither too deep nor larger than its text gives reason for.
//!
//! The converter recurses into the tree, and a stack overflow ends the process, which in PostgreSQL
//! restarts the whole cluster. So depth is measured as the parser itself builds it: no scan of the
//! tags can foresee it (end tags left out, `<div/>`, quotes, comments, foreign elements).

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{Attribute, ExpandedName, ParseOpts, QualName, local_name, ns, parse_document};
use markup5ever_rcdom::{Handle, Node, NodeData, RcDom};
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

/// Elements inside each other at most. Real pages have some dozens; the converter takes several
/// kilobytes of stack for each.
pub const MAX_DEPTH: usize = 200;
/// Elements at most beyond one for two bytes: formatting left open (<p><b><p><b>…) is opened again in
/// every paragraph, so that a small text can make a tree that fills the memory.
const SPARE_ELEMENTS: usize = 10_000;
/// Misplaced content of tables at most: each piece is moved at the cost of all that were before.
const MAX_MISPLACED: usize = 20_000;
/// Bytes given to the parser at a time; it can only be stopped between them.
const STEP: usize = 1024;

/// The tree of a document, or what is wrong with it.
pub fn parse(html: &str) -> Result<Handle, String> {
    let sink = Sink {
        dom: RcDom::default(),
        elements: Cell::new(html.len() / 2 + SPARE_ELEMENTS),
        misplaced: Cell::new(MAX_MISPLACED),
        problem: Cell::new(None),
    };
    let mut parser = parse_document(sink, ParseOpts::default());
    let mut at = 0;
    while at < html.len() {
        let end = html.floor_char_boundary(at + STEP);
        parser.process(StrTendril::from(&html[at..end]));
        at = end;
        if let Some(problem) = parser.tokenizer.sink.sink.problem.get() {
            return Err(problem.message());
        }
    }
    let sink = parser.finish();
    // Elements that the parser moved later can be deeper than where they began.
    let mut deep = false;
    walk(&sink.dom.document, |_, depth| deep |= depth > MAX_DEPTH);
    match sink.problem.get().or(deep.then_some(Problem::Depth)) {
        Some(problem) => Err(problem.message()),
        None => Ok(sink.dom.document),
    }
}

/// What the first title element of a tree says, on one line.
pub fn title(document: &Handle) -> Option<String> {
    let mut title: Option<String> = None;
    walk(document, |node, _| {
        if title.is_none()
            && let NodeData::Element { name, .. } = &node.data
            && name.ns == ns!(html)
            && name.local == local_name!("title")
        {
            let mut text = String::new();
            walk(node, |inner, _| {
                if let NodeData::Text { contents } = &inner.data {
                    text.push_str(&contents.borrow());
                }
            });
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            title = (!line.is_empty()).then_some(line);
        }
    });
    title
}

/// Replaces characters in all texts of a tree.
pub fn replace(document: &Handle, replacement: impl Fn(char) -> char) {
    walk(document, |node, _| {
        if let NodeData::Text { contents } = &node.data {
            let replaced: String = contents.borrow().chars().map(&replacement).collect();
            contents.replace(StrTendril::from(replaced));
        }
    });
}

/// Visits every node in document order with its depth, without recursion.
fn walk(document: &Handle, mut visit: impl FnMut(&Handle, usize)) {
    let mut open: Vec<(Handle, usize)> = vec![(document.clone(), 0)];
    while let Some((node, depth)) = open.pop() {
        visit(&node, depth);
        open.extend(node.children.borrow().iter().rev().map(|child| (child.clone(), depth + 1)));
    }
}

#[derive(Debug, Clone, Copy)]
enum Problem {
    Depth,
    Size,
    Misplaced,
}

impl Problem {
    fn message(self) -> String {
        match self {
            Problem::Depth => format!("its HTML nests elements more than {MAX_DEPTH} deep"),
            Problem::Size => "its HTML leaves too many formatting elements open".to_string(),
            Problem::Misplaced => {
                format!("its HTML has more than {MAX_MISPLACED} pieces in tables that belong to no cell")
            }
        }
    }
}

/// RcDom, with limits.
struct Sink {
    dom: RcDom,
    /// How many more may be made.
    elements: Cell<usize>,
    misplaced: Cell<usize>,
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

fn parent_of(node: &Node) -> Option<Rc<Node>> {
    let weak = node.parent.take();
    let parent = weak.as_ref().and_then(|weak| weak.upgrade());
    node.parent.set(weak);
    parent
}

/// All by RcDom itself but errors, which nobody reads, processing instructions, which the converter
/// does not expect, and <selectedcontent>, which it would copy by recursion.
impl TreeSink for Sink {
    type Handle = Handle;
    type Output = Self;
    type ElemName<'a> = ExpandedName<'a>;

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

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.spend(&self.elements, Problem::Size);
        self.dom.create_element(name, attrs, flags)
    }

    fn create_comment(&self, text: StrTendril) -> Handle {
        self.dom.create_comment(text)
    }

    fn create_pi(&self, _: StrTendril, data: StrTendril) -> Handle {
        self.dom.create_comment(data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        if let NodeOrText::AppendNode(_) = child {
            self.check_depth(parent);
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

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        self.dom.add_attrs_if_missing(target, attrs)
    }

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
mod tests {
    use super::*;

    #[test]
    fn end_tags_left_out_make_no_depth() {
        let units =
            ["<p>a <b>c</b>", "<li>x", "<tr><td>a<td>b", "<dt>a<dd>b", "<br><img src='a>b'>", "<option>x"];
        for unit in units {
            assert!(parse(&unit.repeat(5000)).is_ok(), "{unit}");
            assert!(parse(&format!("<ul><table><dl>{}", unit.repeat(5000))).is_ok(), "{unit}");
        }
        assert!(
            parse(&format!("<!-- {0} --><script>{0}</script><p title='{0}'>", "<div>".repeat(1000))).is_ok()
        );
        assert!(parse(&format!("{}{}", "<div>".repeat(150), "</div>".repeat(150))).is_ok());
    }

    #[test]
    fn depth_is_seen_however_it_is_hidden_and_at_no_great_cost() {
        let began = std::time::Instant::now();
        for (head, unit) in [
            ("", "<div>"),
            ("", "<div/>"),
            ("", "<b>"),
            ("<!-->", "<div>"),
            ("<p ='>", "<div>"),
            ("<svg><style>", "<g>"),
            ("<table>", "<div>"),
            ("<svg><desc><style></svg><script></style>", "<div>"),
            ("<template>", "<div>"),
            ("<div><math><mtext>", "<section>"),
            ("", "<ruby><rt>"),
            ("", "<a><div>"),
            ("", "<table><tr><td>"),
        ] {
            let html = format!("{head}{}", unit.repeat(100_000));
            assert!(parse(&html).is_err(), "{head}{unit}");
        }
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn formatting_left_open_does_not_fill_the_memory() {
        let marks: String = (0..150).map(|i| format!("<b id={i}>")).collect();
        assert!(parse(&format!("<p>{marks}{}", "<p>x".repeat(100_000))).is_err());
    }
}
