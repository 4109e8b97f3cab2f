//! Mistakes as a compiler shows them.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Level, Origin, Renderer, Snippet};

use crate::error::{ConfigError, Severity};

/// Writes the mistakes one below the other, without a newline at the end.
pub(crate) fn all<'a>(errors: impl IntoIterator<Item = &'a ConfigError>, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let rendered: Vec<_> = errors.into_iter().map(|error| one(error, &renderer)).collect();
    rendered.join("\n\n")
}

fn one(error: &ConfigError, renderer: &Renderer) -> String {
    let mistake = &error.mistake;
    let level = match error.severity {
        Severity::Error | Severity::WholeFile => Level::ERROR,
        Severity::Warning | Severity::WholeDirectory => Level::WARNING,
    };
    let title = level.primary_title(mistake.message.as_str());
    let mut group = if error.has_no_place() {
        title.element(Origin::path(error.file()))
    } else {
        title.element(snippet(error))
    };
    if let Some(help) = &mistake.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

/// The most of a line that is marked, and that is given to the renderer behind it; it shows less.
const LINE_BYTES_MAX: usize = 300;

fn snippet(error: &ConfigError) -> Snippet<'_, Annotation<'_>> {
    let (source, mistake) = (&error.source, &error.mistake);
    let shown = |span: &Range<usize>| {
        let span = source.first_line(span.clone());
        source.clamp(span.start..span.end.min(span.start + LINE_BYTES_MAX))
    };
    let primary = shown(&mistake.span);
    let also = mistake.also.as_ref().map(|(span, label)| (shown(span), label));
    let both = |span: &Range<usize>| primary.start.min(span.start)..primary.end.max(span.end);
    // Two places far apart in one line would be shown with all that is between them.
    let is_far = |span: &Range<usize>| {
        let between = both(span);
        between.len() > LINE_BYTES_MAX && !source.text()[between].contains('\n')
    };
    let also = also.filter(|(span, _)| !is_far(span));
    let marked = also.as_ref().map_or_else(|| primary.clone(), |(span, _)| both(span));
    // The renderer walks all of the text that it is given, so it gets only the lines at fault.
    let mut window = source.lines(marked.clone());
    window.end = source.clamp(0..window.end.min(marked.end + LINE_BYTES_MAX)).end;
    // The carriage return of a last line would be shown as a character.
    let trimmed = window.start + source.text()[window.clone()].trim_end_matches('\r').len();
    window.end = trimmed.max(marked.end);
    let within = |start: usize, end: usize| start - window.start..end - window.start;

    let label = Some(mistake.label.as_str()).filter(|label| !label.is_empty());
    let mut snippet = Snippet::source(&source.text()[window.clone()])
        .path(error.file())
        .line_start(source.position(window.start).line)
        .annotation(AnnotationKind::Primary.span(within(primary.start, primary.end)).label(label));
    if let Some((span, label)) = also {
        snippet = snippet.annotation(
            AnnotationKind::Context.span(within(span.start, span.end)).label(label.as_str()),
        );
    }
    snippet
}
