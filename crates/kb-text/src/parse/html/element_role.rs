//! The role of an element for a reader, by its attributes. Only the role is kept of them, because a small
//! text can have many attributes.

use html5ever::tendril::StrTendril;
use html5ever::{Attribute, LocalName, QualName, local_name, ns};
use markup5ever_rcdom::{Handle, NodeData};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Links to other pages or within the page, a search form, or something that only accompanies the text.
    Navigation,
    /// The header or footer of the page, unless inside an article.
    Banner,
    Main,
    /// An element that browsers do not show.
    Hidden,
    /// The line numbers beside code.
    LineNumbers,
    /// A box beside the text, such as a note or a warning.
    Note,
    /// A link to its own place.
    Permalink,
    /// A link within the page.
    Fragment,
    /// A heading that does not open a section.
    Caption,
}

const NAMES: [(Role, &str); 9] = [
    (Role::Navigation, "navigation"),
    (Role::Banner, "banner"),
    (Role::Main, "main"),
    (Role::Hidden, "hidden"),
    (Role::LineNumbers, "line-numbers"),
    (Role::Note, "note"),
    (Role::Permalink, "permalink"),
    (Role::Fragment, "fragment"),
    (Role::Caption, "caption"),
];

/// Classes of line numbers in Pygments, Rouge, GitHub and highlight.js.
const LINE_NUMBERS: [&str; 9] = [
    "lineno",
    "linenos",
    "linenodiv",
    "line-number",
    "line-numbers",
    "blob-num",
    "gutter",
    "rouge-gutter",
    "hljs-ln-numbers",
];
/// Classes of boxes beside the text in DocBook, reStructuredText, Asciidoctor and Bootstrap.
const NOTES: [&str; 12] = [
    "note",
    "tip",
    "hint",
    "important",
    "warning",
    "caution",
    "danger",
    "attention",
    "admonition",
    "admonitionblock",
    "callout",
    "alert",
];

impl Role {
    /// The role by the attributes of an element in the source.
    pub fn of(name: &LocalName, attrs: &[Attribute]) -> Option<Role> {
        let value = |wanted: LocalName| {
            attrs.iter().find(|attribute| attribute.name.local == wanted).map(|attribute| &*attribute.value)
        };
        let is_element = |wanted: &[&str]| wanted.contains(&&**name);
        let has_class = |wanted: &[&str]| {
            let classes = value(local_name!("class")).unwrap_or_default();
            classes.split_ascii_whitespace().any(|class| wanted.contains(&class))
        };
        let role = value(local_name!("role")).and_then(|roles| roles.split_ascii_whitespace().next());
        let role = role.unwrap_or_default().to_ascii_lowercase();
        // Panels of tabs are hidden until the reader opens them.
        let is_hidden = value(local_name!("hidden")).is_some_and(|until| until != "until-found")
            || value(local_name!("style")).is_some_and(hides);
        match role.as_str() {
            _ if is_hidden && role != "tabpanel" => Some(Role::Hidden),
            "navigation" | "search" | "complementary" => Some(Role::Navigation),
            // DocBook's links to the previous and the next page.
            _ if is_element(&["div"]) && has_class(&["navheader", "navfooter"]) => Some(Role::Navigation),
            "banner" | "contentinfo" => Some(Role::Banner),
            _ if is_element(&["div"]) && has_class(&["footer"]) => Some(Role::Banner),
            "main" => Some(Role::Main),
            _ if has_class(&LINE_NUMBERS) => Some(Role::LineNumbers),
            _ if attrs.iter().any(|attribute| &*attribute.name.local == "data-line-number") => {
                Some(Role::LineNumbers)
            }
            "note" => Some(Role::Note),
            _ if has_class(&NOTES) => Some(Role::Note),
            _ if is_element(&["a"]) && has_class(&["headerlink", "hash-link"]) => Some(Role::Permalink),
            _ if is_element(&["a"]) && has_class(&["anchor", "header-anchor", "permalink"]) => {
                Some(Role::Fragment)
            }
            _ if is_element(&["a"]) => {
                value(local_name!("href")).filter(|href| href.starts_with('#')).map(|_| Role::Fragment)
            }
            _ => None,
        }
    }

    /// The attribute in which the role is kept, where [`Role::of_node`] finds it.
    pub fn attribute(self) -> Attribute {
        let name = NAMES.iter().find(|(part, _)| *part == self).map_or("", |(_, name)| name);
        Attribute {
            name: QualName::new(None, ns!(), local_name!("role")),
            value: StrTendril::from_slice(name),
        }
    }

    /// The role that was kept of an element's attributes.
    pub fn of_attributes(attrs: &[Attribute]) -> Option<Role> {
        let role = attrs.iter().find(|attribute| attribute.name.local == local_name!("role"))?;
        NAMES.iter().find(|(_, name)| *name == &*role.value).map(|(part, _)| *part)
    }

    pub fn of_node(node: &Handle) -> Option<Role> {
        match &node.data {
            NodeData::Element { attrs, .. } => Role::of_attributes(&attrs.borrow()),
            _ => None,
        }
    }
}

/// Whether a style hides an element.
fn hides(style: &str) -> bool {
    style.split(';').filter_map(|declaration| declaration.split_once(':')).any(|(property, value)| {
        let value = value.trim().split_ascii_whitespace().next().unwrap_or_default();
        let is = |name: &str, hidden: &str| {
            property.trim().eq_ignore_ascii_case(name) && value.eq_ignore_ascii_case(hidden)
        };
        is("display", "none") || is("visibility", "hidden")
    })
}
