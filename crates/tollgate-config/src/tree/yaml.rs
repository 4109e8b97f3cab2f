//! YAML into the tree.

mod syntax;

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StructureStyle, Tag};

use crate::mistake::{Findings, Mistake, quoted};
use crate::tree::{Entry, Node, Scalar, Value};

/// The most levels of lists and mappings.
const DEPTH_MAX: usize = 32;

/// The most that aliases may add: values plus bytes of text.
const ALIAS_WEIGHT_MAX: usize = 100_000;

/// Reads a YAML document. What is wrong goes to `findings`. There is no tree if the text is not
/// YAML, or if it holds nothing.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    options.flow_nesting_limit = DEPTH_MAX;
    options.block_nesting_limit = DEPTH_MAX;

    let mut builder = Builder {
        findings,
        open: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        alias_weight: 0,
        documents: 0,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => {
                if builder.event(event, &span).is_none() {
                    break;
                }
            }
            Err(error) => {
                let mistake = syntax::mistake(&error, text, builder.open_bracket());
                builder.findings.error(mistake);
                return None;
            }
        }
    }
    builder.root
}

/// Builds the tree from the parser's flat events, so that no depth of the file is a depth of the
/// stack.
struct Builder<'f> {
    findings: &'f mut Findings,
    open: Vec<Open>,
    root: Option<Node>,
    /// Finished values with an anchor. An alias to one that is still open finds nothing.
    anchors: HashMap<usize, Node>,
    alias_weight: usize,
    documents: usize,
}

/// A list or mapping whose end has not come.
struct Open {
    start: usize,
    is_flow: bool,
    anchor: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<Node>),
    Mapping { entries: Vec<Entry>, names: HashMap<String, Range<usize>>, key: Option<Node> },
}

impl Builder<'_> {
    /// Takes one event. Gives `None` when the rest of the file is not to be read.
    fn event(&mut self, event: Event<'_>, span: &Span) -> Option<()> {
        let bytes = bytes(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.findings.error(
                        Mistake::new(bytes, "the file holds more than one YAML document")
                            .label("the second one begins here")
                            .help("keep one document per file: remove this line and what follows"),
                    );
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                let is_quoted = !matches!(style, ScalarStyle::Plain);
                let is_null = matches!(text.as_ref(), "~" | "null" | "Null" | "NULL" | "");
                let value = if is_null && !is_quoted {
                    Value::Null
                } else {
                    Value::Scalar(Scalar { text: text.into_owned(), is_quoted })
                };
                self.finished(Node { span: bytes, value }, anchor);
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.opened(bytes, style, anchor, Content::Sequence(Vec::new()))?;
            }
            Event::MappingStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                let content =
                    Content::Mapping { entries: Vec::new(), names: HashMap::new(), key: None };
                self.opened(bytes, style, anchor, content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.closed(bytes.end),
            Event::Alias(anchor) => self.alias(anchor, bytes)?,
            Event::UnresolvedAlias(name) => {
                self.findings.error(syntax::unknown_alias(bytes.clone(), &name));
                self.finished(broken(bytes), 0);
            }
            _ => {}
        }
        Some(())
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: &Span) {
        if tag.is_some() {
            let place = span.tag_span().map_or_else(|| bytes(span), |span| bytes(&span));
            self.findings.error(
                Mistake::new(place, "YAML tags have no meaning here").help("remove the tag"),
            );
        }
    }

    /// Returns where the innermost list or mapping in brackets begins, while it is open.
    fn open_bracket(&self) -> Option<usize> {
        self.open.last().filter(|open| open.is_flow).map(|open| open.start)
    }

    fn opened(
        &mut self,
        bytes: Range<usize>,
        style: StructureStyle,
        anchor: usize,
        content: Content,
    ) -> Option<()> {
        if self.open.len() >= DEPTH_MAX {
            self.findings.error(syntax::too_deep(bytes));
            return None;
        }
        self.open.push(Open {
            start: bytes.start,
            is_flow: style == StructureStyle::Flow,
            anchor,
            content,
        });
        Some(())
    }

    fn closed(&mut self, end: usize) {
        let Some(open) = self.open.pop() else { return };
        let value = match open.content {
            Content::Sequence(items) => Value::Sequence(items),
            Content::Mapping { entries, .. } => Value::Mapping(entries),
        };
        let span = open.start..end;
        self.finished(Node { span, value }, open.anchor);
    }

    fn alias(&mut self, anchor: usize, bytes: Range<usize>) -> Option<()> {
        let Some(target) = self.anchors.get(&anchor) else {
            self.findings.error(
                Mistake::new(bytes.clone(), "the alias stands inside of what it repeats")
                    .help("write the value out"),
            );
            self.finished(broken(bytes), 0);
            return Some(());
        };
        self.alias_weight += target.weight();
        if self.alias_weight > ALIAS_WEIGHT_MAX {
            self.findings.error(
                Mistake::new(bytes, "the aliases up to this one repeat too much")
                    .help("write the values out, or use fewer aliases"),
            );
            return None;
        }
        if self.open.len() + target.depth() > DEPTH_MAX {
            self.findings.error(syntax::too_deep(bytes));
            return None;
        }
        let target = target.clone();
        self.finished(target, 0);
        Some(())
    }

    /// Puts a finished value where it belongs.
    fn finished(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Sequence(items)) => items.push(node),
            Some(Content::Mapping { entries, names, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.extend(field(key, node, names, self.findings)),
            },
        }
    }
}

/// Makes a field of its key and its value, unless it has no name or one that was there before.
fn field(
    key: Node,
    value: Node,
    names: &mut HashMap<String, Range<usize>>,
    findings: &mut Findings,
) -> Option<Entry> {
    let Value::Scalar(scalar) = key.value else {
        let message = format!("the name of a field must be text, not {}", key.kind());
        findings.error(Mistake::new(key.span, message));
        return None;
    };
    let (name, name_span) = (scalar.text, key.span);
    if name == "<<" && !scalar.is_quoted {
        findings.error(
            Mistake::new(name_span, "merge keys (`<<`) are not part of YAML 1.2")
                .help("write the fields out"),
        );
        return None;
    }
    if let Some(first) = names.get(&name) {
        findings.error(
            Mistake::new(name_span, format!("{} is given twice", quoted(&name)))
                .label("given again here")
                .also(first.clone(), "first given here")
                .help("remove one of the two"),
        );
        return None;
    }
    names.insert(name.clone(), name_span.clone());
    Some(Entry { name, name_span, value })
}

fn broken(span: Range<usize>) -> Node {
    Node { span, value: Value::Broken }
}

fn bytes(span: &Span) -> Range<usize> {
    // A parser of a `str` knows the byte offsets.
    let start = span.start.byte_offset().unwrap_or(0);
    start..span.end.byte_offset().unwrap_or(start).max(start)
}
